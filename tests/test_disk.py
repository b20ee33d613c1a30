"""Larger than memory: the same fit in blocks of users, stopped and gone on with, and models with users on disk."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import pclf
from pclf.blocks.choices import Spread
from pclf.blocks.engine import BlockEngine
from pclf.blocks.intake import take_in
from pclf.choice import Choice, learn_from
from pclf.choice.rows import Setting
from pclf.engines.cpu import CpuEngine
from pclf.errors import ArgumentError, DataError, ModelFileError, OutputError, UnknownNameError
from pclf.models import disk
from pclf.models.lists import chosen_in

CLOSE = 1e-4      # of predictions on the domains' own scales, after whole fits in single precision
MODELS = {
    "FMM": lambda **s: pclf.FMM(6, 5, n_restarts=2, max_iter=15, **s),
    "RMGM": lambda **s: pclf.RMGM(6, 5, n_restarts=1, max_iter=15, **s),
    "PCLF.paper": lambda **s: pclf.PCLF.paper(n_user_clusters=6, **{"max_iter": 25, **s}),
    "PCLF": lambda **s: pclf.PCLF(6, 4, 5, common_weight=0.4, factor_weight=0, lists=False, n_restarts=1, max_iter=15,
                                  **s),
}
SHARED = [(False, False), (True, False), (False, True), (True, True)]
WAYS = ["apart", "people", "things", "both"]


def with_lists(**settings):
    return pclf.PCLF(6, 4, 5, **{"common_weight": 0.4, "factor_weight": 0, "n_restarts": 1, "max_iter": 8, **settings})


def catalogues(shared_users=False, shared_items=False):
    """Films of 1 to 5 and books of 1 to 10, rated by taste; ids of users are numbers, those of items are text."""
    rng, out = np.random.default_rng(5), {}
    tastes = rng.normal(size=(300, 2))
    for z, (name, n_users, n_items, high) in enumerate([("films", 300, 40, 5), ("books", 200, 50, 10)]):
        kinds, quality = rng.normal(size=(n_items, 2)), rng.normal(size=n_items)
        pairs = rng.permutation(n_users * n_items)[: n_users * 12]
        user, item = pairs // n_items, pairs % n_items
        taste = (tastes[user] * kinds[item]).sum(axis=1) + quality[item] + 0.5 * rng.normal(size=len(user))
        rating = np.clip(np.round(high / 2 + 0.5 + high / 5 * taste), 1, high).astype(int)
        first = 0 if shared_users else 1000 * z
        title = "thing" if shared_items else name
        out[name] = ((user + first).tolist(), [f"{title} {i}" for i in item], rating.tolist())
    return out


def written(folder, arrays, kind="parquet", n_parts=3):
    """A folder of parts for each domain."""
    paths = {}
    for name, (user, item, rating) in arrays.items():
        (folder / name).mkdir(parents=True)
        for p, some in enumerate(np.array_split(np.arange(len(user)), n_parts)):
            table = pa.table({"user_id": [user[i] for i in some], "item_id": [item[i] for i in some],
                              "rating": [rating[i] for i in some]})
            if kind == "parquet":
                pa.parquet.write_table(table, folder / name / f"part-{p}.parquet")
            else:
                pa.csv.write_csv(table, folder / name / f"part-{p}.csv")
        paths[name] = str(folder / name)
    return paths


def fitted(model, files, work, n_parts=8, n_blocks=3, **options):
    disk.fit(model, files, work=work, memory=None, n_parts=n_parts, n_blocks=n_blocks,
             **{"dtype": "float32", "n_threads": 1, "random_state": 0, "verbose": False, "callbacks": (), **options})
    return model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model of two domains, its twin in memory, and where it is."""
    folder = tmp_path_factory.mktemp("small")
    arrays = catalogues()
    model = fitted(MODELS["PCLF"](), pclf.RatingFiles(written(folder / "in", arrays)), folder / "work")
    twin = MODELS["PCLF"](start="memberships by id").fit(pclf.Ratings.from_arrays(arrays), n_threads=1)
    return model, twin, arrays, folder


@pytest.mark.parametrize("shared", [(False, False), (True, False), (True, True)], ids=["apart", "people", "both"])
@pytest.mark.parametrize("name", MODELS)
def test_blocks_on_disk_predict_what_memory_does(name, shared, tmp_path):
    """After whole fits, and two blocks as five."""
    arrays = catalogues(*shared)
    options = {"shared_users": shared[0], "shared_items": shared[1]}
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), **options)
    two, five = (fitted(MODELS[name](), files, tmp_path / f"work {n}", n_parts=10, n_blocks=n) for n in (2, 5))
    plain = MODELS[name]()
    whole = plain.set_params(start=f"{plain.start} by id").fit(pclf.Ratings.from_arrays(arrays, **options), n_threads=1)
    for domain, (user, item, _) in arrays.items():
        expected = whole.predict(domain, user[:400], item[:400])
        assert expected.std() > 0.1, "a model that says the same of everything would agree with anything"
        for model in (two, five):
            assert np.abs(model.predict(domain, user[:400], item[:400]) - expected).max() < CLOSE
    assert two.trace_[-1].objective == pytest.approx(whole.trace_[-1].objective, rel=1e-5)


