"""Update: tonight's fit goes on from yesterday's, with what came in and without what was taken back."""

import json
import subprocess
import sys

import numpy as np
import pytest

import pclf
from pclf import datasets, models
from pclf.data.update import updated
from pclf.datasets.demo import write_files
from pclf.errors import ArgumentError, DataError, UnknownNameError
from pclf.evaluate.shipping import compare_models

SMALL = {"n_restarts": 1, "max_iter": 20}


@pytest.fixture(scope="module")
def demo():
    return datasets.load("demo")


@pytest.fixture(scope="module")
def old(demo):
    return pclf.PCLF(**SMALL).fit(demo)


def few_rows(data, name="films", n=60):
    """New ratings: of known people, of somebody new, and of a new film."""
    d = data[name]
    rng = np.random.default_rng(0)
    rated = set(zip(d.user.tolist(), d.item.tolist(), strict=True))
    pairs = [(u, i) for u, i in rng.integers(0, (d.n_users, d.n_items), (4 * n, 2)).tolist() if (u, i) not in rated]
    pairs = list(dict.fromkeys(pairs))[:n]
    users = [*(d.users.ids[u] for u, _ in pairs), "somebody new", "somebody new", d.users.ids[0], d.users.ids[1]]
    items = [*(d.items.ids[i] for _, i in pairs), d.items.ids[0], d.items.ids[1], "A New Film", "A New Film"]
    return {name: {"user_id": users, "item_id": items, "rating": rng.integers(1, 6, len(users))}}


@pytest.mark.parametrize("name", models.NAMES)
def test_every_model_learns_what_came_in_and_forgets_what_was_taken_back(name, demo):
    data = demo.only(["films", "books"])
    model = models.create(name).fit(data)
    d, rows = data["films"], few_rows(data)
    gone = d.users.ids[d.user[0]], d.items.ids[d.item[0]]
    assert model.update(rows, removed={"films": ([gone[0]], [gone[1]])}) is model
    now = model.data_["films"]
    assert len(now) == len(d) + len(rows["films"]["rating"]) - 1
    assert now.users.ids[:d.n_users] == d.users.ids
    assert len(model.recommend("films", "somebody new", n=3)) == 3
    if name not in models.RANKERS:
        assert 1 <= model.predict("films", "somebody new", "A New Film")[0] <= 5
    assert gone[1] in [r.item for r in model.recommend("films", gone[0], n=300)]


def test_the_same_seed_gives_the_same_bits(old, demo):
    one, two = (pclf.PCLF(**SMALL).fit(updated(demo, few_rows(demo)), previous=old) for _ in range(2))
    users, items = demo["films"].users.ids[:50], demo["films"].items.ids[:50]
    assert one.predict("films", list(users), list(items)).tolist() == \
        two.predict("films", list(users), list(items)).tolist()
    assert one._mark == two._mark


def test_an_update_is_about_as_good_as_a_fit_from_nothing():
    """The figures for MovieLens 1M are in docs/guides/refit.md; here, on little data, it must not be far off."""
    data = datasets.load("demo", seed=3).only(["films", "books"])
    split = pclf.hold_out(data, 0.2, seed=0)
    rng = np.random.default_rng(0)
    late = {name: rng.random(len(d)) < 0.05 for name, d in split.train.domains.items()}
    first = pclf.PCLF().fit(split.train.select({name: ~mask for name, mask in late.items()}))
    anew = pclf.PCLF().fit(split.train)
    first.update(split.train.select(late))
    for name, d in split.test.domains.items():
        errors = []
        for model in (anew, first):
            here = model.data_[name]
            users = here.users.encode(d.users.decode(d.user))
            items = here.items.encode(d.items.decode(d.item))
            errors.append(np.abs(model.predict_codes(name, users, items) - d.ratings).mean())
        assert errors[1] < 1.01 * errors[0], name


def test_what_trials_decided_is_kept_and_nothing_is_tried_again(old, demo, monkeypatch):
    def tried(*_, **__):
        raise AssertionError("a trial")

    monkeypatch.setattr("pclf.models.weights.hold_out_of_each", tried)
    monkeypatch.setattr(sys.modules["pclf.choice.learn"], "find_setting", tried)
    new = pclf.PCLF(**SMALL).fit(updated(demo, few_rows(demo)), previous=old)
    assert new.factor_weights_ == old.factor_weights_
    assert new.weights_ == old.weights_
    assert new.lists_.choice.settings == old.lists_.choice.settings
    assert {name: str(t) for name, t in new.transfer_.items()} == {name: str(t) for name, t in old.transfer_.items()}
    for name, part in old.factors_.items():
        assert new.factors_[name].domains[name].items.shape[1] == part.domains[name].items.shape[1]
    assert new.n_iter_ < old.n_iter_


