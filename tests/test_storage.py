"""Model files: whole, safe, and refused when they are not what they say."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pclf
from pclf import storage
from pclf.atomic import check_target, replacing
from pclf.errors import ModelFileError, OutputError


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


@pytest.mark.parametrize("piece", [1, 3, 7])
def test_an_array_that_is_read_in_pieces_is_whole(saved, monkeypatch, piece):
    _, whole = storage.read(saved)
    monkeypatch.setattr(storage, "PIECE", piece)
    _, found = storage.read(saved)
    assert found.keys() == whole.keys()
    assert max(array.size for array in whole.values()) > piece
    for name, array in whole.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


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
def test_domains_that_were_fitted_apart_come_back_with_as_many_factors_as_each_has(tmp_path, monkeypatch):
    """A large catalogue supports more factors than a small one, and nothing ties the two."""
    monkeypatch.setattr("pclf.models.learner.MANY", 1_000)
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.permutation(2_400)[:1_500], 40)
    rating = rng.integers(1, 6, 1_500)
    data = pclf.Ratings.from_arrays({"large": (user, item, rating), "small": (user[:300], item[:300], rating[:300])},
                                    scale=(1, 5))
    model = pclf.PCLF(2, 2, 2, max_iter=2, n_restarts=1, lists=False).fit(data)
    sizes = {name: part.domains[name].item_factors.shape[1] for name, part in model.factors_.items()}
    assert sizes["large"] > sizes["small"]
    model.save(tmp_path / "m")
    assert np.array_equal(pclf.load(tmp_path / "m").predict("small", 1, [0, 1]), model.predict("small", 1, [0, 1]))


def test_a_file_is_as_private_as_the_one_it_replaces_or_as_new_files_are(tmp_path):
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


def refuses(path, says, **options):
    model = pclf.Bias().fit(tiny())
    with pytest.raises(OutputError, match=says):
        model.save(path, **options)


@pytest.mark.skipif(os.name == "nt", reason="devices of Unix")
def test_only_regular_files_are_replaced_even_by_force(tmp_path):
    import socket

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, says in (("pipe", "is a pipe"), ("loop", "leads to itself"), ("null", "is a device"),
                           ("socket", "is a socket"), (".", "is a folder")):
            refuses(tmp_path / name, says)
            refuses(tmp_path / name, says, force=True)
    refuses("/dev/null", "/dev/null is a device")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop", "null", "pipe", "socket"]


def test_a_file_that_is_no_model_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,2,3\n")
    refuses(path, "ratings.csv is there already and is not a model: it is not replaced.*force")
    assert path.read_text() == "user,item,rating\n1,2,3\n"
    model = pclf.Bias().fit(tiny())
    model.save(path, force=True)
    model.save(path)                        # it is one now
    path.write_bytes(path.read_bytes()[:500])
    model.save(path)                        # as is one that was cut off
    path.write_bytes(b"")
    model.save(path)                        # nothing is lost with an empty file
    assert pclf.load(path)


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_saved_model_has_the_mode_that_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        pclf.Bias().fit(tiny()).save(tmp_path / "m")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt", reason="processes of Unix")
def test_what_a_killed_save_left_is_swept_by_the_next_of_the_same_file(tmp_path):
    code = ("import os, sys; from pathlib import Path; from pclf.atomic import replacing\n"
            "with replacing(Path(sys.argv[1])) as part: part.write_text('half'); print(os.getpid(), flush=True); "
            "input()")
    killed, waiting = (subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "m")], stdout=subprocess.PIPE,
                                        stdin=subprocess.PIPE) for _ in range(2))
    for process in (killed, waiting):
        assert process.stdout.readline()
    killed.kill()
    killed.communicate()
    (tmp_path / ".other.part-00000000-1-aa").write_text("of another file")
    elsewhere = tmp_path / ".m.part-00000000-1-aa"
    elsewhere.write_text("of another machine")
    assert len(list(tmp_path.iterdir())) == 4
    model = pclf.Bias().fit(tiny())
    model.save(tmp_path / "m")
    left = {p.name for p in tmp_path.iterdir()}
    assert len(left) == 4                                             # m, the one that still runs, and the two others
    assert any(f"-{waiting.pid}-" in name for name in left)
    assert not any(f"-{killed.pid}-" in name for name in left)
    os.utime(elsewhere, (0, 0))
    model.save(tmp_path / "m")
    assert not elsewhere.exists()
    waiting.communicate(b"\n")
    assert (tmp_path / "m").read_text() == "half"                     # it was the last to finish


def test_a_disk_that_is_full_while_saving_is_an_error_of_the_family(tmp_path):
    code = ("import pclf, resource, sys; from pclf.errors import OutputError\n"
            "model = pclf.Bias().fit(pclf.Ratings.from_arrays({'a': (range(9), [1] * 9, [1, 2, 3] * 3)}))\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "try: model.save(sys.argv[1])\n"
            "except OutputError as error: print(error)")
    words = [sys.executable, "-c", code, str(tmp_path / "m")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "m could not be written" in done.stdout, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_nobody_may_write_into_is_found_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match=f"model cannot be written: nothing may be written into {tmp_path}"):
        check_target(tmp_path / "new" / "model")


def test_a_file_that_cannot_be_made_is_named_and_not_its_part(tmp_path, monkeypatch):
    def refused(self, **options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(OutputError, match=r"model cannot be written: Permission denied\.$"), \
            replacing(tmp_path / "model"):
        pass