def with_factors(**settings):
    return pclf.PCLF(6, 4, 5, **{"common_weight": 0.4, "factor_weight": 1.0, "n_restarts": 1, "max_iter": 4,
                                 "lists": False, "neighbours": False, "n_factors": 4, "hyper": {"sweeps": 6},
                                 **settings})


def facts(arrays):
    """Genres that films and books have in common, and a number."""
    out = {}
    for name, (_, item, _) in arrays.items():
        ids = sorted(set(item))
        out[name] = {"item_id": ids, "genre": [f"genre {len(i) * 7 % 3}|{i[-1]}" for i in ids],
                     "year": [1900 + 3 * j for j in range(len(ids))]}
    return out


@pytest.mark.parametrize("attributes", [False, True], ids=["bare", "attributes"])
@pytest.mark.parametrize("shared", SHARED, ids=WAYS)
def test_factors_of_blocks_are_those_of_memory(shared, attributes, tmp_path):
    """After whole fits, whatever ties domains, and two blocks as five: of people who rate here, of visitors and of
    guests."""
    arrays, options = catalogues(*shared), {"shared_users": shared[0], "shared_items": shared[1]}
    if attributes:
        options["attributes"] = facts(arrays)
    bridges = ("people", "things", "attributes")
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), **options)
    two, five = (fitted(with_factors(bridges=bridges), files, tmp_path / f"work {n}", n_parts=10, n_blocks=n)
                 for n in (2, 5))
    twin = with_factors(bridges=bridges, start="memberships by id").fit(
        pclf.Ratings.from_arrays(arrays, **options), n_threads=1)
    (films, names, _), (readers, books, _) = arrays.values()
    of_visitors = "books", films[:300], books[:300]
    for domain, user, item in [("films", films, names), ("books", readers, books), of_visitors]:
        want = twin.predict(domain, user[:400], item[:400])
        assert want.std() > 0.1, "a model that says the same of everything would agree with anything"
        for model in (two, five):
            assert np.abs(model.predict(domain, user[:400], item[:400]) - want).max() < CLOSE
            assert model.factor_weights_ == twin.factor_weights_
    told = {"films": dict(zip(names[:5], (5, 4, 1, 2, 3), strict=True))}
    for domain, item in [("films", names[:30]), ("books", books[:30])]:
        want = twin.predict(domain, twin.fold_in(told), item)
        for model in (two, five):
            assert np.abs(model.predict(domain, model.fold_in(told), item) - want).max() < CLOSE
    two.save(tmp_path / "saved")
    again = pclf.load(tmp_path / "saved")
    assert (again.predict("films", films[:99], names[:99]) == two.predict("films", films[:99], names[:99])).all()


def test_a_trial_on_a_sample_decides_about_bridges_and_weights_on_disk(tmp_path):
    """The default model, with nothing set: what is decided, and how good it is, are as in memory."""
    arrays = catalogues(shared_users=True)
    held = {name: np.arange(len(user)) % 5 == 0 for name, (user, _, _) in arrays.items()}
    train = {name: tuple([x for x, out in zip(column, held[name], strict=True) if not out] for column in columns)
             for name, columns in arrays.items()}
    settings = {"n_restarts": 1, "max_iter": 8, "lists": False, "neighbours": False}
    model = fitted(pclf.PCLF(**settings), pclf.RatingFiles(written(tmp_path / "in", train), shared_users=True),
                   tmp_path / "work")
    twin = pclf.PCLF(**settings).fit(pclf.Ratings.from_arrays(train, shared_users=True))
    for name, (user, item, rating) in arrays.items():
        assert model.transfer_[name].bridges["people"].used == twin.transfer_[name].bridges["people"].used
        some = np.flatnonzero(held[name])
        errors = [np.abs(m.predict(name, [user[i] for i in some], [item[i] for i in some]) -
                         np.array(rating)[some]).mean() for m in (model, twin)]
        assert errors[0] == pytest.approx(errors[1], rel=0.02)
        other = "books" if name == "films" else "films"
        assert f"people: people of {name} also rate {other}" in str(model.transfer_[name])


def test_a_fit_of_factors_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    """With the same bits, from the sweep that was done last."""
    arrays = catalogues(shared_users=True)
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), shared_users=True)
    whole = fitted(with_factors(), files, tmp_path / "whole")
    plain, sweeps = BlockEngine.factors, []

    def stopping(engine, b, question, plan, given, rows):
        if question.__name__ == "stepped" and b == 1:
            sweeps.append(given.at)
            if len(sweeps) == 4:
                raise KeyboardInterrupt
        return plain(engine, b, question, plan, given, rows)

    monkeypatch.setattr(BlockEngine, "factors", stopping)
    with pytest.raises(KeyboardInterrupt):
        fitted(with_factors(), files, tmp_path / "work")
    again = fitted(with_factors(), files, tmp_path / "work")
    assert sweeps == [0, 1, 2, 3, 3, 4, 5], "the sweep that was broken off is done again, and none before it"
    for name, (user, item, _) in arrays.items():
        assert (again.predict(name, user[:300], item[:300]) == whole.predict(name, user[:300], item[:300])).all()
    assert not list((tmp_path / "work").glob("runs*")), "what a run needed is gone once it is done"