def test_rows_are_where_they_were_before_they_move(old, demo):
    """Without anything new, a few more steps hardly change a prediction."""
    same = pclf.PCLF(**SMALL).fit(demo, previous=old)
    d = demo["films"]
    before, after = (model.predict_codes("films", d.user, d.item) for model in (old, same))
    assert np.abs(before - after).mean() < 0.02
    assert np.corrcoef(before, after)[0, 1] > 0.998


@pytest.mark.parametrize("settings", [{"shared_users": True}, {"shared_items": True}, {}])
def test_people_and_things_that_domains_share_stay_shared(settings):
    rng = np.random.default_rng(1)
    arrays = {}
    for name, n in (("films", 900), ("books", 700)):
        user, item = np.divmod(rng.choice(60 * 30, n, replace=False), 30)
        arrays[name] = user, item, rng.integers(1, 6, n)
    data = pclf.Ratings.from_arrays(arrays, scale=(1, 5), **settings)
    model = pclf.PCLF(4, 2, 2, **SMALL).fit(data)
    model.update({"books": {"user_id": [5, 99], "item_id": [77, 3], "rating": [4, 2]}})
    assert np.isfinite(model.predict("films", [99], [3], user_domain="books")).all()
    assert model.data_.shared_users == data.shared_users


def test_events_are_updated_too():
    rng = np.random.default_rng(2)
    user, item = np.divmod(rng.choice(80 * 40, 900, replace=False), 40)
    model = pclf.PCLF(4, 2, 2, **SMALL).fit(pclf.Ratings.from_events({"plays": (user, item)}))
    offsets = model.factors_["plays"].domains["plays"].items[:, 0].copy()
    model.update({"plays": {"user_id": [1, 1, 500], "item_id": [int(item[0]), 39, 3]}})
    assert model.data_["plays"].n_users == len(set(user.tolist()) | {500})
    now = model.factors_["plays"].domains["plays"].items[:len(offsets), 0]
    assert np.abs(now - offsets).mean() < 0.3           # what was added for draws is not added twice


def test_an_updated_model_is_saved_and_loaded(demo, tmp_path):
    model = pclf.PCLF(**SMALL).fit(demo)
    model.save(tmp_path / "model")
    again = pclf.load(tmp_path / "model").update(few_rows(demo))
    again.save(tmp_path / "model")
    loaded = pclf.load(tmp_path / "model")
    assert loaded.predict("films", "somebody new", "A New Film") == again.predict("films", "somebody new", "A New Film")
    assert model.update(few_rows(demo)).predict("films", "somebody new", "A New Film") == pytest.approx(
        again.predict("films", "somebody new", "A New Film"), abs=1e-6)


def test_who_rates_again_has_changed_their_mind(demo):
    d = demo["films"]
    user, item = d.users.ids[d.user[5]], d.items.ids[d.item[5]]
    other = 1.0 if d.ratings[5] > 3 else 5.0
    now = updated(demo, {"films": {"user_id": [user], "item_id": [item], "rating": [other]}})["films"]
    assert len(now) == len(d)
    at = (now.user == d.user[5]) & (now.item == d.item[5])
    assert now.ratings[at].tolist() == [other]


def test_what_does_not_fit_is_refused_in_words(old, demo):
    with pytest.raises(UnknownNameError, match=r"did you mean 'films'.* A new domain needs a new fit"):
        old.update({"flims": {"user_id": ["x"], "item_id": ["y"], "rating": [1]}})
    with pytest.raises(DataError, match="must be on the scale 1 to 5"):
        old.update({"films": {"user_id": ["x"], "item_id": ["y"], "rating": [7]}})
    with pytest.raises(ArgumentError, match=r"previous must have the same domains .* Fit from nothing"):
        pclf.PCLF(**SMALL).fit(demo.only(["films"]), previous=old)
    with pytest.raises(ArgumentError, match="previous must have as many clusters as are asked for now"):
        pclf.PCLF(7, **SMALL).fit(demo, previous=old)
    with pytest.raises(ArgumentError, match="previous must be a fitted PCLF; got PCLF, not fitted yet"):
        pclf.PCLF(**SMALL).fit(demo, previous=pclf.PCLF())
    with pytest.raises(ArgumentError, match="previous must be a fitted RMGM; got PCLF"):
        pclf.RMGM().fit(demo, previous=old)
    with pytest.warns(UserWarning, match="1 of 1 ratings of 'films' that are to be removed are not there"):
        updated(demo, few_rows(demo), {"films": (["nobody"], ["nothing"])})


