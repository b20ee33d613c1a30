"""Damaged and hostile ratings: refused in words of one family, or read without losing a row."""

import ast
import builtins
import gzip
import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import pclf
from pclf.data import Ratings, Scale, Vocabulary, files
from pclf.errors import ArgumentError, DataError, MissingFileError, PclfError, UnknownNameError, brief, visible

ROWS = [(f"u{u}", f"i{i}", (u * i) % 5 + 1) for u in range(10) for i in range(6)]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def ratings(path, **options):
    return Ratings.from_files({"d": path}, **options)["d"]


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("where", ["user{},item,rating,note", "user,item,rating,note{0}{0}", "{}user,item,rating,note"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_no_row_is_lost_to_what_only_python_calls_the_end_of_a_line(tmp_path, odd, where, end):
    lines = [where.format(odd), *(f"{u},{i},{r},{odd}x" for u, i, r in ROWS)]
    d = ratings(write(tmp_path / "r.csv", end.join(lines) + end), user_col=where.format(odd).split(",")[0].strip())
    assert len(d) == 60
    assert d.ratings.tolist() == [r for *_, r in ROWS]


def test_rows_are_counted_twice(tmp_path, monkeypatch):
    path = write(tmp_path / "r.csv", "user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in ROWS))
    form = files.form_of(path, {"user_col": None, "item_col": None, "rating_col": None}, "utf-8")
    monkeypatch.setattr(files, "form_of", lambda *_: form._replace(blank=3))            # as if three lines were blank
    with pytest.raises(DataError, match="must have a row in each line; got 57 rows in 60 lines"):
        ratings(path)


@pytest.mark.parametrize("text", [
    "\ufeff\n\nuser,item,rating\n\n1,2,3\n\n\n4,5,6\n\n", " \n\t\nuser,item,rating\r\n1,2,3\r\n4,5,6",
    "1,2,3\r4,5,6", 'user,item,rating,note\n1,2,3,"two\nlines"\n4,5,6,\n',
])
def test_blank_lines_and_quoted_ones_are_no_rows(tmp_path, text):
    assert ratings(write(tmp_path / "r.csv", text)).users.ids == (1, 4)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "UTF8"])
def test_other_encodings_are_read_in_parts_of_any_size(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr(files, "BLOCK", 256)
    content = "user,item,rating\n" + "".join(f"{u}é,{i},{r}\n" for u, i, r in ROWS)
    d = ratings(write(tmp_path / "r.csv", content.encode(encoding)), encoding=encoding)
    assert (len(d), d.users.ids[1]) == (60, "u1é")


@pytest.mark.parametrize("encoding", ["hex", "rot13", "base64", "zlib", "undefined", "no\0name", "x" * 5000, ""])
def test_what_is_no_encoding_of_text_is_refused(tmp_path, encoding):
    path = write(tmp_path / "r.csv", "user,item,rating\n1,2,3\n")
    with pytest.raises(DataError, match="encoding must be a name that Python knows") as found:
        ratings(path, encoding=encoding)
    assert len(str(found.value)) < 400


def test_a_quote_that_swallows_lines_is_noticed(tmp_path):
    lines = ["user,item,rating", 'ann,"x,5', *(f"u{i},y,3" for i in range(50)), 'zoe,y",4', "eve,x,1"]
    with pytest.raises(DataError, match=r"items must not have ends of lines.*in line 2.*Is there a quote too many"):
        ratings(write(tmp_path / "r.csv", "\n".join(lines)))


@pytest.mark.parametrize("line", ["1:7:1193::5::978300760", "1::1193:5::5::1", "1::1193::5:0:1"])
def test_what_stands_between_two_colons_is_not_dropped(tmp_path, line):
    with pytest.raises(DataError, match="must be a whole table of text"):
        ratings(write(tmp_path / "r.dat", f"1::1193::5::978300760\n{line}\n"))


def test_titles_may_have_separators_of_their_own(tmp_path):
    path = write(tmp_path / "movies.dat", "1::Alien :: the film::Horror\n2::Heat::Crime\n3::a::b::c::Drama\n\n")
    assert files.read_titles(path, "utf-8") == {1: "Alien :: the film", 2: "Heat", 3: "a::b::c"}
    path.write_text("1::Alien::Horror\n3::Jaws::Horror\n2::Heat\n")
    with pytest.raises(DataError, match="must have 3 fields in each line; got 2 in line 3"):
        files.read_titles(path, "utf-8")


def test_a_small_file_does_not_grow_in_memory(tmp_path):
    with gzip.open(tmp_path / "t.dat.gz", "wb") as file:                       # 200 MB in 200 kB, one line
        file.write(b"1::Alien::Horror\n2::")
        for _ in range(200):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(DataError, match=f"a line must have at most {files.BLOCK:,} characters"):
        files.read_titles(tmp_path / "t.dat.gz", "utf-8")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


DAMAGED = [
    ("r.csv", "user,item,rating\n1,2," + "9" * 5_000_000 + "x\n"),
    ("r.csv", "user,item,rating\n" + "a" * 5_000_000 + ",1,2\n" + "a" * 5_000_000 + ",1,2\n"),
    ("r.csv", "user,item,rating\n" + "1," * 500_000 + "1\n"),
    ("r.csv", "user,item," + "r" * 60_000 + "\n1,2,3\n"),
    ("r.csv", "user,item,rating\n\x1b]8;;http://x\x07,1,bad\x1b[31m\n"),
    ("r.csv.gz", gzip.compress(b"user,item,rating\n1,2,3\n" * 1000)[:-20]), ("r.csv.gz", b"\x1f\x8b\x08\0\0\0"),
    ("r.csv.bz2", b"BZh9garbage"), ("r.csv.zst", b"\x28\xb5\x2f\xfd\x04\xff"), ("r.parquet", b"PAR1PAR1"),
    ("r.parquet", b""), ("r.csv", b"\0" * 1000), ("r.csv", b"\xff\xfe\0"), ("r.csv", 'user,item,rating\n1,2,"'),
    ("r.csv", "user,item,rating\n1,2,1_0\n"), ("r.csv", "user,item,rating\n1,2,٣\n"),
    ("r.csv", "user,item,rating\n1,2,1e999\n"), ("r.csv", "user,item,rating\n1,2,0x5\n"), ("r.csv", "::::"),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_a_short_error_of_the_family(tmp_path, name, content):
    with pytest.raises(DataError) as found:
        ratings(write(tmp_path / name, content))
    assert len(str(found.value)) < 1500
    assert visible(str(found.value)) == str(found.value)


def test_columns_that_are_no_ids_are_an_error_of_the_family(tmp_path):
    for user in (pa.array([[1], [2]]), pa.array([{"a": 1}, {"a": 2}]), pa.array([None, None])):
        parquet.write_table(pa.table({"user": user, "item": [1, 2], "rating": [1, 2]}), tmp_path / "r.parquet")
        with pytest.raises(DataError):
            ratings(tmp_path / "r.parquet")


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_places_that_are_no_files_are_said_to_be_so(tmp_path):
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="regular file"):
        ratings(tmp_path / "r.csv")
    for path in ("~nobody-of-this-name/r.csv", tmp_path / "x" / "r.csv", "a\0b.csv"):
        with pytest.raises(MissingFileError, match="unknown file"):
            ratings(path)


@pytest.mark.parametrize(("values", "shown"), [
    ([1e-7, 2e-7, 5e-7], "1e-07 to 5e-07 by 1e-07"), ([1e9 + 1, 1e9 + 2, 1e9 + 5], "1000000001 to 1000000005 by 1"),
    ([1e9, 1e9 + 0.5, 1e9 + 2], "1000000000 to 1000000002 by 0.5"), ([0.1, 0.2, 0.1 * 3], "0.1 to 0.3 by 0.1"),
    ([1e15, 1e15 + 1, 1e15 + 4], "1000000000000000 to 1000000000000004 by 1"),
    (np.array([1.2, 3.7, 1.3], np.float32), "1.2 to 3.7 by 0.1"),
    (np.array([100.1, 100.2, 100.4], np.float32), "100.1 to 100.4 by 0.1"),
])
def test_ratings_of_any_size_keep_their_digits(tmp_path, values, shown):
    scale = Scale.infer(values)
    assert str(scale) == shown
    np.testing.assert_allclose(scale.nearest(values), np.asarray(values, float), rtol=1e-7)
    text = "user,item,rating\n" + "".join(f"{i},1,{float(v)!r}\n" for i, v in enumerate(values))
    assert ratings(write(tmp_path / "r.csv", text)).scale.low == scale.low


def test_ids_that_look_alike_are_named_as_such():
    one, two = "caf\u00e9", "cafe\u0301"
    with pytest.raises(UnknownNameError, match=rf"'{two}' \(NFD\): did you mean '{one}' \(NFC\)"):
        Vocabulary([one, "tea"]).code(two, "item")
    with pytest.warns(UserWarning, match=rf"items '{one}' \(NFC\) and '{two}' \(NFD\) look alike and count as two"):
        Ratings.from_arrays({"d": ([1, 2, 3], [one, two, "tea"], [1, 2, 3])})


@pytest.mark.parametrize("name", ["a\x00b", "a\x1b[31m", "x\ud800", "a\nb", "\ufffe", "\u202etxt"])
def test_names_of_domains_are_text(name):
    with pytest.raises(DataError, match="name of a domain must be text without control characters"):
        Ratings.from_arrays({name: ([1], [1], [1])})


def test_titles_are_shown_not_obeyed(tmp_path):
    rng = np.random.default_rng(0)
    titles = {i: f"\x1b[31m \x9b2J \ud800 \u202e {i}" for i in range(8)}
    data = Ratings.from_arrays({"films": (np.repeat(np.arange(12), 8), np.tile(np.arange(8), 12),
                                          rng.integers(1, 6, 96))}, titles={"films": titles})
    model = pclf.PCLF.paper(n_user_clusters=2, n_common_clusters=2, n_specific_clusters=2, max_iter=2).fit(data)
    model.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert r"\x1b[31m" in page
    assert visible(page) == page
    model.save(tmp_path / "m")
    words = [sys.executable, "-m", "pclf", "recommend", str(tmp_path / "m"), "-d", "films", "--user", "3", "--n", "2"]
    for more in ([], ["--json"], ["--explain"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONIOENCODING": "utf-8"})
        assert done.returncode == 0, done.stderr
        assert visible(done.stdout + done.stderr) == done.stdout + done.stderr


def test_messages_show_a_value_briefly_and_harmlessly():
    assert brief("a\x1b[31mb") == r"'a\x1b[31mb'"
    assert brief("x" * 5_000_000) == f"'{'x' * 120}'... (5,000,000 characters)"
    assert visible("a\tb\nc\x07\u202e\ud800") == "a\tb\nc\\x07\\u202e\\ud800"
    with pytest.raises(UnknownNameError) as found:
        Vocabulary(["y" * 1_000_000, "z"]).code("x" * 1_000_000)
    assert len(str(found.value)) < 800


def test_one_family_for_what_is_raised_on_purpose(tmp_path):
    from pclf import datasets, report
    from pclf.cli import tables

    for call in (lambda: ratings(tmp_path / "none.csv"), lambda: datasets.load("demo", file="x"),
                 lambda: report.write(pclf.Bias(), tmp_path), lambda: tables.check(tmp_path / "x.xls"),
                 lambda: tables.check(tmp_path / "none" / "x.csv")):
        with pytest.raises(PclfError):
            call()


# Errors of another family that Python or a parser asks for by their type: of modules, Ctrl-C, JSON, pydantic, zip.
ASKED_FOR = {("__init__.py", "AttributeError"), ("models/__init__.py", "AttributeError"), ("door.py", "ValueError"),
             ("cli/__init__.py", "KeyboardInterrupt"), ("cli/commands.py", "KeyboardInterrupt"),
             ("evaluate/compare.py", "KeyboardInterrupt"), ("service/answers.py", "ValueError"),
             ("datasets/_fetch.py", "zipfile.BadZipFile")}


def test_no_line_raises_an_error_of_python_where_the_family_has_one():
    root, found = Path(pclf.__file__).parent, set()
    for file in root.rglob("*.py"):
        raised = [node.exc for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Raise)]
        names = {ast.unparse(exc.func if isinstance(exc, ast.Call) else exc) for exc in raised if exc is not None}
        found |= {(file.relative_to(root).as_posix(), name) for name in names
                  if (hasattr(builtins, name) or re.fullmatch(r"\w+\.\w+", name)) and name != "typer.BadParameter"}
    assert found == ASKED_FOR


@pytest.mark.parametrize("call", [
    lambda m: m.recommend("films", "u1", n=2.5), lambda m: m.recommend("films", "u1", n="3"),
    lambda m: m.fold_in({"films": {"i1": "much"}}), lambda m: m.fit(m.data_, random_state="x"),
    lambda m: m.fit(m.data_, random_state=-1), lambda m: m.fit(m.data_, n_threads="all"),
    lambda m: pclf.EASE("x").fit(m.data_), lambda m: pclf.Popular().fit(m.data_).predict("films", "u1", "i1"),
    lambda m: pclf.PCLF(2, betas=("x",)).fit(m.data_), lambda m: pclf.PCLF(2, user_prior=np.inf).fit(m.data_),
    lambda m: pclf.PCLF(2, tol=np.nan).fit(m.data_), lambda m: pclf.PCLF(2, hyper={"sweeps": "x"}).fit(m.data_),
    lambda m: pclf.PCLF(2, hyper={"sweeps": -1}).fit(m.data_), lambda m: pclf.PCLF(2, hyper=3).fit(m.data_),
    lambda m: pclf.PCLF(2, bridges=3).fit(m.data_),
])
def test_settings_and_arguments_that_cannot_be_are_errors_of_the_family(call):
    user, item, rating = zip(*ROWS, strict=True)
    data = Ratings.from_arrays({"films": (user, item, rating)})
    model = pclf.PCLF.paper(n_user_clusters=2, n_common_clusters=2, n_specific_clusters=2, max_iter=2).fit(data)
    with pytest.raises(ArgumentError):
        call(model)


@pytest.mark.skipif(os.name == "nt", reason="users of Unix")
def test_a_user_without_a_name_or_a_home_can_work(tmp_path):
    write(tmp_path / "r.csv", "user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in ROWS))
    code = "import pwd; pwd.getpwuid = {}.__getitem__; from pclf.cli import main; main()"      # as for an unknown uid
    bare = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "PCLF_DATA")}
    for words, status in ((["datasets"], 0), (["doctor"], 0), (["fit", "d=r.csv", "--out", "m", "--model", "Bias"], 0),
                          (["fit", "ml-100k", "--out", "m"], 1)):
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True,
                              check=False, env=bare)
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert "no home folder" in done.stderr


def test_pclf_data_of_nobody_is_one_line(tmp_path):
    done = subprocess.run([sys.executable, "-m", "pclf", "datasets"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PCLF_DATA": "~nobody-of-this-name"})
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "PCLF_DATA must be a folder; got '~nobody-of-this-name'" in done.stderr


def test_a_diagonal_of_a_million_is_read_in_seconds():
    n, start = 1_000_000, time.perf_counter()
    data = Ratings.from_arrays({"d": (np.arange(n), np.arange(n), np.arange(n) % 5 + 1)})
    assert (data.n_users, data.n_items, len(data)) == (n, n, n)
    assert time.perf_counter() - start < 20