@pytest.fixture(scope="module", params=SHARED, ids=WAYS)
def listed(request, tmp_path_factory):
    """A model with lists of two blocks, one of five, and their twin in memory."""
    folder, (users, items) = tmp_path_factory.mktemp("listed"), request.param
    arrays, options = catalogues(users, items), {"shared_users": users, "shared_items": items}
    files = pclf.RatingFiles(written(folder / "in", arrays), **options)
    two, five = (fitted(with_lists(), files, folder / f"work {n}", n_parts=10, n_blocks=n) for n in (2, 5))
    twin = with_lists(start="memberships by id").fit(pclf.Ratings.from_arrays(arrays, **options), n_threads=1)
    return two, five, twin, arrays


@pytest.mark.parametrize("rank", ["liked", "chosen", "rating"])
@pytest.mark.parametrize("domain", ["films", "books"])
def test_lists_of_blocks_are_those_of_memory(listed, domain, rank):
    """Of the people of a domain and of visitors: the same items, scores and probabilities."""
    two, five, twin, arrays = listed
    users = list(dict.fromkeys(arrays["films"][0] + arrays["books"][0]))
    want = twin.recommend(domain, users, n=11, rank_by=rank)
    assert len({tuple(codes) for codes in want.codes.tolist()}) > 100, "lists that are all alike would always agree"
    for model in (two, five):
        got = model.recommend(domain, users, n=10, rank_by=rank)
        same = got.codes == want.codes[:, :10]
        near = np.abs(got.scores - want.scores[:, :10]) < 1e-5
        assert (same | near).all(), "only items that score alike may change places"
        assert (got.codes[:, :, None] == want.codes[:, None, :]).any(axis=2).all()
        assert np.abs(got.scores - want.scores[:, :10]).max() < CLOSE
        for name in ("rating", "liked", "chosen"):
            assert np.abs(got.numbers[name] - want.numbers[name][:, :10])[same].max() < CLOSE


def test_settings_calibrations_and_what_carries_over_are_those_of_memory(listed):
    two, five, twin, _ = listed
    want = twin.lists_.choice
    for model in (two, five):
        got = model.lists_.choice
        assert got.settings == want.settings
        for own, other in zip(got.calibrations, want.calibrations, strict=True):
            np.testing.assert_allclose(own.at, other.at, rtol=1e-4, atol=1e-4)
        assert [crossing is None for crossing in got.crossings] == [crossing is None for crossing in want.crossings]
    if twin.data_.shared_users:
        assert any(want.crossings), "nothing would be compared"
    if twin.data_.shared_users and twin.data_.shared_items:
        assert want.settings[1].things > 0


def test_guests_and_similar_items_are_those_of_memory(listed):
    """With many ratings, with few, with none here, and with none at all."""
    two, _, twin, arrays = listed
    films, books = (arrays[name][1] for name in ("films", "books"))
    for told in ({"films": {films[0]: 5, films[1]: 2}, "books": {books[0]: 9}}, {"films": {films[5]: 4}}, {},
                 {"books": dict.fromkeys(books[:25], 8)}):
        for domain in ("films", "books"):
            got, want = (m.recommend(domain, m.fold_in(told), n=8) for m in (two, twin))
            assert [r.item for r in got] == [r.item for r in want]
            assert [r.score for r in got] == pytest.approx([r.score for r in want], abs=CLOSE)
    got, want = (m.similar_items("films", films[3], 8) for m in (two, twin))
    assert [r.item for r in got] == [r.item for r in want]


def test_a_folder_with_lists_opens_with_the_same_lists_and_reads_one_part_for_one_person(listed, tmp_path, monkeypatch):
    two, _, _, arrays = listed
    two.save(tmp_path / "model")
    read, plain = [], disk.PartFile.read.__func__
    monkeypatch.setattr("pclf.blocks.people.PartFile.read", classmethod(
        lambda cls, path, *rest: (read.append(path), plain(cls, path, *rest))[1]))
    loaded = pclf.load(tmp_path / "model")
    assert loaded.ranks == ("liked", "chosen", "rating")
    loaded.recommend("books", loaded.fold_in({"films": {arrays["films"][1][0]: 5}}))
    loaded.similar_items("films", arrays["films"][1][0])
    assert not read
    user = arrays["films"][0][0]
    assert loaded.recommend("books", user) == two.recommend("books", user)
    assert len({path.name for path in read}) == 1
    everybody = loaded.recommend("films", n=3)
    assert np.array_equal(everybody.scores, two.recommend("films", n=3).scores)