def test_a_failed_update_leaves_the_model_as_it_was(demo):
    model = pclf.Bias().fit(demo)
    before = model.predict("films", demo["films"].users.ids[0], demo["films"].items.ids[0])
    with pytest.raises(DataError):
        model.update({"films": {"user_id": ["x"], "item_id": ["y"], "rating": ["much"]}})
    assert model.predict("films", demo["films"].users.ids[0], demo["films"].items.ids[0]) == before


def test_two_models_are_compared_on_what_neither_has_seen(demo):
    data = demo.only(["films"])
    split = pclf.hold_out(data, 0.2, seed=1)
    test = split.test.compact()
    popular, bias, model = pclf.Popular().fit(split.train), pclf.Bias().fit(split.train), pclf.PCLF().fit(split.train)
    better, worse = compare_models(bias, model, test), compare_models(model, bias, test)
    assert better.ship
    assert "Ship the new model: it is surely better" in str(better)
    assert not worse.ship
    assert worse.verdict.startswith("Keep the old model: the new one is surely worse (mean absolute error of films +")
    same = compare_models(bias, bias, test)
    assert same.verdict == "Ship the new model if you want what is new in it: no difference is sure."
    assert [d.change.percent for d in same.differences] == [0, 0, 0]
    error = np.abs(bias.predict("films", test["films"].users.decode(test["films"].user),
                                test["films"].items.decode(test["films"].item)) - test["films"].ratings)
    of_users = np.bincount(test["films"].user, error) / np.bincount(test["films"].user)
    assert same.differences[0].old == pytest.approx(of_users.mean())
    assert [d.metric for d in compare_models(popular, model, test).differences] == ["nDCG@10 of lists"]
    assert list(better.to_pandas()["metric"]) == [d.metric for d in better.differences]


def test_a_model_that_has_seen_the_test_is_told_on(demo):
    model = pclf.Bias().fit(demo.only(["films"]))
    with pytest.warns(UserWarning, match=r"9,775 of 9,775 test ratings of 'films' were in the training of Bias"):
        compare_models(model, model, demo.only(["films"]))


def run(*words, cwd):
    return subprocess.run([sys.executable, "-m", "pclf", *map(str, words)], capture_output=True, text=True, cwd=cwd)


def test_a_nights_work_on_the_command_line(tmp_path):
    """Fit, refit with new rows, compare, all from files."""
    write_files(tmp_path)
    lines = (tmp_path / "movies.csv").read_text().splitlines()
    lines[1:] = [line for i in range(20) for line in lines[1 + i::20]]            # everybody's, one after the other
    for name, part in (("old", lines[1:-900]), ("new", lines[-900:-500]), ("test", lines[-500:])):
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *part]) + "\n")
    done = run("fit", "movies=old.csv", "--out", "one", "--restarts", "1", "--user-clusters", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run("fit", "movies=new.csv", "--from", "one", "--add", "--out", "two", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ratings"] == len(lines) - 501
    assert pclf.load(tmp_path / "two").n_user_clusters == 6            # settings are those of the model before it
    (tmp_path / "all.csv").write_text("\n".join(lines[:-500]) + "\n")
    done = run("fit", "movies=all.csv", "--from", "one", "--out", "three", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["ratings"] == len(lines) - 501, done.stderr
    done = run("compare-models", "one", "two", "--test", "movies=test.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["metric"] for row in found["differences"]} >= {"mean absolute error", "nDCG@10 of lists"}
    assert found["ship"] in (True, False)
    done = run("fit", "movies=new.csv", "--add", "--out", "four", cwd=tmp_path)
    assert (done.returncode, "--add goes with --from" in done.stderr) == (2, True)
