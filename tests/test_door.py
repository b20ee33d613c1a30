"""The door: files that say of themselves that they are whole, and hold what no model has."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import pclf
from pclf import door, storage
from pclf.data import Scale, Vocabulary
from pclf.data.domain import Domain
from pclf.errors import ArgumentError, DataError, ModelFileError, PclfError

KEY = "a secret of sixteen bytes or more"


def data():
    rng = np.random.default_rng(0)
    pairs = rng.permutation(8 * 6)[:30]
    films = [f"u{p // 6}" for p in pairs], [f"film {p % 6}" for p in pairs], rng.integers(1, 6, 30)
    books = pairs // 6, pairs % 6, rng.integers(1, 11, 30)
    return pclf.Ratings.from_arrays({"films": films, "books": books}, scale={"films": (1, 5), "books": (1, 10)},
                                    titles={"films": {f"film {i}": f"Title {i}" for i in range(6)}})


MODELS = {"Bias": pclf.Bias(), "NMF": pclf.NMF(3), "CBT": pclf.CBT(2, 2), "TALMUD": pclf.TALMUD(2, 2),
          "PCLF": pclf.PCLF.paper(n_user_clusters=3, n_common_clusters=2, n_specific_clusters=2, max_iter=3)}


@pytest.fixture(scope="module")
def fitted():
    return {name: model.fit(data()) for name, model in MODELS.items()}


@pytest.fixture(params=MODELS)
def saved(request, fitted, tmp_path):
    path = tmp_path / "model"
    fitted[request.param].save(path)
    return path


def forge(path, change):
    """The file, changed by somebody who computes the checksum anew."""
    manifest, arrays = storage.read(path)
    arrays = {name: a.copy() for name, a in arrays.items()}
    change(manifest, arrays)
    text = json.dumps(manifest)
    save_file(arrays, path, {"pclf": text, "sha256": storage._digest(text, arrays)})


def put(name, value, at=0):
    def change(manifest, arrays):
        arrays[name].reshape(-1)[at] = value
    return change


def become(name, make):
    def change(manifest, arrays):
        arrays[name] = make(arrays[name])
    return change


def say(value, *path):
    def change(manifest, arrays):
        where = manifest
        for key in path[:-1]:
            where = where[key]
        where[path[-1]] = value
    return change


def drop(*path):
    def change(manifest, arrays):
        where = manifest
        for key in path[:-1]:
            where = where[key]
        del where[path[-1]]
    return change


DATA = {
    "a user beyond all users": put("data.0.user", 8),
    "a user before the first": put("data.0.user", -1),
    "an item far away": put("data.1.item", 2**30),
    "a rating off the scale": put("data.0.value", 5),
    "codes of another type": become("data.0.user", lambda a: a.astype(np.int64)),
    "fewer items than users": become("data.0.item", lambda a: a[:-1]),
    "codes in a table": become("data.0.user", lambda a: a.reshape(2, -1)),
    "ids that go back": put("data.0.users.ends", 0, 3),
    "ids beyond their text": put("data.0.users.ends", 10**6, -1),
    "text beyond the ids": become("data.0.users", lambda a: np.append(a, a)),
    "ids that are no text": put("data.0.users", 0xFF),
    "an id twice": become("data.1.users", lambda a: np.zeros_like(a)),
    "ids of another type": become("data.1.users", lambda a: a.astype(np.float64)),
    "an array that nobody asked for": lambda m, a: a.update({"data.7.user": np.zeros(3, np.int32)}),
    "a domain less than arrays": drop("domains", 1),
    "a scale that descends": say([5, 4, 3, 2, 1], "domains", 0, "scale"),
    "a scale of words": say(["1", "2", "3", "4", "5"], "domains", 0, "scale"),
    "a scale without end": say([1, 2, 3, 4, 1e999], "domains", 0, "scale"),
    "a title too few": say(["x"] * 5, "domains", 0, "titles"),
    "a title that is none": say([1] * 6, "domains", 0, "titles"),
    "two domains of one name": say("films", "domains", 1, "name"),
    "a name that is none": say(7, "domains", 0, "name"),
    "no levels": say(0, "levels"),
    "levels that are true": say(True, "levels"),
    "too many levels": say(10**9, "levels"),
    "sharing that is a word": say("no", "shared_users"),
    "events of five stars": say(True, "domains", 0, "events"),
    "ids of a kind nobody knows": say("list", "domains", 0, "users"),
    "no domains": say([], "domains"),
    "domains that are a table": say({}, "domains"),
    "a key too many": say(1, "surprise"),
    "a key too few": drop("shared_items"),
    "a class nobody knows": say("Oracle", "kind"),
    "a class that is a number": say(3, "kind"),
    "a setting nobody knows": say(1, "settings", "surprise"),
    "settings that are a list": say([1], "settings"),
    "lists without end": say(json.loads("[" * 50 + "]" * 50), "settings", "x"),
}


@pytest.mark.parametrize("what", DATA)
def test_data_that_no_model_has_are_refused(saved, what):
    forge(saved, DATA[what])
    with pytest.raises(ModelFileError, match="model: "):
        pclf.load(saved)


@pytest.mark.parametrize("make", [
    lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size // 2, np.nan, a).astype(a.dtype),
    lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, np.inf, a).astype(a.dtype),
    lambda a: a[:-1], lambda a: a[..., None], lambda a: a.reshape(-1), lambda a: a.astype(np.float16),
    lambda a: a.astype(np.int64), lambda a: np.concatenate([a, a]),
], ids=["NaN", "infinity", "a row less", "an axis more", "flat", "half precision", "whole numbers", "twice"])
def test_arrays_that_no_model_has_are_refused(saved, make):
    _, arrays = storage.read(saved)
    for name in [name for name in arrays if name.startswith("model.")]:
        if name.startswith("model.codebook") and make(arrays[name]).ndim == 2 and make(arrays[name]).dtype.kind == "f" \
                and make(arrays[name]).dtype.itemsize > 2 and np.isfinite(make(arrays[name])).all():
            continue          # a codebook may have any number of clusters
        before = saved.read_bytes()
        forge(saved, become(name, make))
        with pytest.raises(ModelFileError, match="must"):
            pclf.load(saved)
        saved.write_bytes(before)


def test_an_array_that_is_missing_or_too_many_is_refused(saved):
    before = saved.read_bytes()
    for name in [name for name in storage.read(saved)[1] if not name.startswith("model.codebook")]:
        forge(saved, lambda m, a, name=name: a.pop(name))
        with pytest.raises(ModelFileError):
            pclf.load(saved)
        saved.write_bytes(before)


def test_memberships_are_probabilities(fitted, tmp_path):
    for name in ("member.0.users", "member.0.items.1", "member.0.tables.0", "member.0.user_shares"):
        fitted["PCLF"].save(tmp_path / "m")
        forge(tmp_path / "m", put(f"model.{name}", 0.9))
        with pytest.raises(ModelFileError, match=r"sum to 1|from 0"):
            pclf.load(tmp_path / "m")


def scaled(name, by, prefix="model.factors.0."):
    def change(manifest, arrays):
        arrays[prefix + name] = arrays[prefix + name] * by
    return change


def asymmetric(manifest, arrays):
    arrays["model.factors.0.people.own.1"][0, 1] += 0.1


def contradicting(manifest, arrays):
    for pair in ("0.1", "0.2"):
        arrays[f"model.factors.0.people.between.{pair}"][0, 0] = 0.99
    arrays["model.factors.0.people.between.1.2"][0, 0] = -0.99


def without_attributes(manifest, arrays):
    del manifest["attributes"]
    for name in [name for name in arrays if name.startswith("attributes.")]:
        del arrays[name]


def column(key, value, at=0):
    return say(value, "attributes", "columns", at, key)


TIED = {
    "a person less": become("model.factors.0.0.users", lambda a: a[:-1]),
    "an axis less": become("model.factors.0.0.items", lambda a: a[:, :-1].copy()),
    "a level more": become("model.factors.0.0.base", lambda a: np.append(a, 0.0)),
    "numbers that overflow": put("model.factors.0.0.users", 1e30),
    "a negative square": put("model.factors.0.0.item_square", -1.0),
    "a product larger than its squares": put("model.factors.0.0.item_square", 1e9, at=1),
    "something behind the squares": put("model.factors.0.0.item_square", 1.0, at=-1),
    "ratings before the first": put("model.factors.0.0.n_rated", -1),
    "a choice off the scale": put("model.factors.0.0.least", 5),
    "counts without a spread": put("model.factors.0.0.count", 1e-300, at=1),
    "a negative variance": put("model.factors.0.0.chosen.variance", -1.0),
    "places of nobody": become("model.factors.0.0.choosers.places", lambda a: a[:-1]),
    "other places of items than of users": become("model.factors.0.0.chosen.places", lambda a: a[:, :-1].copy()),
    "a covariance that is not symmetric": asymmetric,
    "a covariance that is not positive": scaled("people.own.0", -1.0),
    "a covariance of nothing": scaled("things.own.2", 0.0),
    "a correlation beyond 1": put("model.factors.0.people.between.0.1", 1.5),
    "correlations that contradict each other": contradicting,
    "a share beyond 1": put("model.factors.0.strange", 1.5),
    "regressions on attributes that are not there": without_attributes,
    "factors of a domain nobody knows": say("games", "extra", "factors", 0, "domains", 0),
    "factors of a domain twice": say(["films"] * 3, "extra", "factors", 0, "domains"),
    "more attribute axes than axes": say(99, "extra", "factors", 0, "n_attribute"),
    "degrees of freedom without end": say(1e999, "extra", "factors", 0, "freedom", 0),
    "steps without end": say(2**70, "extra", "factors", 0, "hyper", "newton"),
    "a setting of factors nobody knows": say(1, "extra", "factors", 0, "hyper", "surprise"),
    "a part that is not there": say(7, "extra", "factors_of", "films"),
    "factors without a weight": drop("extra", "factor_weights", "films"),
    "a weight beyond 1": say(1.5, "extra", "factor_weights", "films"),
    "a transfer of words": say(["a", "b", "c", "d"], "extra", "transfer", "films"),
    "a bridge nobody knows": say([0.0, None, "", [["luck", 0.0, True, ""]]], "extra", "transfer", "films"),
    "a step of EM too short": say([1, 1.0], "extra", "trace", 0),
    "no members": say(0, "extra", "clusters", "members"),
    "members without end": say(2**70, "extra", "clusters", "members"),
    "a prior that is negative": say([-1.0, 1.0], "extra", "clusters", "priors"),
    "weights of views that do not add up": say(0.9, "extra", "clusters", "weights", "films", "0"),
    "a view of another model": say("books", "extra", "clusters", "layout", "views", 1, "name"),
    "a view without domains": say([], "extra", "clusters", "layout", "views", 1, "domains"),
    "a feature beyond all features": put("attributes.0.indices", 99),
    "a feature before the first": put("attributes.0.indices", -1),
    "rows of attributes that go back": put("attributes.0.indptr", 10**6, at=1),
    "an item without a row": become("attributes.0.indptr", lambda a: a[:-1]),
    "a value that is none": put("attributes.0.data", np.nan),
    "a value twice as strong": put("attributes.0.data", 2.0),
    "given twice": put("attributes.0.given", 2),
    "attributes of nobody": say("users", "attributes", "whose"),
    "attributes of two domains of three": drop("attributes", "domains", 2),
    "a kind of column nobody knows": column("kind", "smell"),
    "values that are the same": column("labels", ["a", "a"]),
    "half a character": column("labels", ["a", "\ud800"]),
    "knots that go back": column("knots", [3.0, 2.0, 1.0], at=1),
    "a number without a spread": column("spread", [0.0], at=2),
    "a number with two means": column("mean", [0.0, 1.0], at=2),
}


@pytest.fixture(scope="module")
def tied():
    rng, frames, facts = np.random.default_rng(1), {}, {}
    for name in ("films", "books", "music"):
        pairs = rng.permutation(12 * 9)[:60]
        frames[name] = {"user": pairs // 9, "item": pairs % 9, "rating": rng.integers(1, 6, 60)}
        facts[name] = {"item": range(9), "genre": ["horror", "romance", "crime"] * 3, "year": range(1990, 1999),
                       "weight": [1.5, 7.25, None] * 3}
    data = pclf.Ratings.from_frames(frames, scale=(1, 5), shared_users=True, attributes=facts)
    hyper = {"sweeps": 4, "places": 3, "attribute_factors": 2}
    return pclf.PCLF(3, 2, 2, max_iter=3, n_factors=3, hyper=hyper, n_restarts=1, common_weight=0.3, factor_weight=0.7,
                     bridges=("people", "attributes")).fit(data)


@pytest.mark.parametrize("what", TIED)
def test_factors_and_attributes_that_no_model_has_are_refused(tied, tmp_path, what):
    path = tmp_path / "m"
    tied.save(path, key=KEY)
    assert pclf.load(path, key=KEY).data_.fingerprint == tied.data_.fingerprint
    forge(path, TIED[what])
    with pytest.raises(ModelFileError, match="model: "):
        pclf.load(path)


def test_every_array_of_factors_and_attributes_is_looked_at(tied, tmp_path):
    path = tmp_path / "m"
    tied.save(path)
    before = path.read_bytes()
    for name, array in storage.read(path)[1].items():
        changes = [become(name, lambda a: a[..., None]), become(name, lambda a: a.astype(np.float16))]
        optional = name.endswith(("attribute_weights", "turn")) or ("factors" in name and name.endswith(".usual"))
        if not optional:                                            # not every model has them
            changes.append(lambda m, a, name=name: a.pop(name))
        if array.size:
            changes.append(become(name, lambda a: a[:-1]))
        if array.size and array.dtype.kind == "f":
            changes.append(put(name, np.nan))
        for change in changes:
            forge(path, change)
            with pytest.raises(ModelFileError):
                pclf.load(path)
            path.write_bytes(before)


def test_a_model_with_settings_of_its_factors_comes_back(tied, tmp_path):
    from pclf.factors.hyper import Hyper

    model = pclf.PCLF(2, 2, 2, max_iter=2, n_factors=2, hyper=Hyper(sweeps=3), factor_weight=1.0, common_weight=0.0,
                      ).fit(tied.data_)
    model.save(tmp_path / "m")
    again = pclf.load(tmp_path / "m")
    assert again.hyper["sweeps"] == 3
    np.testing.assert_array_equal(again.predict("films", 1, range(9)), model.predict("films", 1, range(9)))


@pytest.mark.parametrize("text", [
    "[" * 100_000, '{"format": NaN}', "{", "null", "[]", '{"format": 6}', '{"format": ' + "9" * 5000 + "}", "\udcff",
])
def test_a_manifest_that_is_none_is_refused(saved, text):
    _, arrays = storage.read(saved)
    text = text.encode(errors="replace").decode()
    save_file(arrays, saved, {"pclf": text, "sha256": storage._digest(text, arrays)})
    with pytest.raises(ModelFileError):
        pclf.load(saved)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "BOOL", "Q4"])
def test_types_of_numbers_that_we_never_write_are_refused(saved, kind):
    content = saved.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header["data.0.value"]["dtype"] = kind
    text = json.dumps(header).encode()
    saved.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size:])
    with pytest.raises(ModelFileError):
        pclf.load(saved)


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="no regular file"):
        pclf.load(tmp_path / "pipe")


def test_a_signed_model_is_read_with_its_key_with_another_it_is_not(fitted, tmp_path):
    path = tmp_path / "m"
    fitted["Bias"].save(path, key=KEY)
    expected = fitted["Bias"].predict("films", "u1", ["film 1", "film 2"])
    for key in (KEY, KEY.encode(), None):              # without a key it is only whole
        np.testing.assert_array_equal(pclf.load(path, key=key).predict("films", "u1", ["film 1", "film 2"]), expected)
    with pytest.raises(ModelFileError, match="signed with another"):
        pclf.load(path, key=KEY + "!")


def test_nobody_without_the_key_makes_a_file_that_is_loaded_with_it(fitted, tmp_path):
    path = tmp_path / "m"
    fitted["Bias"].save(path, key=KEY)
    _, arrays = storage.read(path)
    content = path.read_bytes()
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    arrays["model.users.0"] = arrays["model.users.0"] + 0.5
    forged = {**header, "sha256": storage._digest(header["pclf"], arrays)}
    save_file(arrays, path, forged)
    assert pclf.load(path)                             # a model that is whole, of whomever
    with pytest.raises(ModelFileError, match="altered by somebody"):
        pclf.load(path, key=KEY)
    save_file(arrays, path, {k: v for k, v in forged.items() if k != "hmac"})
    with pytest.raises(ModelFileError, match="must be signed to be loaded with a key; it is not"):
        pclf.load(path, key=KEY)


@pytest.mark.parametrize("key", ["", b"short", 12345678901234567890])
def test_a_key_that_could_be_guessed_is_refused(fitted, tmp_path, key):
    with pytest.raises(ArgumentError, match="key must"):
        fitted["Bias"].save(tmp_path / "m", key=key)
    assert not list(tmp_path.iterdir())


def test_ids_with_halves_of_characters_come_back(tmp_path):
    ids = ["a\ud800", "b", "b\udfff", ""]
    model = pclf.Bias().fit(pclf.Ratings.from_arrays({"a": (ids, ["x"] * 4, [1, 2, 3, 4])}))
    model.save(tmp_path / "m")
    assert pclf.load(tmp_path / "m").data_["a"].users.ids == tuple(ids)


def test_codes_of_ones_own_are_checked_too():
    good = {"users": Vocabulary([1, 2]), "items": Vocabulary(["x"]), "user": np.array([0, 1], np.int32),
            "item": np.zeros(2, np.int32), "value": np.array([0, 4], np.uint8), "scale": Scale.between(1, 5)}
    Domain("d", **good)
    for name, bad in (("user", [0, 2]), ("user", [-1, 0]), ("item", [0, 1]), ("value", [0, 5])):
        with pytest.raises(DataError, match="must be codes from 0 to"):
            Domain("d", **{**good, name: np.array(bad, good[name].dtype)})
    with pytest.raises(DataError, match="titles must be as many as its 1 items"):
        Domain("d", **good, titles=("a", "b"))


def test_what_an_array_must_be_is_said():
    def says(array, **what):
        with pytest.raises(ModelFileError) as found:
            door.check_array("x", array, **{"dtype": "float", "shape": {"users": 3, "factors": None}, **what})
        assert isinstance(found.value, PclfError)
        return str(found.value)

    x = np.full((3, 2), 0.5, np.float32)
    assert door.check_array("x", x, dtype="float", shape={"users": 3, "factors": None}, sums_to_one=1) is x
    assert says(x.astype(">f4")) == "x must be of type float32 or float64; got >f4"
    assert says(x[:2]) == "x must have the shape (3 users, factors); got (2, 2)"
    assert says(x, high=0.4) == "x must have numbers of at most 0.4; got 0.5 to 0.5"
    assert says(x, sums_to_one=0) == "x must have probabilities that sum to 1 along axis 0; got sums from 1.5 to 1.5"
    assert says(x * np.nan) == "x must have finite numbers; got nan to nan"
    assert says("x") == "x must be an array; got str"


TIMED = {
    "a strength of nothing": (put("data.0.weight", 0), "strengths must be finite and above 0"),
    "a strength below nothing": (put("data.0.weight", -1), "strengths must be finite and above 0"),
    "a strength that is no number": (put("data.0.weight", np.nan), "strengths must be finite and above 0"),
    "a strength without end": (put("data.0.weight", np.inf), "strengths must be finite and above 0"),
    "a strength too few": (become("data.0.weight", lambda a: a[:-1]), "weight must be 4 numbers of type float32"),
    "strengths of another type": (become("data.0.weight", lambda a: a.astype(float)), "weight must be 4 numbers"),
    "a time too many": (become("data.0.time", lambda a: np.append(a, a)), "time must be 4 numbers of type int64"),
    "times of another type": (become("data.0.time", lambda a: a.astype(float)), "time must be 4 numbers of type int64"),
    "strengths of ratings": (say(False, "domains", 0, "events"), "only events have strengths"),
}


@pytest.mark.parametrize("how", TIMED)
def test_times_and_strengths_of_a_forged_file_are_refused(how, tmp_path):
    log = {"user": [1, 1, 2, 3], "item": [7, 8, 7, 8], "time": [5, 6, 7, 8], "plays": [1, 2, 3, 4]}
    model = pclf.Popular().fit(pclf.Ratings.from_events({"shop": log}, time_col=True, weight_col=True))
    model.save(tmp_path / "m")
    kept = pclf.load(tmp_path / "m").data_["shop"]
    assert (kept.time.tolist(), kept.weight.tolist()) == ([5, 6, 7, 8], [1, 2, 3, 4])
    change, says = TIMED[how]
    forge(tmp_path / "m", change)
    with pytest.raises(ModelFileError, match=says):
        pclf.load(tmp_path / "m")