def test_lists_of_a_folder_that_cannot_be_are_refused(tmp_path):
    files = pclf.RatingFiles(written(tmp_path / "in", catalogues(shared_users=True)), shared_users=True)
    good = fitted(with_lists(max_iter=1), files, tmp_path / "work").lists_.choice.to_arrays("choice")
    Choice.from_arrays("choice", good, [40, 50], 0)
    for name, bad in (("0.sample.value", -2), ("0.sample.value", np.nan), ("1.sample.item", 50), ("1.sample.item", -1),
                      ("0.sample.start", 1), ("0.crossing.table", np.nan), ("0.crossing.n_people", 0)):
        array = good[f"choice.{name}"].copy()
        array.flat[0] = bad
        with pytest.raises(ModelFileError):
            Choice.from_arrays("choice", {**good, f"choice.{name}": array}, [40, 50], 0)
    without = {name: array for name, array in good.items() if ".1.sample." not in name}
    with pytest.raises(ModelFileError, match="in all catalogues or in none"):
        Choice.from_arrays("choice", without, [40, 50], 0)


@pytest.mark.parametrize("shared", SHARED, ids=WAYS)
def test_a_tail_is_learned_from_answers_that_are_not_too_large(shared, tmp_path, monkeypatch):
    """Items beyond the core, asked about a few at a time; and where there are too many, those chosen least are tied to
    nothing."""
    arrays, options = catalogues(*shared), {"shared_users": shared[0], "shared_items": shared[1]}
    data, cpu = pclf.Ratings.from_arrays(arrays, **options), CpuEngine("float32", 1)
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), **options)
    catalogue = take_in(files, tmp_path / "blocks", 10, lambda *_: 3, lambda *_: None)
    layout = with_lists()._layout(data)
    source = Spread(BlockEngine(catalogue, tmp_path / "blocks", layout, tmp_path / "rows", cpu))
    whole, settings = chosen_in(data, 1), [Setting(20.0, things=0.5 * shared[1])] * 2
    monkeypatch.setattr("pclf.blocks.choices.TOGETHER", 700)
    monkeypatch.setattr(Spread, "room", 50)
    learned = [learn_from(one, whole, settings=settings, core=15, seed=1) for one in (source, whole)]
    assert any(learned[1].crossings) == shared[0]
    for own, other in zip(*(choice.crossings for choice in learned), strict=True):
        assert (own is None) == (other is None)
        if own is not None:
            np.testing.assert_allclose(own.left @ own.right, other.left @ other.right, rtol=1e-3, atol=1e-5)
    got, want = (choice.items for choice in learned)
    for own, other in zip(got, want, strict=True):
        for name, array in other.to_arrays("x").items():
            np.testing.assert_allclose(own.to_arrays("x")[name], array, rtol=1e-3, atol=1e-5)
    monkeypatch.setattr("pclf.choice.items.TIES", 15 * 7)
    for own, other in zip(learn_from(source, whole, settings=settings, core=15).items, want, strict=True):
        has_ties = np.diff(own.ties.indptr) > 0
        assert has_ties.sum() == 7
        assert (np.diff(other.ties.indptr) > 0).sum() > 20
        assert np.linalg.eigvalsh(own.precision.astype(float)).min() > 0


def test_the_sample_is_the_same_however_blocks_are_cut(tmp_path):
    files = pclf.RatingFiles(written(tmp_path / "in", catalogues(shared_users=True)), shared_users=True)
    found = []
    for n in (2, 5):
        catalogue = take_in(files, tmp_path / f"{n}", 10, lambda *_, n=n: n, lambda *_: None)
        found.append(disk._sample(catalogue, tmp_path / f"{n}", 2500))
    assert found[0].fingerprint == found[1].fingerprint
    assert 2000 < found[0].n_ratings < 3000
    people = [set(found[0][name].users.ids) for name in ("films", "books")]
    assert people[1] <= people[0] | {id for id in people[1] if id > 300}


@pytest.mark.parametrize("where", ["learn_items", "write_block"])
def test_stopped_while_lists_are_learned_it_goes_on_with_the_same_bits(where, tmp_path, monkeypatch):
    """And what was learned of them is not learned again."""
    arrays = catalogues(shared_users=True)
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), shared_users=True)
    model = fitted(with_lists(), files, tmp_path / "whole")
    calls = []

    def stopped(*_, **__):
        calls.append(where)
        raise KeyboardInterrupt

    room = sys.modules["pclf.choice.learn" if where == "learn_items" else "pclf.models.disk"]
    with monkeypatch.context() as patch:
        patch.setattr(room, where, stopped)
        with pytest.raises(KeyboardInterrupt):
            fitted(with_lists(), files, tmp_path / "work")
    with monkeypatch.context() as patch:
        if where == "write_block":
            patch.setattr(sys.modules["pclf.choice.learn"], "learn_items", stopped)
        again = fitted(with_lists(), files, tmp_path / "work")
    assert len(calls) == 1
    users = list(dict.fromkeys(arrays["films"][0]))
    assert np.array_equal(again.recommend("books", users).scores, model.recommend("books", users).scores)


