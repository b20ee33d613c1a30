"""Events larger than memory: who did what, in blocks of users, beside ratings and alone."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from test_disk import CLOSE, MODELS, catalogues, fitted, pclf_command, table, with_factors, with_lists

import pclf
from pclf.blocks.engine import BlockEngine
from pclf.blocks.strengths import Middle, lower_halves, upper_halves
from pclf.data.events import DRAWN, Urn, absences, with_absences
from pclf.errors import ArgumentError, DataError, UnknownNameError
from pclf.models.lists import chosen_in

ALONE, BESIDE = ("films", "books"), ("books",)


def logs(folder, events, shared_users=False, shared_items=False, n_parts=3):
    """The folders of two catalogues, who is in them, and what. There are ratings and plays; events are what was liked;
    some rows come twice with one rating."""
    rng, paths, pairs = np.random.default_rng(3), {}, {}
    for name, columns in catalogues(shared_users, shared_items).items():
        kept = np.flatnonzero(np.array(columns[2]) > 0.6 * max(columns[2]) * (name in events))
        user, item, rating = ([column[i] for i in kept] for column in columns)
        (folder / name).mkdir(parents=True)
        rows = np.append(np.arange(len(user)), rng.integers(0, len(user), len(user) // 4))
        whole = pa.table({"user_id": [user[i] for i in rows], "item_id": [item[i] for i in rows],
                          "rating": [rating[i] for i in rows], "plays": rng.integers(1, 9, len(rows)) / 4})
        for p, some in enumerate(np.array_split(np.arange(len(rows)), n_parts)):
            pa.parquet.write_table(whole.take(some), folder / name / f"part-{p}.parquet")
        paths[name], pairs[name] = str(folder / name), (user, item)
    return paths, pairs


def twins(make, folder, events, shared=(False, False), **options):
    """A model of two blocks, one of five, and their twin in memory; and who did what."""
    paths, pairs = logs(folder / "in", events, *shared)
    given = {"events": events, "shared_users": shared[0], "shared_items": shared[1], "duplicates": "last", **options}
    files = pclf.RatingFiles(paths, **given)
    two, five = (fitted(make(), files, folder / f"work {n}", n_parts=10, n_blocks=n) for n in (2, 5))
    plain = make()
    twin = plain.set_params(start=f"{plain.start} by id").fit(pclf.Ratings.from_files(paths, **given), n_threads=1)
    return two, five, twin, pairs


def assert_alike(models, twin, pairs, least=0.01):
    """Predictions of people who did something here, and of visitors."""
    (films, names), (readers, books) = pairs.values()
    for domain, user, item in [("films", films, names), ("books", readers, books), ("books", films, books)]:
        want = twin.predict(domain, user[:300], item[:300])
        assert want.std() > least, "a model that says the same of everything would agree with anything"
        for model in models:
            assert np.abs(model.predict(domain, user[:300], item[:300]) - want).max() < CLOSE


@pytest.mark.parametrize(("name", "events"), [("FMM", ALONE), ("RMGM", BESIDE), ("PCLF", BESIDE)])
def test_clusters_of_events_are_those_of_memory(name, events, tmp_path):
    """Alone and beside ratings."""
    two, five, twin, pairs = twins(lambda: MODELS[name]().set_params(max_iter=8), tmp_path, events, (True, False))
    assert_alike([two, five], twin, pairs, least=1e-3)
    assert two.trace_[-1].objective == pytest.approx(twin.trace_[-1].objective, rel=1e-5)
    assert len(two.members_) == len(twin.members_)


@pytest.mark.parametrize(("shared", "events"), [((False, False), BESIDE), ((True, False), ALONE),
                                                ((True, True), BESIDE)], ids=["apart", "people", "both"])
def test_factors_of_events_are_those_of_memory(shared, events, tmp_path):
    """Of people who did something here, of visitors and of guests, and from a saved folder."""
    def make():
        return with_factors(bridges=("people", "things"), hyper={"sweeps": 4}, max_iter=2)

    two, five, twin, pairs = twins(make, tmp_path, events, shared)
    assert_alike([two, five], twin, pairs)
    item = pairs["books"][1][:30]
    told = {"books": list(dict.fromkeys(item))[:5]}
    want = twin.predict("books", twin.fold_in(told), item)
    for model in (two, five):
        assert np.abs(model.predict("books", model.fold_in(told), item) - want).max() < CLOSE
    two.save(tmp_path / "saved")
    again, (user, item) = pclf.load(tmp_path / "saved"), pairs["books"]
    assert (again.predict("books", user[:99], item[:99]) == two.predict("books", user[:99], item[:99])).all()


@pytest.mark.parametrize(("shared", "weight_col"), [((False, False), False), ((True, True), True)],
                         ids=["counted", "strengths"])
def test_lists_of_events_are_those_of_memory(shared, weight_col, tmp_path):
    """Graded by how often or how much, beside ratings; of everybody, of a guest, and from a saved folder."""
    two, five, twin, pairs = twins(lambda: with_lists(max_iter=2), tmp_path, BESIDE, shared, weight_col=weight_col)
    users = list(dict.fromkeys(pairs["films"][0] + pairs["books"][0]))[-150:]
    two.save(tmp_path / "saved")
    for domain in pairs:
        want = twin.recommend(domain, users, n=10)
        for model in (two, five, pclf.load(tmp_path / "saved")):
            assert model.data_[domain].usual_strength == twin.data_[domain].usual_strength
            got = model.recommend(domain, users, n=10)
            assert np.abs(got.scores - want.scores).max() < CLOSE
            assert (got.codes == want.codes).mean() > 0.99
        told = {"books": list(dict.fromkeys(pairs["books"][1]))[:4]}
        got, want = (m.recommend(domain, m.fold_in(told), n=8) for m in (two, twin))
        assert [r.item for r in got] == [r.item for r in want]
    rows = chosen_in(twin.data_).rows[1]
    assert len(np.unique(rows.data)) > 2, "no event would be stronger than others"
    assert "events" in repr(two)


def test_a_trial_on_a_sample_weighs_events_with_absences(tmp_path):
    paths, _ = logs(tmp_path / "in", ALONE, True)
    files = pclf.RatingFiles(paths, events=ALONE, shared_users=True)
    model = pclf.PCLF(6, 4, 5, n_restarts=1, max_iter=3, lists=False, n_factors=4, hyper={"sweeps": 2})
    fitted(model, files, tmp_path / "work")
    assert set(model.factor_weights_) == set(ALONE)
    assert "people" in str(model.transfer_["films"])


def test_stopped_it_goes_on_with_the_same_absences(tmp_path, monkeypatch):
    paths, pairs = logs(tmp_path / "in", BESIDE, True)
    files = pclf.RatingFiles(paths, events=BESIDE, shared_users=True, duplicates="last")

    def make():
        return with_factors(max_iter=2, hyper={"sweeps": 3})

    whole, plain = fitted(make(), files, tmp_path / "whole"), BlockEngine.factors

    def stopping(engine, b, question, plan, given, rows):
        if question.__name__ == "stepped" and b == 1 and given.at == 1:
            raise KeyboardInterrupt
        return plain(engine, b, question, plan, given, rows)

    with monkeypatch.context() as patch:
        patch.setattr(BlockEngine, "factors", stopping)
        with pytest.raises(KeyboardInterrupt):
            fitted(make(), files, tmp_path / "work")
    again = fitted(make(), files, tmp_path / "work")
    for name, (user, item) in pairs.items():
        assert (again.predict(name, user[:300], item[:300]) == whole.predict(name, user[:300], item[:300])).all()


def test_absences_by_id_do_not_depend_on_the_order_of_people_and_items():
    rng = np.random.default_rng(1)
    pairs = rng.permutation(40 * 30)[:200]
    drawn = []
    for order in (np.arange(200), rng.permutation(200)):
        some = pairs[order]
        log = pclf.Ratings.from_events({"songs": ((some // 30).tolist(), (some % 30).tolist())})["songs"]
        weight = np.sqrt(log.item_counts)
        user, item = Urn.of(log, 5, weight).absences(log.user, log.item, log.users.keys())
        drawn.append(set(zip(log.users.decode(user), log.items.decode(item), strict=True)))
        assert not drawn[-1] & set(zip((pairs // 30).tolist(), (pairs % 30).tolist(), strict=True))
    assert drawn[0] == drawn[1]


def test_absences_by_id_are_as_many_and_as_even_as_others():
    rng = np.random.default_rng(2)
    user, item = np.repeat(np.arange(2000), 3).astype(np.int32), rng.integers(0, 100, 6000).astype(np.int32)
    log = pclf.Ratings.from_events({"songs": (user, item)})["songs"]
    weight = np.arange(1.0, log.n_items + 1)
    by_id = Urn.of(log, 7, weight).absences(log.user, log.item, log.users.keys())[1]
    others = absences(log.user, log.item, log.n_items, rng, weight / weight.sum())[1]
    assert len(by_id) == pytest.approx(len(others), rel=0.01)
    counts = [np.bincount(own, minlength=log.n_items) for own in (by_id, others)]
    assert np.abs(counts[0] - counts[1]).max() < 6 * np.sqrt(2 * counts[1].max())
    assert len(by_id) < DRAWN * len(log)


def test_a_model_in_memory_draws_by_ids_only_where_it_says_so():
    log = pclf.Ratings.from_events({"songs": (list(range(50)), list(range(50)))})
    seeds = [[with_absences(log, np.random.default_rng(seed), by_id).fingerprint for seed in (1, 2)]
             for by_id in (False, True)]
    assert seeds[0][0] != seeds[0][1]
    assert seeds[1][0] == seeds[1][1]


@pytest.mark.parametrize("n", [1, 2, 5, 1000])
def test_the_median_of_blocks_is_that_of_all(n):
    rng = np.random.default_rng(n)
    for numbers in (rng.integers(1, 5, n), rng.lognormal(size=n), np.ones(n)):
        blocks = np.array_split(numbers.astype(np.float32), 3)
        middle = Middle.of(np.sum([upper_halves(own) for own in blocks], axis=0))
        found = middle.median(np.sum([lower_halves(own, middle) for own in blocks], axis=0))
        assert found == np.median(numbers.astype(np.float32).astype(float))


def test_what_cannot_be_said_of_events_is_refused(tmp_path):
    paths, work = table(tmp_path / "in", a=([1, 2], ["a", "b"], [5.0, -3.0])), tmp_path / "work"
    with pytest.raises(UnknownNameError, match="unknown domain 'film' in events: did you mean 'films'"):
        pclf.RatingFiles(paths, events=["film"])
    with pytest.raises(DataError, match=r"'films' has events, which are on no scale; got 1 to 5 .* Leave its"):
        pclf.RatingFiles(paths, events="films", scale=(1, 5))
    with pytest.raises(DataError, match=r"has ratings, and only events have strengths; got weight_col='rating'"):
        pclf.RatingFiles(paths, weight_col="rating")
    strong = pclf.RatingFiles(paths, events="films", weight_col="rating")
    with pytest.raises(DataError, match=r"a\.parquet: strengths must be above 0; got -3\.0 in row 1\. Drop these rows"):
        fitted(pclf.RMGM(2, 2), strong, work)
    with pytest.raises(DataError, match=r"a\.parquet: unknown column 'plays'"):
        fitted(pclf.RMGM(2, 2), pclf.RatingFiles(paths, events="films", weight_col="plays"), work)
    missing = table(tmp_path / "missing", a=([1, None], ["a", "b"], [5, 3]))
    with pytest.raises(DataError, match=r"a\.parquet: user ids must not be missing; got none in row 1"):
        fitted(pclf.RMGM(2, 2), pclf.RatingFiles(missing, events="films"), work)
    assert not (work / "blocks").exists(), "nothing half written"
    model = fitted(pclf.RMGM(2, 2, max_iter=2), pclf.RatingFiles(paths, events="films"), work, n_parts=1, n_blocks=1)
    with pytest.raises(ArgumentError, match="a new item among events must have all users in memory"):
        model.fold_in_item("films", attributes={"genre": "horror"})
    fit = ["fit", f"films={paths['films']}:events", "--engine", "disk", "--work", work, "--out", tmp_path / "model"]
    assert pclf_command([*fit, "--time-col", "when"]) == 2


def test_the_command_line_fits_events_beside_ratings(tmp_path, capfd):
    paths, pairs = logs(tmp_path / "in", BESIDE, True)
    words = ["fit", f"films={paths['films']}", f"books={paths['books']}:events", "--engine", "disk", "--work",
             tmp_path / "work", "--memory", "4GB", "--out", tmp_path / "model", "--shared-users", "--duplicates",
             "last", "--weight-col", "auto", "--max-iter", "2", "--restarts", "1", "--factor-weight", "0", "--no-lists"]
    assert pclf_command(words) == 0
    n = sum(len(users) for users, _ in pairs.values())
    assert f"PCLF of {n:,} ratings in 2 domain(s)" in capfd.readouterr().out
    books = pclf.load(tmp_path / "model").data_["books"]
    assert books.events
    assert books.usual_strength > 1
