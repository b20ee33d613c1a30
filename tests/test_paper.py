"""The paper's experiment: protocol counted, numbers typed again, runs that resume, tables and figure."""

import csv
import importlib
import json
import re

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix
from test_evaluate import Blend, ItemMean

from pclf.data.ratings import Ratings
from pclf.errors import DataError, UnknownNameError
from pclf.evaluate import metrics, paper, protocol, tables
from pclf.evaluate.paper import ROW, SINGLE, reproduce, run_cell

MORE = {"BC": 16, "EM": 20, "ML": 16}


@pytest.fixture(scope="module")
def standin(tmp_path_factory):
    """Small data sets in the original formats: random pairs, and an item effect to learn."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(5)

    def matrix(n_users, n_items, fewest, n_poor, n_levels):
        out = np.zeros((n_users, n_items))
        for user in range(n_users):
            n = 8 if user < n_poor else rng.integers(fewest, fewest + 20)
            items = rng.choice(n_items, n, replace=False)
            out[user, items] = np.clip(np.rint((items % 7) * n_levels / 7 + rng.normal(1, 1, n)), 1, n_levels)
        return out

    books = matrix(500, 1000, 17, 0, 10)
    for name in ("book-crossing", "eachmovie", "ml-100k"):
        (folder / name).mkdir()
    savemat(folder / "book-crossing" / "bx_500x1000.mat",
            {"bx_sparse": csc_matrix(np.where(books > 0, 1 + (books - 1) * 4 / 9, 0))})
    films = matrix(560, 1100, 35, 40, 5)
    savemat(folder / "eachmovie" / "eachmovie.mat", {"eachmovie": films.astype(np.uint8)})
    films = matrix(560, 1100, 30, 40, 5)
    lines = [f"{u + 1}\t{v + 1}\t{films[u, v]:.0f}\t880000000" for u, v in np.argwhere(films > 0)]
    (folder / "ml-100k" / "u.data").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def data(standin, monkeypatch):
    monkeypatch.setenv("PCLF_DATA", str(standin))
    return standin


def check_counts(sample):
    """500 users with more than 16 or 20 ratings among 1000 items, 300 whole, 200 with exactly N."""
    assert (len(sample.user_ids), len(sample.item_ids)) == (500, 1000)
    assert (len(set(sample.user_ids.tolist())), len(set(sample.item_ids.tolist()))) == (500, 1000)
    assert np.bincount(sample.user, minlength=500).min() > MORE[sample.dataset]
    assert set(np.unique(sample.rating)) <= {1, 2, 3, 4, 5}
    for given in (5, 10, 15):
        split = protocol.split({sample.dataset: sample}, given)
        train, test = (part.domains[sample.dataset] for part in (split.train, split.test))
        assert len(train) + len(test) == len(sample.user)
        in_train, in_test = (np.bincount(d.user, minlength=500) for d in (train, test))
        assert (in_train[300:] == given).all()
        assert (in_test[:300] == 0).all()
        assert (in_test[300:] > 0).all()


@pytest.mark.parametrize("name", ["BC", "EM", "ML"])
def test_protocol_counts(data, name):
    check_counts(protocol.sample(name, protocol.load([name])[name], 0))


@pytest.mark.parametrize("name", ["BC", "EM", "ML"])
def test_protocol_counts_on_real_data(data_dir, name):
    check_counts(protocol.sample(name, protocol.load([name])[name], 3))


def test_book_crossing_is_halved_and_keeps_its_users_and_books(data):
    domain = protocol.load(["BC"])["BC"]
    first, second = (protocol.sample("BC", domain, r) for r in (0, 1))
    assert domain.scale.values == tuple(range(1, 11))
    own = {(u, v): x for u, v, x in zip(domain.users.decode(domain.user), domain.items.decode(domain.item),
                                        domain.ratings, strict=True)}
    pairs = zip(first.user_ids[first.user].tolist(), first.item_ids[first.item].tolist(), strict=True)
    assert first.rating.tolist() == [int(np.ceil(own[pair] / 2)) for pair in pairs]
    assert sorted(first.user_ids) == sorted(second.user_ids)
    assert first.user_ids.tolist() != second.user_ids.tolist()


def test_a_sample_depends_on_the_ids_and_the_repeat_alone(data):
    domain = protocol.load(["ML"])["ML"]
    order = np.random.default_rng(1).permutation(len(domain))
    users, items = domain.users.array()[domain.user], domain.items.array()[domain.item]
    shuffled = Ratings.from_arrays({"x": (users[order], items[order], domain.ratings[order])}, scale=(1, 5))
    found = protocol.sample("ML", domain, 2).fingerprint
    assert protocol.sample("ML", shuffled.domains["x"], 2).fingerprint == found
    assert protocol.sample("ML", domain, 3).fingerprint != found


def test_given_5_is_a_part_of_given_10(data):
    sample = protocol.sample("EM", protocol.load(["EM"])["EM"], 0)
    assert (sample.kept(10) | ~sample.kept(5)).all()


def test_too_few_users_are_an_error_that_counts_them():
    small = Ratings.from_arrays({"x": ([1, 1, 2], [1, 2, 1], [5, 4, 3])}, scale=(1, 5))
    with pytest.raises(DataError, match=r"needs 500 users with more than 20 .* got 0 users and 2 items"):
        protocol.sample("EM", small.domains["x"], 0)


TEX = """
BC-EM BC  NMF .6575 .6375 .6301  FMM .6451 .6196 .6125  RMGM .6378 .6115 .6092  PCLF .6252 .5994 .5969
BC-EM EM  NMF .9345 .8861 .8799  FMM .9132 .8831 .8771  RMGM .9021 .8743 .8637  PCLF .8838 .8677 .8533
BC-ML BC  NMF .6575 .6375 .6301  FMM .6451 .6196 .6125  RMGM .6364 .6054 .5994  PCLF .6284 .5990 .5950
BC-ML ML  NMF .8365 .8016 .7933  FMM .8052 .7838 .7721  RMGM .8039 .7769 .7692  PCLF .7922 .7729 .7653
ML-EM ML  NMF .8365 .8016 .7933  FMM .8052 .7838 .7721  RMGM .7985 .7736 .7677  PCLF .7878 .7724 .7639
ML-EM EM  NMF .9345 .8861 .8799  FMM .9132 .8831 .8771  RMGM .9017 .8733 .8601  PCLF .8820 .8658 .8498
"""


def test_the_papers_numbers_are_those_of_its_tables():
    typed = {}
    for line in TEX.strip().splitlines():
        pair, dataset, *rest = line.split()
        for i in range(0, len(rest), 4):
            typed.setdefault(pair, {}).setdefault(dataset, {})[rest[i]] = tuple(map(float, rest[i + 1:i + 4]))
    assert typed == protocol.PAPER
    assert protocol.paper_mae("BC-EM", "EM", "RMGM", 10) == 0.8743
    assert protocol.paper_mae("BC-EM", "EM", "BIAS", 10) is None
    assert protocol.paper_mae("BC-EM", "EM", "RMGM", 7) is None


STANDINS = {"NMF": ItemMean(50.0), "PCLF": Blend(), "CBT": ItemMean(2.0)}


def small(out=None, **changes):
    settings = {"pairs": ["BC-EM", "BC-ML"], "givens": [5, 10], "repeats": 2, "models": STANDINS, "n_jobs": 1}
    return reproduce(**settings | changes, out=out)


@pytest.fixture
def runs(monkeypatch):
    """The cells that were run, in order."""
    seen = []

    def watched(job):
        seen.append(str(job[1]))
        return run_cell(job)

    monkeypatch.setattr(paper, "run_cell", watched)
    return seen


def test_a_script_without_a_guard_starts_no_processes(data, monkeypatch):
    """They would run the script again, and so would theirs."""
    monkeypatch.setattr(importlib.import_module("pclf.evaluate.compare"), "ProcessPoolExecutor", None)
    assert len(reproduce(["BC-ML"], [5], 2, STANDINS).rows) == 2 * len(STANDINS)


def test_rows_have_the_promised_keys_and_values(data):
    rows = small().rows
    assert all(tuple(row) == ROW for row in rows)
    assert ROW == ("pair", "dataset", "given", "model", "preset", "repeats", "mae_mean", "mae_median", "rmse",
                   "mae_sd", "paper_mae", "seconds")
    assert len(rows) == 2 * 2 * 2 * 3
    assert json.loads(json.dumps(rows)) == rows
    by_key = {(r["pair"], r["dataset"], r["given"], r["model"]): r for r in rows}
    row = by_key["BC-ML", "ML", 10, "PCLF"]
    assert (row["preset"], row["repeats"], row["paper_mae"]) == ("paper", 2, 0.7729)
    assert row["mae_median"] is not None
    assert by_key["BC-ML", "ML", 10, "NMF"]["mae_median"] is None
    assert by_key["BC-ML", "ML", 10, "CBT"]["paper_mae"] is None


def test_a_row_is_the_mean_of_models_fitted_by_hand(data):
    rows = small(givens=[5], pairs=["BC-EM"]).rows
    [row] = [r for r in rows if (r["model"], r["dataset"]) == ("CBT", "EM")]
    domains, errors = protocol.load(["BC", "EM"]), []
    for repeat in (0, 1):
        split = protocol.split({z: protocol.sample(z, d, repeat) for z, d in domains.items()}, 5)
        model, test = ItemMean(2.0).fit(split.train), split.test.domains["EM"]
        errors.append(metrics.mae(test.ratings, model.predict_codes("EM", test.user, test.item)))
    assert row["mae_mean"] == pytest.approx(np.mean(errors))
    assert row["mae_sd"] == pytest.approx(np.std(errors, ddof=1))


def test_single_domain_systems_run_once_for_both_pairs(data, runs):
    rows = small().rows
    assert len(runs) == len(set(runs)) == 2 * 2 * (3 + 2 * 2)   # repeats, givens; 3 data sets, 2 pairs twice
    books = [r for r in rows if (r["model"], r["dataset"], r["given"]) == ("NMF", "BC", 5)]
    error = {r["pair"]: r["mae_mean"] for r in books}
    assert "NMF" in SINGLE
    assert error["BC-EM"] == error["BC-ML"]


def test_all_systems_see_the_same_split(data, monkeypatch):
    seen = {}
    for kind in (ItemMean, Blend):
        plain = kind.fit

        def fit(self, ratings, plain=plain, **options):
            for name, d in ratings.domains.items():
                seen.setdefault((name, len(d)), set()).add(ratings.only(name).fingerprint)
            return plain(self, ratings, **options)

        monkeypatch.setattr(kind, "fit", fit)
    small(givens=[5], repeats=1)
    assert len(seen) == 3
    assert all(len(prints) == 1 for prints in seen.values())


def test_an_interrupted_run_goes_on_without_repeating_a_cell(data, runs, tmp_path, monkeypatch):
    plain, budget = Blend.fit, [2]

    def tired(self, *args, **options):
        if budget[0] == 0:
            raise KeyboardInterrupt
        budget[0] -= 1
        return plain(self, *args, **options)

    monkeypatch.setattr(Blend, "fit", tired)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path)
    finished = len((tmp_path / "cells.jsonl").read_text().splitlines())
    before = list(runs)
    assert 0 < finished == len(before) - 1
    with (tmp_path / "cells.jsonl").open("a") as file:
        file.write('{"key": "cut o')                               # as a killed process would leave it
    budget[0] = 1000
    resumed = small(tmp_path)
    assert not set(runs[len(before):]) & set(before[:-1])
    assert len(runs) == 2 * 2 * 7 + 1
    fresh = small()
    drop = {"seconds": None}
    assert [r | drop for r in resumed.rows] == [r | drop for r in fresh.rows]


def test_cells_of_other_settings_or_code_are_not_reused(data, runs, tmp_path, monkeypatch):
    part = {"pairs": ["BC-EM"], "givens": [5], "repeats": 1}
    small(tmp_path, models={"CBT": ItemMean(2.0)}, **part)
    small(tmp_path, models={"CBT": ItemMean(2.0)}, **part)
    assert len(runs) == 1
    small(tmp_path, models={"CBT": ItemMean(3.0)}, **part)
    assert len(runs) == 2
    monkeypatch.setattr(paper, "_code", lambda: "another version")
    small(tmp_path, models={"CBT": ItemMean(3.0)}, **part)
    assert len(runs) == 3


def test_presets_with_equal_settings_share_their_cells(data, runs):
    rows = small(pairs=["BC-EM"], givens=[5], repeats=1, models={"CBT": ItemMean()}, preset="both").rows
    assert len(runs) == 1
    assert [r["preset"] for r in rows] == ["paper", "paper", "best", "best"]


def test_two_processes_give_the_rows_of_one(data, tmp_path):
    part = {"pairs": ["BC-EM"], "givens": [5], "repeats": 2}
    one, two = small(**part), small(tmp_path, n_jobs=2, **part)
    assert [r | {"seconds": 0} for r in one.rows] == [r | {"seconds": 0} for r in two.rows]


def test_a_failed_cell_names_itself_and_keeps_the_others(data, tmp_path, monkeypatch):
    def broken(self, ratings, rng):
        raise ValueError("no such luck")

    monkeypatch.setattr(Blend, "_fit", broken)
    with pytest.raises(ValueError, match="no such luck") as caught:
        small(tmp_path, givens=[5], repeats=1)
    assert caught.value.__notes__ == ["while running PCLF on BC-EM, given 5, repeat 0"]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 2


def test_the_recipe_freezes_the_samples(data, tmp_path):
    part = {"pairs": ["BC-EM"], "givens": [5], "repeats": 2, "models": {"CBT": ItemMean()}}
    small(tmp_path, **part)
    frozen = json.loads((tmp_path / "recipe.json").read_text())
    named = [(s["dataset"], s["repeat"]) for s in frozen["samples"]]
    assert named == [("BC", 0), ("BC", 1), ("EM", 0), ("EM", 1)]
    assert frozen["protocol"]["more_than"] == MORE
    small(recipe=tmp_path / "recipe.json", **part)
    small(tmp_path, **{**part, "repeats": 1})                       # a smaller run forgets nothing
    again = json.loads((tmp_path / "recipe.json").read_text())["samples"]
    assert sorted(named) == sorted((s["dataset"], s["repeat"]) for s in again)
    frozen["samples"][1]["sha256"] = "0" * 64
    (tmp_path / "recipe.json").write_text(json.dumps(frozen))
    with pytest.raises(DataError, match="sample of BC in repeat 1 is not the one frozen"):
        small(tmp_path, **part)


def test_tables_show_ours_beside_the_papers_with_the_best_in_bold(data, tmp_path):
    found = small(tmp_path)
    row = {(r["pair"], r["dataset"], r["given"], r["model"]): r for r in found.rows}
    best = min((r for k, r in row.items() if k[:3] == ("BC-EM", "EM", 5)), key=lambda r: r["mae_mean"])
    text = (tmp_path / "tables.md").read_text()
    assert "Book-Crossing and EachMovie: MAE by the mean, preset paper, 2 repeats" in text
    assert f"| **{best['mae_mean']:.4f}** ± {best['mae_sd']:.4f}" in text
    pclf = row["BC-ML", "ML", 10, "PCLF"]
    assert re.search(rf"{pclf['mae_mean']:.4f}(\*\*)? ± {pclf['mae_sd']:.4f} \(0\.7729\)", text)
    latex = (tmp_path / "tables.tex").read_text()
    assert rf"\textbf{{{best['mae_mean']:.4f}}} $\pm$" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 4
    with (tmp_path / "tables.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    names = {"rule": "mean", "pair": "BC-ML", "dataset": "ML", "model": "PCLF"}
    [line] = [line for line in lines if names.items() <= line.items()]
    assert (line["given_10"], line["given_10_paper"]) == (f"{pclf['mae_mean']:.4f}", "0.7729")


def test_tests_compare_pclf_with_every_other_system(data, tmp_path):
    found = small(tmp_path)
    assert len(found.tests) == 2 * 2 * 2 * 2   # pairs, data sets, givens, two other systems
    assert {(t["reference"], t["rule"]) for t in found.tests} == {("PCLF", "mean")}
    test, mae = found.tests[0], {(r["pair"], r["dataset"], r["given"], r["model"]): r["mae_mean"]
                                 for r in found.rows}
    key = test["pair"], test["dataset"], test["given"]
    assert test["effect"] == pytest.approx(mae[*key, test["model"]] - mae[*key, "PCLF"])
    assert "p Wilcoxon" in (tmp_path / "tests.md").read_text()


def test_the_weight_figure_has_a_curve_a_given_and_meets_the_fit_at_its_weight(data, tmp_path):
    found = small(tmp_path)
    assert len(found.curves) == 2 * 2 * 2
    curve = next(c for c in found.curves if (c["pair"], c["dataset"], c["given"]) == ("BC-ML", "BC", 10))
    at = curve["weights"].index(0.35)
    [row] = [r for r in found.rows
             if (r["model"], r["pair"], r["dataset"], r["given"]) == ("PCLF", "BC-ML", "BC", 10)]
    assert np.mean([repeat[at] for repeat in curve["mae"]]) == pytest.approx(row["mae_mean"])
    assert (curve["weights"][0], curve["weights"][-1]) == (0.0, 1.0)
    for suffix in ("png", "svg", "csv"):
        assert (tmp_path / f"weights-paper.{suffix}").stat().st_size > 500
    assert (tmp_path / "weights-paper.png").read_bytes().startswith(b"\x89PNG")


def test_the_band_is_free_of_the_level_of_a_repeat():
    """Two repeats of one shape, a tenth apart: their mean has no width left."""
    points = list(tables._band([[0.8, 0.7, 0.75], [0.9, 0.8, 0.85]]))
    assert [p[0] for p in points] == pytest.approx([0.85, 0.75, 0.8])
    assert all(high - low < 1e-12 for _, low, high in points)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"pairs": ["BC-EN"]}, "unknown pair 'BC-EN': did you mean 'BC-EM'"),
    ({"models": ["PCFL"]}, "unknown model 'PCFL': did you mean 'PCLF'"),
    ({"preset": "papers"}, "unknown preset 'papers': did you mean 'paper'"),
    ({"givens": [17]}, "given must be 1 to 16"),
    ({"repeats": 0}, "repeats must be at least 1"),
])
def test_reproduce_refuses_what_it_does_not_know(wrong, said):
    with pytest.raises((UnknownNameError, ValueError), match=said):
        small(**wrong)


def test_presets_name_all_systems_and_the_papers_settings():
    chosen = paper.systems("paper")
    assert list(chosen) == ["NMF", "FMM", "RMGM", "PCLF", "CBT", "TALMUD", "BIAS"]
    typed = {"n_user_clusters": 20, "n_common_clusters": 10, "n_specific_clusters": 15, "common_weight": 0.35,
             "user_prior": 0, "item_prior": 0, "table_prior": 0, "factor_weight": 0, "n_restarts": 1,
             "start": "posteriors", "tol": 0}
    assert typed.items() <= chosen["PCLF"].get_params().items()
    best = paper.systems("best", ["PCLF"])["PCLF"]
    assert best.get_params() == type(best)().get_params()


def test_a_cell_stands_for_the_code_of_a_model_of_ones_own(tmp_path, monkeypatch):
    """The file that the class is written in belongs to the key."""
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for name, rating in (("mine_a", 3), ("mine_b", 5)):
        (tmp_path / f"{name}.py").write_text("from pclf.models.base import Recommender\n\n\nclass Mine(Recommender):\n"
                                            f"    RATING = {rating}\n")
        cell = paper.Cell("Mine", importlib.import_module(name).Mine(), {}, 5)
        assert cell.key("code") == cell.key("code")
        keys.append(cell.key("code"))
    assert keys[0] != keys[1]