def test_a_visitor_and_a_guest_are_scored_as_in_memory(small):
    model, twin, arrays, _ = small
    visitor = arrays["films"][0][0]
    got, want = (m.predict("books", visitor, "books 3") for m in (model, twin))
    assert got == pytest.approx(want, abs=CLOSE)
    told = {"films": {"films 1": 5, "films 2": 1}}
    guests = [m.fold_in(told) for m in (model, twin)]
    got, want = (m.predict("books", guest, "books 3") for m, guest in zip((model, twin), guests, strict=True))
    assert got == pytest.approx(want, abs=CLOSE)
    both = model.recommend("films", [guests[0], arrays["films"][0][0]], n=3)
    assert [r.item for r in both[0]] == [r.item for r in twin.recommend("films", guests[1], n=3)]
    assert not {"films 1", "films 2"} & {r.item for r in both[0]}


def test_lists_are_those_of_memory_without_what_was_seen(small):
    model, twin, arrays, _ = small
    users = list(dict.fromkeys(arrays["books"][0]))[:25]
    got, want = model.recommend("books", users, n=6), twin.recommend("books", users, n=6)
    assert list(got.users) == users
    assert np.abs(got.scores - want.scores).max() < CLOSE
    assert got.codes.tolist() == want.codes.tolist()
    everyone = model.recommend("books", n=4)
    assert sorted(everyone.users) == sorted(twin.data_["books"].users.ids)
    rated = {(u, i) for u, i in zip(*arrays["books"][:2], strict=True)}
    assert not any((user, r.item) in rated for user, found in everyone.items() for r in found)
    assert model.recommend("books", users[0], n=6, min_ratings=60) == [] or all(
        twin.data_["books"].item_counts[twin.data_["books"].items.code(r.item)] >= 60
        for r in model.recommend("books", users[0], n=6, min_ratings=60))


def test_items_compare_and_predictions_are_explained_without_users_in_memory(small):
    model, twin, arrays, _ = small
    assert len(model.data_["films"].users) == 0
    assert [r.item for r in model.similar_items("films", "films 3", 5)] == [
        r.item for r in twin.similar_items("films", "films 3", 5)]
    user = arrays["films"][0][0]
    assert str(model.explain("films", user, "films 3")) == str(twin.explain("films", user, "films 3"))


def test_an_unknown_user_is_named_with_what_was_meant(small):
    model, _, arrays, _ = small
    user = arrays["films"][0][0]
    with pytest.raises(UnknownNameError, match=rf"did you mean {user}"):
        model.predict("films", str(user), "films 3")
    with pytest.raises(UnknownNameError, match="unknown user"):
        model.predict("films", "nobody", "films 3")


def test_a_batch_goes_on_past_ids_that_nobody_knows(small):
    model, twin, arrays, _ = small
    user = arrays["films"][0][0]
    with pytest.warns(UserWarning, match="1 of 3 users is not known and left out"):
        found = model.recommend("films", [user, "nobody", arrays["films"][0][1]], n=2, unknown="skip")
    assert list(found.users) == [user, arrays["films"][0][1]]
    with pytest.warns(UserWarning, match="taken for newcomers"):
        got = model.predict("films", [user, "nobody"], "films 3", unknown="newcomer")
    with pytest.warns(UserWarning, match="taken for newcomers"):
        want = twin.predict("films", [user, "nobody"], "films 3", unknown="newcomer")
    assert got == pytest.approx(want, abs=CLOSE)
    with pytest.warns(UserWarning, match="predicted as NaN"):
        skipped = model.predict("films", [user, "nobody"], "films 3", unknown="skip")
    assert np.isnan(skipped).tolist() == [False, True]


def test_what_needs_all_users_says_so(small, tmp_path):
    model, _, arrays, _ = small
    for ask in (lambda: model.clusters_, lambda: model.report(tmp_path / "report.html"),
                lambda: model.predict_codes("films", np.zeros(1, np.int32), np.zeros(1, np.int32)),
                lambda: model.embeddings("films"), lambda: model.fold_in_item("films", {arrays["films"][0][0]: 5})):
        with pytest.raises(ArgumentError, match=r"users .*on disk"):
            ask()


def test_a_saved_folder_opens_with_the_same_answers(small, tmp_path):
    model, _, arrays, _ = small
    model.save(tmp_path / "model", key="a secret of many letters")
    loaded = pclf.load(tmp_path / "model", key="a secret of many letters")
    users, items = (column[:50] for column in arrays["films"][:2])
    assert np.array_equal(loaded.predict("films", users, items), model.predict("films", users, items))
    assert repr(loaded) == repr(model)
    assert "300 users" in repr(loaded)
    loaded.save(tmp_path / "model")      # over itself
    again = pclf.load(tmp_path / "model")
    assert np.array_equal(again.predict("films", users, items), model.predict("films", users, items))
    with pytest.raises(ModelFileError, match="signed"):
        pclf.load(tmp_path / "model", key="a secret of many letters")
    with pytest.raises(OutputError, match="not a model"):
        model.save(tmp_path)


