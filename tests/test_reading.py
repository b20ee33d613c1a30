"""Reading what people have: folders, patterns, blanks, UTF-16, ragged rows, counts, titles from files, settings."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import pclf
from pclf.data.splits import Split
from pclf.errors import DataError, MissingFileError

HEAD = "user_id,item_id,rating\n"


def run(*words, cwd, **env):
    return subprocess.run([sys.executable, "-m", "pclf", *map(str, words)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **env})


@pytest.fixture
def logs(tmp_path):
    """Ratings of three days in a folder, as a job leaves them: with a marker, and one day a folder deeper."""
    (tmp_path / "logs" / "older").mkdir(parents=True)
    for name, rows in (("logs/ratings-1", "1,a,1\n2,a,5\n"), ("logs/ratings-2", "1,b,4\n3,a,2\n"),
                       ("logs/older/ratings-0", "4,c,3\n")):
        (tmp_path / f"{name}.csv").write_text(HEAD + rows)
    (tmp_path / "logs" / "_SUCCESS").write_text("")
    (tmp_path / "logs" / ".hidden.csv").write_text("nothing")
    return tmp_path


def test_a_folder_is_all_its_files_and_a_pattern_those_it_finds(logs):
    whole = pclf.Ratings.from_files({"films": logs / "logs"})["films"]
    assert (len(whole), whole.users.ids, whole.items.ids) == (5, (4, 1, 2, 3), ("c", "a", "b"))
    some = pclf.Ratings.from_files({"films": str(logs / "logs" / "ratings-*.csv")})["films"]
    assert len(some) == 4
    done = run("fit", "films=logs/", "--model", "Bias", "--out", "m", "--json", cwd=logs)
    assert json.loads(done.stdout)["ratings"] == 5, done.stderr


def test_files_of_a_folder_may_have_their_columns_in_another_order(logs):
    (logs / "logs" / "ratings-3.csv").write_text("rating;user_id;item_id\n5;9;x\n")
    found = pclf.Ratings.from_files({"films": logs / "logs"})["films"]
    assert found.users.ids[-1] == 9
    assert found.ratings[-1] == 5


def test_folders_of_parquet_are_read_too(tmp_path):
    for i in range(3):
        pd.DataFrame({"user_id": [i], "item_id": ["x"], "rating": [i + 1]}).to_parquet(tmp_path / f"{i}.parquet")
    assert len(pclf.Ratings.from_files({"films": tmp_path})["films"]) == 3
    (tmp_path / "x.csv").write_text(HEAD)
    with pytest.raises(DataError, match="files of text or Parquet files; got both"):
        pclf.Ratings.from_files({"films": tmp_path})


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(DataError, match=r"must have files ending in \.csv"):
        pclf.Ratings.from_files({"films": tmp_path})
    with pytest.raises(MissingFileError, match=r"no file is called like .*x-\*\.csv"):
        pclf.Ratings.from_files({"films": tmp_path / "x-*.csv"})


def test_one_blank_separates_where_nothing_else_does(tmp_path):
    (tmp_path / "a.txt").write_text("1 17 5\n2 17 3\n")
    assert len(pclf.Ratings.from_files({"films": tmp_path / "a.txt"})["films"]) == 2
    (tmp_path / "b.txt").write_text("user item rating\nAnn Heat 5\nBen Heat 3\n")
    assert pclf.Ratings.from_files({"films": tmp_path / "b.txt"})["films"].users.ids == ("Ann", "Ben")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_says_so_itself(tmp_path, encoding):
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "a.csv").write_bytes((mark + HEAD + "1,Amélie,5\n2,Amélie,3\n").encode(encoding))
    assert pclf.Ratings.from_files({"films": tmp_path / "a.csv"})["films"].items.ids == ("Amélie",)


def test_ragged_rows_are_left_out_as_far_as_is_allowed(tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "1,x,3\n2,x\n3,y,4,5\n4,y,4\n")
    with pytest.warns(UserWarning, match=r"2 rows with too many or too few fields are left out. .*'2,x' has 2 fields"):
        assert len(pclf.Ratings.from_files({"films": tmp_path / "a.csv"}, skip_bad=2)["films"]) == 2
    for n in (0, 1):
        with pytest.raises(DataError, match=r"Expected 3 columns, got .* Pass skip_bad="):
            pclf.Ratings.from_files({"films": tmp_path / "a.csv"}, skip_bad=n)
    done = run("fit", "films=a.csv", "--skip-bad", 2, "--model", "Bias", "--out", "m", cwd=tmp_path)
    assert done.returncode == 0
    assert "2 rows with too many" in done.stderr
    assert "Pass --skip-bad" in run("fit", "films=a.csv", "--out", "m", cwd=tmp_path).stderr


def test_counts_in_place_of_ratings_point_to_events(tmp_path):
    rng = np.random.default_rng(0)
    plays = np.minimum(rng.geometric(0.5, 400), 60)
    plays[:2] = 60
    user, item = np.divmod(rng.choice(4000, 400, replace=False), 50)
    with pytest.warns(UserWarning, match=r"look like counts.*--events, with --weight-col"):
        pclf.Ratings.from_arrays({"songs": (user, item, plays)})
    with pytest.raises(DataError, match=r"different ones from .* these are events: --events"):
        pclf.Ratings.from_arrays({"songs": (user, item, rng.integers(1, 5000, 400))})
    (tmp_path / "plays.csv").write_text("user,song,plays\n1,2,3\n")
    done = run("fit", "songs=plays.csv", "--out", "m", cwd=tmp_path)
    assert "If 'plays' says how often or how long, these are events" in done.stderr
    assert "--events --weight-col plays" in done.stderr


def test_ratings_are_not_taken_for_counts():
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.choice(4000, 400, replace=False), 50)
    pclf.Ratings.from_arrays({"jokes": (user, item, np.where(rng.random(400) < 0.5, 1, rng.integers(1, 101, 400)))})
    pclf.Ratings.from_arrays({"books": (user, item, np.where(rng.random(400) < 0.6, 0, rng.integers(0, 11, 400)))})


def test_titles_come_from_files_by_the_column_of_the_ratings(tmp_path):
    (tmp_path / "r.csv").write_text("who,game,stars\n1,g1,3\n2,g2,4\n")
    (tmp_path / "t.csv").write_text("game;Game Name\ng1;Go\ng2;Chess\n")
    found = pclf.Ratings.from_files({"games": tmp_path / "r.csv"}, user_col="who", item_col="game",
                                    titles={"games": tmp_path / "t.csv"})
    assert found["games"].titles == ("Go", "Chess")
    (tmp_path / "t.csv").write_text("sku;Game Name\ng1;Go\ng2;Chess\n")
    (tmp_path / "r.csv").write_text("who,sku,stars\n1,g1,3\n2,g2,4\n")
    done = run("fit", "games=r.csv", "--titles", "games=t.csv", "--user-col", "who", "--item-col", "sku", "--model",
               "Bias", "--out", "m", cwd=tmp_path)
    assert "item 'Go'" in done.stderr


def test_settings_may_be_tables(tmp_path):
    (tmp_path / "r.csv").write_text(HEAD + "1,a,3\n2,b,4\n")
    (tmp_path / "t.csv").write_text("item_id,title\na,Aha\nb,Bah\n")
    (tmp_path / "s.toml").write_text('[fit]\nmodel = "Bias"\nout = "m"\n[fit.files]\nfilms = "r.csv"\n'
                                     '[fit.titles]\nfilms = "t.csv"\n[fit.scale]\nfilms = [1, 5]\n'
                                     '[evaluate]\nrepeats = 1\n')
    done = run("fit", "films=r.csv", "--config", "s.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "Bias"
    assert ("1 to 5 by 1" in done.stderr, "Aha" in done.stderr) == (True, True)


def test_a_split_is_made_of_any_whole_numbers():
    data = pclf.Ratings.from_arrays({"films": ([1, 2, 3], [1, 1, 1], [1, 5, 3])}, scale=(1, 5))
    for part in ([1, 2, 1], np.array([1, 2, 1]), np.array([1, 2, 1], np.int8)):
        split = Split.of(data, {"films": part})
        assert (len(split.train), len(split.test)) == (2, 1)
    for part in ([1, 2, -1], [1.0, 2.0, 1.0], ["a", "b", "c"]):
        with pytest.raises(DataError, match=r"must be 0 \(left out\), 1 \(train\) or 2 \(test\)"):
            Split.of(data, {"films": part})


def test_a_compiler_that_is_switched_off_is_named_in_one_line(tmp_path):
    (tmp_path / "r.csv").write_text(HEAD + "".join(f"{u},{i},{1 + (u + i) % 5}\n" for u in range(9) for i in range(9)))
    done = run("fit", "films=r.csv", "--out", "m", "--user-clusters", 2, "--max-iter", 2, cwd=tmp_path,
               NUMBA_DISABLE_JIT="1")
    assert done.returncode == 1
    assert "NUMBA_DISABLE_JIT=1 switches numba's compiler off. Unset it." in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_ratings_that_are_all_alike_are_learned_too():
    """A scale of one value: nothing to tell apart, and nothing to divide by."""
    data = pclf.Ratings.from_arrays({"films": ([1, 1, 2, 3], [1, 2, 1, 2], [5, 5, 5, 5])})
    model = pclf.PCLF(2, 2, 2, max_iter=2, n_restarts=1).fit(data)
    assert model.predict("films", 1, 1).tolist() == [5]
    assert len(model.recommend("films", 2, n=1)) == 1
