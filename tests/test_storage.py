"""Model files: whole, safe, and refused when they are not what they say."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pclf
from pclf import storage
from pclf.errors import ModelFileError


def tiny(users=(1, 1, 2, 3), items=("x", "y", "x", "y"), **options):
    return pclf.Ratings.from_arrays({"a": (list(users), list(items), [1, 5, 3, 4])}, scale=(1, 5), **options)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model"
    pclf.FMM.paper(n_user_clusters=2, n_item_clusters=2).fit(tiny()).save(path)
    return path


@pytest.mark.parametrize("users", [
    [1, 1, 2, 3], ["a", "a", "ü", ""], [-5, -5, 0, 2**40], [("a", 1), ("a", 1), ("b", 2), ("b", 3)],
    [1, 1, "one", 2.5], [True, True, None, "x"],
], ids=["int", "str", "large", "tuple", "mixed", "odd"])
def test_ids_of_any_kind_come_back(users, tmp_path):
    data = pclf.Ratings.from_arrays({"a": (users, ["x", "y", "x", "y"], [1, 5, 3, 4])}, scale=(1, 5)) \
        if None not in users else tiny([True, True, "n", "x"])
    model = pclf.FMM.paper(n_user_clusters=2, n_item_clusters=2).fit(data)
    model.save(tmp_path / "m")
    loaded = pclf.load(tmp_path / "m")
    assert list(loaded.data_["a"].users.ids) == list(data["a"].users.ids)
    assert [type(i) for i in loaded.data_["a"].users.ids] == [type(i) for i in data["a"].users.ids]


def test_ids_that_json_cannot_hold_are_refused_with_the_way_out(tmp_path):
    data = tiny([frozenset({1}), frozenset({1}), frozenset({2}), frozenset({3})])
    model = pclf.FMM.paper(n_user_clusters=2, n_item_clusters=2).fit(data)
    with pytest.raises(ModelFileError, match=r"ids must be strings, numbers.*frozenset"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_crash_while_saving_leaves_the_old_file_whole(saved, monkeypatch):
    before = saved.read_bytes()
    model = pclf.load(saved)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("keep", [0, 4, 100, -10])
def test_a_file_that_was_cut_off_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match="not a model file, or was cut off"):
        pclf.load(saved)


def test_a_file_that_was_altered_is_refused(saved):
    content = bytearray(saved.read_bytes())
    content[-3] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ModelFileError, match="was altered"):
        pclf.load(saved)


def test_a_file_of_another_format_version_says_which(saved, monkeypatch):
    monkeypatch.setattr(storage, "FORMAT", 99)
    with pytest.raises(ModelFileError, match="model format 6; this version of pclf reads format 99"):
        pclf.load(saved)


@pytest.mark.parametrize(("name", "says"), [("absent", "no model file at"), (".", "is a folder")])
def test_no_file_and_a_folder_are_said_to_be_so(tmp_path, name, says):
    with pytest.raises(ModelFileError, match=says):
        pclf.load(tmp_path / name)


def test_other_files_are_no_models(tmp_path):
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(ModelFileError, match="not a model file"):
        pclf.load(tmp_path / "text")
    save_file({"x": np.zeros(3)}, tmp_path / "tensors")
    with pytest.raises(ModelFileError, match="no pclf model"):
        pclf.load(tmp_path / "tensors")


def test_the_manifest_is_readable_json_and_the_arrays_plain_tensors(saved):
    manifest, arrays = storage.read(saved)
    assert manifest["kind"] == "FMM"
    assert manifest["settings"]["n_user_clusters"] == 2
    assert manifest["domains"][0]["scale"] == [1, 2, 3, 4, 5]
    assert set(load_file(saved)) == set(arrays)


def test_titles_sharing_and_scales_come_back(tmp_path):
    arrays = {"a": ([1, 2], ["x", "y"], [1, 10]), "b": ([1, 3], ["x", "z"], [1, 5])}
    data = pclf.Ratings.from_arrays(arrays, scale={"a": (1, 10), "b": (1, 5)}, shared_users=True, shared_items=True,
                                    titles={"a": {"x": "The X"}})
    pclf.RMGM.paper(n_user_clusters=2, n_item_clusters=2).fit(data).save(tmp_path / "m")
    loaded = pclf.load(tmp_path / "m").data_
    assert loaded.fingerprint == data.fingerprint
    assert (loaded.n_users, loaded.n_items) == (3, 3)
    assert loaded["a"].title(0) == "The X"


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
def test_a_file_is_as_private_as_the_one_it_replaces_or_as_new_files_are(tmp_path):
    from pclf.atomic import replacing

    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("x")
    old.chmod(0o600)
    link.symlink_to(old)
    before = os.umask(0o077)
    try:
        for path in (old, link, tmp_path / "new"):
            with replacing(path) as part:
                part.write_text("y")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("old", "new")] == [0o600, 0o600]
    assert link.is_symlink()
    assert old.read_text() == "y"


def test_a_model_of_a_class_of_ones_own_is_loaded(tmp_path):
    class ByHand(pclf.FMM):
        pass

    path = tmp_path / "model"
    ByHand.paper(n_user_clusters=2, n_item_clusters=2).fit(tiny()).save(path)
    assert type(pclf.load(path)) is ByHand