def test_opening_a_model_reads_no_users_and_a_question_reads_one_part(small, tmp_path, monkeypatch):
    model, _, arrays, _ = small
    model.save(tmp_path / "model")
    read = []
    plain = disk.PartFile.read.__func__
    monkeypatch.setattr("pclf.blocks.people.PartFile.read", classmethod(
        lambda cls, path, *rest: (read.append(path), plain(cls, path, *rest))[1]))
    loaded = pclf.load(tmp_path / "model")
    loaded.recommend("films", loaded.fold_in({"films": {"films 1": 5}}))
    loaded.similar_items("films", "films 1")
    assert not read
    loaded.recommend("films", arrays["films"][0][0])
    assert len({path.name for path in read}) == 1


@pytest.mark.parametrize("damage", ["altered", "missing", "swapped"])
def test_a_damaged_part_is_refused(small, tmp_path, damage):
    model, _, arrays, _ = small
    model.save(tmp_path / "model")
    loaded = pclf.load(tmp_path / "model")
    user = arrays["films"][0][0]
    number = int(loaded.users_.people.part_of([user])[0])
    part = tmp_path / "model" / "users" / "0" / f"part-{number:05d}.parquet"
    if damage == "altered":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    elif damage == "missing":
        part.unlink()
    else:
        part.write_bytes((part.parent / f"part-{(number + 1) % 8:05d}.parquet").read_bytes())
    with pytest.raises(ModelFileError, match=part.name):
        loaded.predict("films", user, "films 3")


def test_text_and_parquet_files_patterns_and_folders_give_the_same_model(small, tmp_path):
    model, _, arrays, _ = small
    users, items = (column[:50] for column in arrays["films"][:2])
    paths = written(tmp_path / "text", arrays, "csv", n_parts=4)
    (Path(paths["films"]) / "_SUCCESS").touch()
    (Path(paths["films"]) / "part-9.csv").touch()       # without a row
    paths["books"] += "/part-*.csv"
    other = fitted(MODELS["PCLF"](), paths, tmp_path / "work")
    assert np.abs(other.predict("films", users, items) - model.predict("films", users, items)).max() < CLOSE


def test_a_second_fit_in_the_same_folder_takes_the_blocks_that_are_there(small):
    _, _, arrays, folder = small
    blocks = sorted((folder / "work" / "blocks").rglob("*.index"))
    before = [path.stat().st_mtime_ns for path in blocks]
    again = fitted(pclf.RMGM(3, 3, n_restarts=1, max_iter=2), pclf.RatingFiles(
        {name: str(folder / "in" / name) for name in arrays}), folder / "work")
    assert again.n_iter_ == 2
    assert [path.stat().st_mtime_ns for path in blocks] == before
    fitted(MODELS["PCLF"](), {name: str(folder / "in" / name) for name in arrays}, folder / "work")


def test_weights_are_learned_on_a_sample(tmp_path):
    """As in memory, where the sample is everybody."""
    arrays = catalogues()
    model = pclf.PCLF(6, 4, 5, factor_weight=0, lists=False, n_restarts=1, max_iter=12, early_stopping=True)
    fitted(model, written(tmp_path / "in", arrays), tmp_path / "work", n_blocks=1)
    assert set(model.weights_["films"]) == {0, 1}
    assert "common clusters" in str(model.transfer_["films"])
    assert model.n_iter_ <= 12


def test_stopped_by_the_user_it_goes_on_with_the_same_bits(small, tmp_path):
    model, _, arrays, folder = small
    files = {name: str(folder / "in" / name) for name in arrays}
    seen = []

    def stop(step):
        seen.append(step.iteration)
        if step.iteration == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(MODELS["PCLF"](), files, tmp_path / "work", callbacks=[stop])
    again = fitted(MODELS["PCLF"](), files, tmp_path / "work", callbacks=[lambda step: seen.append(step.iteration)])
    assert again.n_iter_ == model.n_iter_
    users, items = (column[:50] for column in arrays["films"][:2])
    assert np.array_equal(again.predict("films", users, items), model.predict("films", users, items))
    assert [s.objective for s in again.trace_] == [s.objective for s in model.trace_]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_killed_it_goes_on_with_the_same_bits(small, tmp_path):
    model, _, arrays, folder = small
    paths = {name: str(folder / "in" / name) for name in arrays}
    script = textwrap.dedent(f"""
        import time
        from pclf.models import disk, PCLF
        model = PCLF(6, 4, 5, common_weight=0.4, factor_weight=0, lists=False, n_restarts=1, max_iter=15)
        def slowly(step):
            print(step.iteration, flush=True)
            time.sleep(0.2)
        disk.fit(model, {paths!r}, work={str(tmp_path / "work")!r}, memory=None, n_parts=8, n_blocks=3, dtype="float32",
                 n_threads=1, random_state=0, verbose=False, callbacks=[slowly])
    """)
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in running.stdout:
        if int(line) == 6:
            time.sleep(0.1)
            os.kill(running.pid, signal.SIGKILL)
            break
    running.wait()
    running.stdout.close()
    again = fitted(MODELS["PCLF"](), paths, tmp_path / "work")
    users, items = (column[:50] for column in arrays["films"][:2])
    assert np.array_equal(again.predict("films", users, items), model.predict("films", users, items))
    assert again.trace_[3].seconds < again.trace_[-1].seconds
    assert not (tmp_path / "work" / "runs").exists(), "rows of a fit that is done take room"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other systems differ")
