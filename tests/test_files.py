"""Files: CSV, TSV, .dat and Parquet give the ratings that arrays give."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from pclf.data import Ratings, Scale, files
from pclf.errors import DataError


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::"])
@pytest.mark.parametrize("header", [True, False])
def test_text_is_read_with_any_separator_with_or_without_names(tmp_path, separator, header):
    lines = ["ann 7 1 100", "ben 7 5 90", "ann -3 3 80", "eve 9 4 70"]
    lines = ["userId movieId rating timestamp"] * header + lines
    path = write(tmp_path / "r.dat", "\n".join(lines).replace(" ", separator))
    made = Ratings.from_files({"films": path})["films"]
    assert (made.users.ids, made.items.ids) == (("ann", "ben", "eve"), (7, -3, 9))
    assert (made.user.tolist(), made.item.tolist()) == ([0, 1, 0, 2], [0, 0, 1, 2])
    assert made.ratings.tolist() == [1, 5, 3, 4]


def test_packed_files_are_read(tmp_path):
    text = "user,item,rating\nann,7,1\nben,7,5\nann,-3,3\neve,9,4\n"
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(text.encode()))
    expected = Ratings.from_arrays({"films": (["ann", "ben", "ann", "eve"], [7, 7, -3, 9], [1, 5, 3, 4])})
    assert Ratings.from_files({"films": tmp_path / "r.csv.gz"}).fingerprint == expected.fingerprint


def test_a_file_is_the_same_in_many_blocks_as_in_one(tmp_path, monkeypatch):
    rng, n = np.random.default_rng(0), 20_000
    pair = rng.permutation(500 * 900)[:n]
    columns = pair // 900, pair % 900, rng.integers(1, 11, n) / 2
    table = pa.table(dict(zip(["user_id", "item_id", "rating"], columns, strict=True)))
    csv.write_csv(table, tmp_path / "r.csv")
    parquet.write_table(table, tmp_path / "r.parquet", row_group_size=3000)
    monkeypatch.setattr(files, "BLOCK", 10_000)
    monkeypatch.setattr(files, "BATCH", 1000)
    expected = Ratings.from_arrays({"d": columns})
    for name in ("r.csv", "r.parquet"):
        made = Ratings.from_files({"d": tmp_path / name})
        assert made.fingerprint == expected.fingerprint
        assert made["d"].users == expected["d"].users
        assert made["d"].items.kind == "int"


def test_ids_are_numbers_only_where_all_are_written_as_numbers(tmp_path):
    path = write(tmp_path / "r.csv", "user,isbn,rating\n1,0007,1\n02,7,2\n3,7X,3\n")
    made = Ratings.from_files({"books": path})
    assert made["books"].items.ids == ("0007", "7", "7X")
    assert made["books"].users.ids == ("1", "02", "3")


def test_quotes_and_blanks_around_values_are_not_part_of_them(tmp_path):
    path = write(tmp_path / "r.csv", '"User-ID";"ISBN" ;"Book-Rating"\n"1";" a;b";"8"\n 1; c ; 9\n1;a;10\n')
    made = Ratings.from_files({"books": path})
    assert made["books"].items.ids == ("a;b", "c", "a")
    assert made["books"].ratings.tolist() == [8, 9, 10]


def test_a_file_in_another_encoding_is_read_when_it_is_named(tmp_path):
    path = write(tmp_path / "r.csv", "user,item,rating\nZoë,1,1\n", "latin-1")
    with pytest.raises(DataError, match=r"Pass encoding=.*'latin-1'"):
        Ratings.from_files({"d": path})
    assert Ratings.from_files({"d": path}, encoding="latin-1")["d"].users.ids == ("Zoë",)


def test_parquet_keeps_the_types_of_ids(tmp_path):
    users = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["8", "unused", "7"]))
    table = pa.table({"user": users, "item": pa.array([1, 2], pa.uint8()),
                      "rating": pa.array([1, 2], pa.float32())})
    parquet.write_table(table, tmp_path / "r.parquet")
    made = Ratings.from_files({"d": tmp_path / "r.parquet"})
    assert (made["d"].users.ids, made["d"].items.ids) == (("7", "8"), (1, 2))


@pytest.mark.parametrize(("name", "text", "message"), [
    ("r.csv", "user,item,rating\n1,1,5\n2,,4\n", "item ids must not be missing; got none in line 3"),
    ("r.csv", "user,item,rating\n1,1,5\n2,1,\n", "ratings must not be missing; got none in line 3"),
    ("r.csv", "user,item,rating\n1,1,5\n2,1,good\n", "finite numbers; got 'good' in line 3"),
    ("r.csv", "user,item,rating\n1,1,5\n2,1\n", "must be a whole table of text; .*Expected 3 columns, got 2"),
    ("r.csv", "user,item,rating\n", "must have at least one row of data; got none"),
    ("r.csv", "", "must have at least one row of data; it is empty"),
    ("r.csv", "user,item,rating,rating\n1,1,5,4\n", "column names must differ; got 'rating' 2 times"),
    ("r.csv", "user,itm,rating\n1,2,3\n", "column like 'itemid'; did you mean 'itm'?"),
    ("r.xls", "user,item,rating\n1,1,5\n", r"suffix must be one of .csv, .*; got '.xls'"),
    ("r.parquet", "user,item,rating\n1,1,5\n", "must be a whole Parquet file"),
])
def test_bad_files_are_refused(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        Ratings.from_files({"d": write(tmp_path / name, text)})


def test_column_names_need_a_line_of_names(tmp_path):
    path = write(tmp_path / "r.csv", "1,1,5\n")
    with pytest.raises(DataError, match=r"must name its columns in the first line .*user_col='who'"):
        Ratings.from_files({"d": path}, user_col="who")


def test_a_file_that_is_not_there_is_guessed(tmp_path):
    write(tmp_path / "ratings.csv", "")
    with pytest.raises(FileNotFoundError, match=r"'rating.csv' in .*: did you mean 'ratings.csv'"):
        Ratings.from_files({"d": tmp_path / "rating.csv"})


@pytest.mark.parametrize(("path", "n_users", "n_items", "n_ratings"), [
    ("ml-1m/ratings.dat", 6040, 3706, 1_000_209), ("ml-100k/u.data", 943, 1682, 100_000),
])
def test_the_files_of_movielens_are_read_as_they_are(data_dir, path, n_users, n_items, n_ratings):
    if not (data_dir / path).is_file():
        pytest.skip(f"no {path}")
    d = Ratings.from_files({"films": data_dir / path})["films"]
    assert (d.n_users, d.n_items, len(d)) == (n_users, n_items, n_ratings)
    assert d.scale == Scale.between(1, 5)


def test_decimal_commas_are_decimal_points(tmp_path):
    (tmp_path / "r.csv").write_text("user;item;rating\n1;1;4,0\n1;2;3,5\n2;1;5\n")
    assert Ratings.from_files({"r": tmp_path / "r.csv"})["r"].ratings.tolist() == [4.0, 3.5, 5.0]


def test_commas_that_may_be_between_thousands_are_refused(tmp_path):
    (tmp_path / "r.csv").write_text("user;item;rating\n1;1;1,234\n1;2;3,5\n")
    with pytest.raises(DataError, match="finite numbers; got '1,234' in line 2"):
        Ratings.from_files({"r": tmp_path / "r.csv"})