@pytest.mark.parametrize("limit", [2_000, 30_000], ids=["blocks", "index"])
def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(small, tmp_path, limit):
    """A file may have so many bytes, as if the disk ended there."""
    _, _, arrays, folder = small
    paths = {name: str(folder / "in" / name) for name in arrays}
    script = textwrap.dedent(f"""
        import resource, pclf
        pclf.RMGM(2, 2).fit(pclf.Ratings.from_arrays({{"a": ([1, 2], [1, 2], [1, 2])}}), n_threads=1)   # compiled
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        try:
            pclf.RMGM(2, 2).fit({paths!r}, engine="disk", work={str(tmp_path / "work")!r}, n_threads=1)
        except pclf.errors.OutputError as error:
            print("OutputError:", error)
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert "OutputError:" in done.stdout, done.stderr
    assert str(tmp_path / "work") in done.stdout
    assert not (tmp_path / "work" / "catalogue.safetensors").exists()
    assert not (tmp_path / "work" / "blocks").exists()


def test_work_belongs_to_one_run_and_to_its_files(small, tmp_path):
    _, _, arrays, folder = small
    from pclf.blocks.work import Work

    files = {name: str(folder / "in" / name) for name in arrays}
    with Work.open(folder / "work"), pytest.raises(OutputError, match="used by another run"):
        fitted(MODELS["RMGM"](), files, folder / "work")
    with pytest.raises(OutputError, match="blocks of other files"):
        fitted(MODELS["RMGM"](), {"films": files["films"]}, folder / "work")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="not of a fit"):
        fitted(MODELS["RMGM"](), files, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def table(folder, **parts):
    """Parts of one domain, each (users, items, ratings)."""
    folder.mkdir()
    for name, columns in parts.items():
        pa.parquet.write_table(pa.table(dict(zip(("user_id", "item_id", "rating"), columns, strict=True))),
                               folder / f"{name}.parquet")
    return {"films": str(folder)}


GOOD = ([1, 2], ["a", "b"], [5, 3])


@pytest.mark.parametrize(("bad", "message"), [
    (([1, None], ["a", "b"], [5, 3]), r"b\.parquet: user ids must not be missing; got none in row 1"),
    (([3, 4], ["a", None], [5, 3]), r"b\.parquet: item ids must not be missing; got none in row 1"),
    (([3, 4], ["a", "b"], [5, None]), r"b\.parquet: ratings must not be missing; got none in row 1"),
    (([3, 4], ["a", "b"], [5, 9]), r"b\.parquet: ratings must be on the scale 1 to 5 by 1; got 9 in row 1"),
    ((["x", "y"], ["a", "b"], [5, 3]), r"must be of one type .* whole numbers in .*a\.parquet and text in .*b\.par"),
    (([3.5, 4], ["a", "b"], [5, 3]), r"b\.parquet: user ids must be whole numbers or text"),
    (([2, 4], ["b", "b"], [5, 3]), r"user 2 rates item 'b' again in row 0 of .*b\.parquet. Pass duplicates"),
], ids=["user", "item", "rating", "scale", "types", "fractions", "twice"])
def test_bad_rows_are_refused_with_the_part_where_they_are(bad, message, tmp_path):
    paths = table(tmp_path / "in", a=GOOD, b=bad)
    with pytest.raises(DataError, match=message):
        pclf.RMGM(2, 2).fit(pclf.RatingFiles(paths, scale=(1, 5)), engine="disk", work=tmp_path / "work")
    assert not (tmp_path / "work" / "blocks").exists(), "nothing half written"
    fitted(pclf.RMGM(2, 2, max_iter=2), table(tmp_path / "good", a=GOOD), tmp_path / "work", n_parts=1)


def test_columns_files_and_kinds_that_are_not_there_are_named(tmp_path):
    (tmp_path / "in").mkdir()
    work = tmp_path / "work"
    with pytest.raises(DataError, match="it has none"):
        fitted(pclf.RMGM(2, 2), {"films": str(tmp_path / "in")}, work)
    with pytest.raises(DataError, match="no file is called like"):
        fitted(pclf.RMGM(2, 2), {"films": str(tmp_path / "in" / "*.csv")}, work)
    pa.parquet.write_table(pa.table({"who": [1], "item_id": [2], "rating": [3]}), tmp_path / "in" / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: there must be a column like 'userid'"):
        fitted(pclf.RMGM(2, 2), {"films": str(tmp_path / "in")}, work)
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"b\.parquet must be a whole Parquet file"):
        fitted(pclf.RMGM(2, 2), {"films": str(tmp_path / "in")}, work)
    (tmp_path / "in" / "c.csv").write_text("user_id,item_id,rating\n1,2,3\n")
    with pytest.raises(DataError, match="parts of one kind"):
        fitted(pclf.RMGM(2, 2), {"films": str(tmp_path / "in")}, work)


@pytest.mark.parametrize(("duplicates", "expected"), [("last", 4.0), ("mean", 3.0)])
def test_repeated_pairs_in_different_parts_are_merged(duplicates, expected, tmp_path):
    paths = table(tmp_path / "in", a=([1, 2, 1], ["a", "b", "b"], [2, 3, 1]), b=([1], ["a"], [4]))
    files = pclf.RatingFiles(paths, scale=(1, 5), duplicates=duplicates)
    model = fitted(pclf.RMGM(1, 1, n_restarts=1, max_iter=2), files, tmp_path / "work", n_parts=1)
    domain = model.users_.model(model, 0).data_["films"]
    assert len(domain) == 3
    rating = {(domain.users.ids[u], domain.items.ids[i]): r for u, i, r in zip(
        domain.user, domain.item, domain.ratings, strict=True)}
    assert rating[1, "a"] == expected


def test_what_disk_cannot_do_is_said_before_anything_is_read(tmp_path):
    with pytest.raises(ArgumentError, match="work='path'"):
        pclf.RMGM().fit({"films": "nowhere/"}, engine="disk")
    with pytest.raises(ArgumentError, match="random_state must be a whole number"):
        pclf.RMGM().fit({"films": "nowhere/"}, engine="disk", work=tmp_path / "work", random_state=None)
    with pytest.raises(DataError, match="engine 'disk' reads files"):
        pclf.RMGM().fit(pclf.Ratings.from_arrays(catalogues()), engine="disk", work=tmp_path / "work")
    with pytest.raises(ArgumentError, match="no use for memory"):
        pclf.RMGM().fit(catalogues(), memory="4GB")
    assert not (tmp_path / "work").exists()


def test_the_command_line_fits_from_folders_and_streams_lists(small, tmp_path, capfd):
    _, twin, arrays, folder = small
    told = [f"{name}={folder / 'in' / name}" for name in arrays]
    fit = ["fit", *told, "--engine", "disk", "--work", tmp_path / "work", "--memory", "4GB", "--out",
           tmp_path / "model", "--user-clusters", "6", "--common-clusters", "4", "--specific-clusters", "5",
           "--common-weight", "0.4", "--max-iter", "15", "--restarts", "1"]
    assert pclf_command([*fit, "--factor-weight", "0", "--no-lists"]) == 0
    assert "PCLF of 6,000 ratings in 2 domain(s)" in capfd.readouterr().out
    out = tmp_path / "lists.parquet"
    assert pclf_command(["recommend", tmp_path / "model", "-d", "books", "--all", "--n", "3", "--out", out]) == 0
    lists = pa.parquet.read_table(out).to_pydict()
    want = twin.recommend("books", n=3)
    assert len(lists["user_id"]) == 3 * len(want)
    found = {}
    for user, item in zip(lists["user_id"], lists["item_id"], strict=True):
        found.setdefault(user, []).append(item)
    assert found == {user: [r.item for r in rows] for user, rows in want.items()}
    user, item = arrays["films"][0][0], arrays["films"][1][0]
    capfd.readouterr()
    assert pclf_command(["predict", tmp_path / "model", "-d", "films", "--user", user, "--item", item, "--json"]) == 0
    assert f"{twin.predict('films', user, item)[0]:.3f}"[:4] in capfd.readouterr().out
    pa.csv.write_csv(pa.table({"user_id": [user], "item_id": [item]}), tmp_path / "pairs.csv")
    assert pclf_command(["predict", tmp_path / "model", "-d", "films", "--pairs", tmp_path / "pairs.csv"]) == 0
    assert pclf_command(["report", tmp_path / "model", "--out", tmp_path / "report.html"]) == 1
    assert pclf_command(["fit", *told, "--out", tmp_path / "other", "--memory", "4GB"]) == 2
    other = ["fit", *told, "--out", tmp_path / "other", "--engine", "disk", "--model", "RMGM"]
    assert pclf_command([*other, "--work", tmp_path / "work", "--time-col", "when"]) == 2
    assert pclf_command(other) == 2


def pclf_command(words):
    return subprocess.run([sys.executable, "-m", "pclf", *map(str, words)], check=False).returncode


def test_memory_decides_how_many_blocks_there_are():
    from pclf.blocks.work import Room, as_bytes
    from pclf.problem import Layout, View

    assert [as_bytes(m) for m in ("4GB", "500 MB", "1.5g", 1000)] == [4 * 10**9, 5 * 10**8, 15 * 10**8, 1000]
    with pytest.raises(ArgumentError, match="such as '4GB'"):
        as_bytes("plenty")
    data = pclf.Ratings.from_arrays(catalogues())
    layout = Layout(20, (View("common", (0, 1), 10),))
    bare, whole = Room(layout, "float32", False, lambda n: 0), Room(layout, "float32", True, lambda n: 28)
    few, many = (bare.blocks(memory)(data, 10**9, 10**7) for memory in (16 * 10**9, 4 * 10**9))
    assert 1 <= few < many < 20
    with pytest.raises(ArgumentError, match=r"memory must be at least 0\.\d GB .* in these clusters"):
        bare.blocks(10**8)(data, 10**9, 10**7)
    with pytest.raises(ArgumentError, match=r"memory must be at least 1\.\d GB .* with factors"):
        whole.blocks(7 * 10**8)(data, 10**9, 10**7)
