"""The catalogue, the parsers on real and on hand-written files, the downloads that go wrong, the demo."""

import contextlib
import errno
import hashlib
import io
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pclf import datasets
from pclf.datasets import DataWarning, _fetch, _table, demo
from pclf.errors import DataError, DownloadError, UnknownNameError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder of its own and no PCLF_DATA: nothing is here, nothing outside is touched."""
    monkeypatch.delenv("PCLF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "pclf"


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def triples(data, domain):
    frame = data.to_frame(domain)
    return [(u, i, float(r)) for u, i, r in zip(*(frame[c].tolist() for c in frame), strict=True)]


# The catalogue


def test_importing_the_catalogue_imports_no_heavy_library():
    code = ("import sys, pclf.errors; before = set(sys.modules)\n"
            "import pclf.datasets as d; d.names(); d.info('ml-1m')\n"
            "print(*({'scipy', 'pyarrow', 'rich', 'numba'} & (set(sys.modules) - before)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(Path(datasets.__file__).parents[2])})
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("spelling", ["ml-100k", "ML-100K", "ml_100k", " Ml 100k "])
def test_case_and_underscores_do_not_matter_in_names(spelling):
    assert datasets.info(spelling).name == "ml-100k"


def test_an_unknown_name_gets_the_closest_one():
    with pytest.raises(UnknownNameError, match=r"data set 'ml-10k': did you mean 'ml-100k'"):
        datasets.load("ml-10k")


@pytest.mark.parametrize("name", datasets.names())
def test_every_entry_says_what_a_user_must_know(name):
    entry = datasets.info(name)
    assert entry.licence
    assert entry.citation
    assert entry.domains
    assert entry.n_ratings > entry.n_users > 0
    if entry.archive:
        assert entry.archive.checksum.startswith("sha256:")
        assert len(entry.archive.checksum) == len("sha256:") + 64
        assert entry.url.startswith("https://")
    else:
        assert entry.note or entry.folder is None


def test_here_tells_whether_the_files_are_here(home):
    assert datasets.info("demo").here
    assert not datasets.info("ml-100k").here
    write(home / "ml-100k" / "u.data", "1\t1\t5\t0\n")
    assert datasets.info("ml-100k").here


def test_pclf_data_comes_before_the_cache(home, tmp_path, monkeypatch):
    write(home / "ml-100k" / "u.data", "1\t1\t5\t0\n")
    write(tmp_path / "mine" / "ml-100k" / "u.data", "7\t8\t2\t0\n")
    monkeypatch.setenv("PCLF_DATA", str(tmp_path / "mine"))
    assert triples(datasets.load("ml-100k"), "movies") == [(7, 8, 2.0)]


@pytest.mark.parametrize("name", ["eachmovie", "book-crossing", "book-crossing-500", "douban", "amazon",
                                  "movietweetings", "ml-latest-small"])
def test_what_cannot_be_downloaded_says_where_to_put_it(home, name):
    entry = datasets.info(name)
    with pytest.raises(DownloadError) as caught:
        datasets.load(name)
    assert str(home / entry.folder) in str(caught.value)
    assert entry.files[0][0] in str(caught.value)
    assert "PCLF_DATA" in str(caught.value)


def test_a_chosen_file_that_is_not_there_names_the_places_looked_at(home):
    with pytest.raises(DownloadError, match=r"no file 'other.mat' here; looked at other.mat, .*eachmovie"):
        datasets.load("eachmovie", file="other.mat")


def test_a_pair_of_files_must_be_a_pair(home):
    with pytest.raises(DataError, match=r"file must name 2 file\(s\) for 'douban'"):
        datasets.load("douban", file="book_ratings.dat")


# Real files: counts as published


@pytest.mark.parametrize(("name", "counts"), [
    ("ml-100k", {"movies": (943, 1682, 100_000)}),
    ("ml-1m", {"movies": (6040, 3706, 1_000_209)}),
    ("ml-latest-small", {"movies": (610, 9724, 100_836)}),
    ("movietweetings", {"movies": (16_554, 10_506, 100_000)}),
    ("eachmovie", {"movies": (922, 1322, 316_261)}),
    ("book-crossing", {"books": (43_044, 8589, 163_670)}),
    ("book-crossing-500", {"books": (500, 1000, 15_148)}),
    ("goodbooks", {"books": (2672, 9990, 298_176)}),
    ("douban", {"books": (2110, 6777, 96_041), "music": (1672, 5567, 69_709)}),
    ("amazon", {"movies": (1381, 1338, 62_084), "books": (1426, 723, 31_504)}),   # without 12,584 that stand twice
])
def test_real_files_have_the_known_counts(data_dir, monkeypatch, name, counts):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not datasets.info(name).here:
        pytest.skip(f"{name} is not in {data_dir}")
    data = datasets.load(name, download=False)   # a DataWarning would be an error
    assert {d.name: (d.n_users, d.n_items, d.n_ratings) for d in data.domains.values()} == counts


@pytest.mark.parametrize(("name", "item", "title"), [
    ("ml-100k", 1, "Toy Story (1995)"),
    ("ml-100k", 543, "Misérables, Les (1995)"),
    ("ml-1m", 2858, "American Beauty (1999)"),
    ("ml-latest-small", 11, "American President, The (1995)"),
    ("movietweetings", 2844, "Fantômas - À l'ombre de la guillotine (1913)"),
    ("goodbooks", 2, "Harry Potter and the Sorcerer's Stone (Harry Potter, #1)"),
])
def test_real_titles_are_those_of_the_items(data_dir, monkeypatch, name, item, title):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not datasets.info(name).here:
        pytest.skip(f"{name} is not in {data_dir}")
    domain = next(iter(datasets.load(name, download=False).domains.values()))
    assert domain.title(domain.items.code(item)) == title


@pytest.mark.parametrize(("name", "item", "genres", "year"), [
    ("ml-100k", 1, {"Animation", "Children's", "Comedy"}, 1995),
    ("ml-1m", 2858, {"Comedy", "Drama"}, 1999),
    ("ml-latest-small", 1, {"Adventure", "Animation", "Children", "Comedy", "Fantasy"}, 1995),
    ("movietweetings", 4972, {"Drama", "History", "Romance", "War"}, 1915),
    ("goodbooks", 7, None, 1937),
])
def test_real_items_have_their_genres_and_years(data_dir, monkeypatch, name, item, genres, year):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not datasets.info(name).here:
        pytest.skip(f"{name} is not in {data_dir}")
    data = datasets.load(name, download=False)
    (domain,) = data.domains.values()
    facts = data.attributes.facts(domain.name, domain.items.code(item))
    assert data.attributes.known(domain.name).mean() > 0.99
    first, *_, last = next(c.knots for c in data.attributes.columns if c.name == "year")
    assert facts["year"] == pytest.approx(min(max(year, first), last), abs=0.01)
    assert set(facts["genre"]) == genres if genres else {"fantasy", "classics", "fiction"} <= set(facts["genre"])


def test_the_same_films_have_the_same_ids_by_imdb(data_dir, monkeypatch):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not (datasets.info("ml-latest-small").here and datasets.info("movietweetings").here):
        pytest.skip(f"ml-latest-small or movietweetings is not in {data_dir}")
    here, there = datasets.load("ml-latest-small", imdb=True)["movies"], datasets.load("movietweetings")["movies"]
    both = set(here.items.ids) & set(there.items.ids)
    assert len(both) == 5191
    titles = [[d.title(d.items.code(film)) for d in (here, there)] for film in both]
    assert np.mean([a[-6:] == b[-6:] for a, b in titles]) > 0.95       # the years in them; names are in two orders


def test_amazon_knows_who_is_in_both_domains(data_dir, monkeypatch):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not datasets.info("amazon").here:
        pytest.skip(f"amazon is not in {data_dir}")
    assert datasets.load("amazon").n_users == 1381 + 1426 - 1329
    assert datasets.load("amazon", shared_users=False).n_users == 1381 + 1426


def test_douban_knows_who_is_in_both_domains(data_dir, monkeypatch):
    monkeypatch.setenv("PCLF_DATA", str(data_dir))
    if not datasets.info("douban").here:
        pytest.skip(f"douban is not in {data_dir}")
    shared = datasets.load("douban")
    assert shared.n_users == 2110 + 1672 - 1566
    assert datasets.load("douban", shared_users=False).n_users == 2110 + 1672


# Original formats, written by hand


FOUR = "1::1193::5::978300760\n1::661::3::978302109\n2::1193::1::978298413\n"
THREE = "1::1193::5\n1::661::3\n2::1193::1\n"


@pytest.mark.parametrize("text", [FOUR, THREE, THREE.replace("\n", "\r\n"), THREE.rstrip()])
def test_movielens_1m_is_read_with_and_without_times(tmp_path, text):
    path = write(tmp_path / "ratings.dat", text)
    write(tmp_path / "movies.dat", "661::Père: der Film::Drama|War\n1193::Heat (1995)::Crime\n", "latin-1")
    data = datasets.load("ml-1m", file=path)
    assert triples(data, "movies") == [(1, 1193, 5.0), (1, 661, 3.0), (2, 1193, 1.0)]
    assert data["movies"].titles == ("Heat (1995)", "Père: der Film")


def test_movielens_100k_is_read_with_its_titles(tmp_path):
    path = write(tmp_path / "u.data", "196\t242\t3\t881250949\n22\t377\t1\t878887116\n")
    films = '242|Kolya "1996"|24-Jan-1997||http://x|0|1\n377|Café|1995||http://x|1|0\n'
    write(tmp_path / "u.item", films, "latin-1")
    data = datasets.load("ml-100k", file=path)
    assert triples(data, "movies") == [(196, 242, 3.0), (22, 377, 1.0)]
    assert data["movies"].titles == ('Kolya "1996"', "Café")


def test_an_item_without_a_title_is_shown_by_its_id(tmp_path):
    data = datasets.load("ml-100k", file=write(tmp_path / "u.data", "196\t242\t3\t881250949\n"))
    assert data["movies"].title(0) == "242"


def test_broken_lines_are_left_out_counted_and_located(tmp_path):
    broken = ["3::10", "4::10::4::1::2", "", "x::10::3", "5::10::9", "6::::3", "7::10::nan"]
    lines = ["1::10::5", "2::10::4", *broken, "8::10::2", *(f"{u}::11::3" for u in range(10, 30))]
    path = write(tmp_path / "ratings.dat", "\n".join(lines) + "\n\n")
    with pytest.warns(DataWarning, match=r"7 broken of 30 lines; the first is line 3: '3::10'") as caught:
        data = datasets.load("ml-1m", file=path)
    (warning,) = (w.message for w in caught)
    assert (warning.path, warning.count, warning.first_line) == (path, 7, 3)
    assert sorted(data["movies"].users.ids) == [1, 2, 8, *range(10, 30)]


@pytest.mark.parametrize(("bad", "line"), [("1::x::5", 1), ("1::2", 2), ("1::2::77", 4), ("", 3)])
def test_the_first_broken_line_is_numbered_from_one(tmp_path, bad, line):
    lines = [f"{u}::10::3" for u in range(5)]
    lines.insert(line - 1, bad)
    with pytest.warns(DataWarning) as caught:
        datasets.load("ml-1m", file=write(tmp_path / "ratings.dat", "\n".join(lines)))
    assert caught[0].message.first_line == line


@pytest.mark.parametrize("text", ["<html><body>404</body></html>\n", "1,2,3\n4,5,6\n", "a::b::c\n" * 5])
def test_another_kind_of_file_is_an_error_that_shows_it(tmp_path, text):
    with pytest.raises(DataError, match=r"must have lines of user_id::item_id::rating") as caught:
        datasets.load("ml-1m", file=write(tmp_path / "ratings.dat", text))
    assert text.splitlines()[0] in str(caught.value)


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="is empty"):
        datasets.load("ml-1m", file=write(tmp_path / "ratings.dat", "\n \n"))


VOTES = ("1\t1\t0\t.5\t3/12/96 0:00:00\n"
         "1\t2\t.2\t1\t3/12/96 0:00:00\n"
         "2\t1\t0.8\t1\t5/1/97 10:11:12\n"
         "2\t2\t1\t1\t5/1/97 10:11:13\n")


@pytest.mark.parametrize(("name", "films"), [("Vote.txt", "Movie.txt"), ("vote.txt", "movie.txt")])
def test_eachmovie_scores_become_one_to_five_stars(home, name, films):
    """score * 5 + 1 is 1, 2, 5, 6, and 6 is read as 5."""
    write(home / "eachmovie" / name, VOTES)
    write(home / "eachmovie" / films, "1\tToy Story\thttp://x\tOld\n2\tJumanji\t\tOld\n")
    data = datasets.load("eachmovie")
    assert triples(data, "movies") == [(1, 1, 1.0), (1, 2, 2.0), (2, 1, 5.0), (2, 2, 5.0)]
    assert data["movies"].titles == ("Toy Story", "Jumanji")
    assert data["movies"].scale.values == (1, 2, 3, 4, 5)


def test_eachmovie_can_keep_its_six_stars(tmp_path):
    data = datasets.load("eachmovie", file=write(tmp_path / "Vote.txt", VOTES), stars=6)
    assert data["movies"].ratings.tolist() == [1, 2, 5, 6]
    assert len(data["movies"].scale) == 6


def test_eachmovie_scores_off_the_steps_are_broken(tmp_path):
    path = write(tmp_path / "Vote.txt", VOTES + "3\t1\t.5\t1\t5/1/97\n3\t2\t2\t1\t5/1/97\n")
    with pytest.warns(DataWarning, match=r"left out 2 broken of 6 lines; the first is line 5"):
        assert datasets.load("eachmovie", file=path).n_ratings == 4


def test_the_original_votes_are_preferred_to_the_sub_matrix(home):
    from scipy.io import savemat

    write(home / "eachmovie" / "Vote.txt", VOTES)
    savemat(home / "eachmovie" / "eachmovie.mat", {"eachmovie": np.array([[0, 5], [1, 0]], np.uint8)})
    assert datasets.load("eachmovie").n_ratings == 4
    assert triples(datasets.load("eachmovie", file="eachmovie.mat"), "movies") == [(1, 2, 5.0), (2, 1, 1.0)]


def test_a_matlab_file_that_is_none_or_another_is_an_error(tmp_path):
    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"other": np.eye(2)})
    with pytest.raises(DataError, match="must have the variable eachmovie; got other"):
        datasets.load("eachmovie", file=tmp_path / "a.mat")
    write(tmp_path / "b.mat", "not a matrix, but long enough to be looked at " * 9)
    with pytest.raises(DataError, match="cannot be read as a MATLAB file"):
        datasets.load("eachmovie", file=tmp_path / "b.mat")


BX = ('"User-ID";"ISBN";"Book-Rating"\r\n'
      '"276725";"034545104X";"0"\r\n'
      '"276726";"0155061224";"5"\r\n'
      '"276729";"052165615X";"10"\r\n'
      '"276729";"\\"0521795028\\"";"6"\r\n')


def test_book_crossing_leaves_out_the_implicit_zeros(tmp_path):
    data = datasets.load("book-crossing", file=write(tmp_path / "BX-Book-Ratings.csv", BX))
    assert triples(data, "books") == [(276726, "0155061224", 5.0), (276729, "052165615X", 10.0),
                                      (276729, "0521795028", 6.0)]
    assert data["books"].scale.values == tuple(range(1, 11))


def test_book_crossing_keeps_the_zeros_when_asked(tmp_path):
    data = datasets.load("book-crossing", file=write(tmp_path / "r.csv", BX), keep_implicit=True)
    assert triples(data, "books")[0] == (276725, "034545104X", 0.0)
    assert data["books"].scale.values == tuple(range(11))


def test_a_broken_quote_costs_its_own_line_only(tmp_path):
    broken = '"11676;"0156;"7"\r\n"11677";"\xba3404921";"8"\r\n"11678";"01;56";"9"\r\n"11679";"0157";"8;"\r\n'
    good = '"5";"0160";"7"\r\n"6";"0160";"7"\r\n'
    path = write(tmp_path / "BX-Book-Ratings.csv", BX + broken + good, "latin-1")
    with pytest.warns(DataWarning, match=r"left out 2 broken of 10 lines; the first is line 6") as caught:
        data = datasets.load("book-crossing", file=path)
    assert caught[0].message.count == 2
    assert triples(data, "books")[3:] == [(11677, "\xba3404921", 8.0), (11678, "01;56", 9.0),
                                          (5, "0160", 7.0), (6, "0160", 7.0)]


def test_book_titles_come_from_the_original_dump(tmp_path):
    path = write(tmp_path / "BX-Book-Ratings.csv", BX)
    book = '"0155061224";"Rites; M\xe4n &amp; \\"Me\\"";"J"\n'
    write(tmp_path / "BX-Books.csv", '"ISBN";"Book-Title";"Book-Author"\n' + book, "latin-1")
    assert datasets.load("book-crossing", file=path)["books"].titles[0] == 'Rites; Män & "Me"'


def test_the_popular_part_of_book_crossing_is_plain_csv(tmp_path):
    path = write(tmp_path / "popular.csv", "User-ID,ISBN,Book-Rating\n8,0002005018,5\n9,0452264464,6\n")
    data = datasets.load("book-crossing", file=path)
    assert triples(data, "books") == [(8, "0002005018", 5.0), (9, "0452264464", 6.0)]


def test_ten_values_can_be_drawn_together_to_five_stars(tmp_path):
    data = datasets.load("book-crossing", file=write(tmp_path / "r.csv", BX), five_stars=True)
    assert data["books"].ratings == pytest.approx([1 + 4 * 4 / 9, 5, 1 + 5 * 4 / 9])
    assert len(data["books"].scale) == 10


def test_the_book_crossing_matrix_gives_back_one_to_ten(tmp_path):
    from scipy.io import savemat
    from scipy.sparse import csc_array

    values = np.array([[1, 0, 10], [0, 7, 2.0]])
    savemat(tmp_path / "m.mat", {"bx_sparse": csc_array(np.where(values > 0, 1 + (values - 1) * 4 / 9, 0))})
    data = datasets.load("book-crossing-500", file=tmp_path / "m.mat")
    assert triples(data, "books") == [(1, 1, 1.0), (1, 3, 10.0), (2, 2, 7.0), (2, 3, 2.0)]
    savemat(tmp_path / "m.mat", {"bx_sparse": csc_array(values)})
    with pytest.raises(DataError, match=r"must be 1 \+ \(x - 1\) \* 4/9"):
        datasets.load("book-crossing-500", file=tmp_path / "m.mat")


def test_goodbooks_reads_columns_by_name_and_quoted_titles(tmp_path):
    path = write(tmp_path / "ratings.csv", "book_id,user_id,rating\n3,1,5\n1,2,4\n")
    write(tmp_path / "books.csv", 'book_id,title,authors\n1,"Games, The ""First""",A\n3,Émile,"B,\nC"\n')
    data = datasets.load("goodbooks", file=path)
    assert triples(data, "books") == [(1, 3, 5.0), (2, 1, 4.0)]
    assert data["books"].titles == ("Émile", 'Games, The "First"')


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = write(tmp_path / "ratings.csv", "user,book_id,rating\n1,2,3\n")
    with pytest.raises(DataError, match=r"user_id not among: user, book_id, rating"):
        datasets.load("goodbooks", file=path)


def test_douban_reads_both_layouts(home):
    for name in datasets.info("douban").files:
        write(home / "douban" / name[1], "1\t5\t4\n2\t5\t3.0\n")
    assert datasets.load("douban").n_users == 2
    write(home / "douban" / "book_ratings.dat", "1\t5\t4\n3\t5\t3\n")
    assert datasets.load("douban").n_users == 3


def rated(films, separator, head=""):
    """Two people rate all of these."""
    return head + "".join(f"{u}{separator}{film}{separator}{1 + film % 5}\n" for u in (1, 2) for film in films)


GENRES = ["Crime|Drama", "Drama|Film-Noir", "War", "Crime|War"]
YEARS = [1950, 1970, 1990, 1970]


def facts(data, film):
    (domain,) = data.domains.values()
    found = data.attributes.facts(domain.name, domain.items.code(film))
    return set(found.get("genre", ())), found.get("year")


def test_movielens_1m_has_genres_and_the_years_of_titles(tmp_path):
    path = write(tmp_path / "ratings.dat", rated(range(1, 17), "::"))
    films = [f"{i + 1}::Père {i} (La) ({YEARS[i % 4]})::{GENRES[i % 4]}\n" for i in range(15)]
    write(tmp_path / "movies.dat", "".join([*films, "16::Film::\n"]), "latin-1")
    data = datasets.load("ml-1m", file=path)
    assert facts(data, 1) == ({"Crime", "Drama"}, 1950)
    assert facts(data, 4) == ({"Crime", "War"}, 1970)
    assert facts(data, 16) == (set(), None)


def test_movielens_100k_has_genres_by_flags_and_the_years_of_dates(tmp_path):
    from pclf.datasets.movielens import GENRES as NAMES

    path = write(tmp_path / "u.data", rated(range(1, 17), "\t"))
    films = []
    for i in range(16):
        flags = ["1" if genre in GENRES[i % 4].split("|") else "0" for genre in NAMES]
        films.append("|".join([str(i + 1), "Café", f"01-Jan-{YEARS[i % 4]}", "", "http://x", "0", *flags]) + "\n")
    films[15] = "|".join(["16", "unknown", "", "", "", "1", *["0"] * 18]) + "\n"
    write(tmp_path / "u.item", "".join(films), "latin-1")
    data = datasets.load("ml-100k", file=path)
    assert data["movies"].titles[0] == "Café"
    assert facts(data, 2) == ({"Drama", "Film-Noir"}, 1970)
    assert facts(data, 16) == (set(), None)


def test_movielens_latest_is_csv_with_half_stars_and_imdb_numbers(tmp_path):
    path = write(tmp_path / "ratings.csv", rated(range(1, 17), ",", "userId,movieId,rating,timestamp\n").replace(
        "\n", ",0\n").replace("timestamp,0", "timestamp") + "3,1,0.5,0\n")
    films = [f'{i + 1},"Film, The {i} ({YEARS[i % 4]}–)",{GENRES[i % 4]}\n' for i in range(15)]
    write(tmp_path / "movies.csv", "".join(["movieId,title,genres\n", *films, "16,Film,(no genres listed)\n"]))
    write(tmp_path / "links.csv", "movieId,imdbId,tmdbId\n" + "".join(f"{i},0{i + 1000},7\n" for i in range(1, 17)))
    data = datasets.load("ml-latest-small", file=path)
    assert data["movies"].scale.values == tuple(i / 2 for i in range(1, 11))
    assert facts(data, 3) == ({"War"}, 1990)
    assert facts(data, 16) == (set(), None)
    renamed = datasets.load("ml-latest-small", file=path, imdb=True)
    assert facts(renamed, 1003) == ({"War"}, 1990)
    assert renamed["movies"].title(0) == "Film, The 0 (1950–)"
    write(tmp_path / "links.csv", "movieId,imdbId,tmdbId\n1,0111,7\n")
    with pytest.raises(DataError, match=r"links.csv must have every film to read them with imdb=True; film 2 is not"):
        datasets.load("ml-latest-small", file=path, imdb=True)
    with pytest.raises(ValueError, match="ml-1m has no numbers of IMDb"):
        datasets.load("ml-1m", file=write(tmp_path / "ratings.dat", THREE), imdb=True)


def test_movietweetings_is_read_on_its_eleven_values(tmp_path):
    ratings = [f"{u}::00{i}::{(u + i) % 11}::13650\n" for u in (1, 2) for i in range(16)]
    films = [f"00{i}::Fantômas {i} ({YEARS[i % 4]})::{GENRES[i % 4]}\n" for i in range(16)]
    path = write(tmp_path / "ratings.dat", "".join(ratings))
    write(tmp_path / "movies.dat", "".join(films))
    data = datasets.load("movietweetings", file=path)
    assert data["movies"].scale.values == tuple(range(11))
    assert data["movies"].title(7) == "Fantômas 7 (1970)"
    assert facts(data, 7) == ({"Crime", "War"}, 1970)


def test_goodbooks_has_shelves_and_years(tmp_path):
    path = write(tmp_path / "ratings.csv", rated(range(1, 17), ",", "user_id,book_id,rating\n"))
    shelves = [f'{i + 1},{i},"{GENRES[i % 4].lower().replace("|", ",")}"\n' for i in range(14)]
    write(tmp_path / "book_genres.csv", "".join(["book_id,goodreads_book_id,genres\n", *shelves]))
    write(tmp_path / "books.csv", "book_id,title,original_publication_year\n" + "".join(
        f'{i + 1},"Émile, {i}",{YEARS[i % 4]}.0\n' for i in range(15)))
    data = datasets.load("goodbooks", file=path)
    assert facts(data, 4) == ({"crime", "war"}, 1970)
    assert facts(data, 15) == (set(), 1990)                 # the shelves of this one are not here
    assert not data.attributes.known("books")[-1]
    (tmp_path / "books.csv").unlink()
    assert facts(datasets.load("goodbooks", file=path), 4) == ({"crime", "war"}, None)


def test_attributes_of_ones_own_come_before_those_of_the_catalogue(tmp_path):
    path = write(tmp_path / "ratings.dat", rated(range(1, 17), "::"))
    write(tmp_path / "movies.dat", "".join(f"{i + 1}::Film (1950)::{GENRES[i % 4]}\n" for i in range(16)))
    own = {"movies": {"item_id": range(1, 17), "shelf": ["left", "right"] * 8}}
    assert {f.column for f in datasets.load("ml-1m", file=path, attributes=own).attributes.features} == {"shelf"}
    assert datasets.load("ml-1m", file=path, attributes=None).attributes is None


def test_amazon_reads_both_files_and_keeps_the_later_of_two_ratings(home):
    head = "user_id\titem_id\trating\n"
    write(home / "amazon" / "movies.inter", head + "A1\t0767\t5.0\nA2\t0767\t3.0\nA1\t0767\t2.0\n")
    write(home / "amazon" / "books.inter", head + "A1\t0001\t1.0\nA3\t0001\t4.0\n")
    data = datasets.load("amazon")
    assert triples(data, "movies") == [("A2", "0767", 3.0), ("A1", "0767", 2.0)]
    assert data.n_users == 3
    with pytest.raises(DataError, match="must rate an item once"):
        datasets.load("amazon", duplicates="error")


def test_a_million_lines_are_read_in_seconds(tmp_path):
    """About 0.4 s on an idle core; the bound allows for a busy machine and still tells a Python loop."""

    rng = np.random.default_rng(0)
    columns = [rng.integers(1, high, 1_000_000).tolist() for high in (6041, 3953, 6)]
    text = "\n".join(map("%d::%d::%d".__mod__, zip(*columns, strict=True)))
    path = write(tmp_path / "ratings.dat", text)
    start = time.process_time()
    table = _table.read(path, {"user_id": "int", "item_id": "int", "rating": "float"}, separator="::",
                        scale=range(1, 6))
    assert table.num_rows == 1_000_000
    assert time.process_time() - start < 3


# Downloads


GOOD = {"ml-100k/u.data": b"1\t1\t5\t0\n2\t1\t4\t0\n", "ml-100k/u.item": b"1|Heat|x\n",
        "ml-100k/README": b"r"}
OLD = b"1|An old film|x\n"


def zipped(files: dict[str, bytes], link: str | None = None) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        if link:
            entry = zipfile.ZipInfo(link)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, "/etc/passwd")
    return held.getvalue()


@pytest.fixture
def serve(home, monkeypatch):
    """serve(body) makes ml-100k come from a server here that sends `body`; an old u.item is there already."""
    servers = []

    def start(body: bytes, *, status: int = 200, promise: int | None = None, **changes):
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                if promise != 0:
                    self.send_header("Content-Length", str(promise or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        put_up(f"http://127.0.0.1:{server.server_port}/ml-100k.zip", body, **changes)

    def put_up(url: str, body: bytes = b"", **changes):
        archive = _fetch.Archive(url, f"sha256:{hashlib.sha256(body).hexdigest()}", max_bytes=10_000,
                                 max_unpacked=10_000)
        entry = replace(datasets.info("ml-100k"), archive=replace(archive, **changes))
        monkeypatch.setitem(datasets._CATALOGUE, "ml-100k", entry)
        write(home / "ml-100k" / "u.item", OLD.decode())

    start.put_up = put_up
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def assert_nothing_changed(home):
    assert [p.name for p in home.rglob("*") if p.is_file()] == ["u.item"]
    assert (home / "ml-100k" / "u.item").read_bytes() == OLD
    assert not list(home.glob(".fetch-*"))


def refused(home, match):
    with pytest.raises(DownloadError, match=match) as caught:
        datasets.load("ml-100k")
    assert_nothing_changed(home)
    assert f"into {home / 'ml-100k'}, or set PCLF_DATA" in str(caught.value)


def test_a_download_is_unpacked_and_then_found(home, serve, capsys):
    serve(zipped(GOOD))
    data = datasets.load("ml-100k")
    assert triples(data, "movies") == [(1, 1, 5.0), (2, 1, 4.0)]
    assert data["movies"].titles == ("Heat",)
    out, err = capsys.readouterr()
    assert out == ""
    assert "downloading http://127.0.0.1" in err
    serve.put_up("http://127.0.0.1:1/ml-100k.zip")   # a closed port: a second load must not ask it
    assert datasets.load("ml-100k").n_ratings == 2


def test_progress_is_a_bar_on_a_terminal(home, serve, monkeypatch, capsys):
    serve(zipped(GOOD))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    datasets.load("ml-100k")
    out, err = capsys.readouterr()
    assert out == ""
    assert "ml-100k.zip" in err


def test_a_wrong_checksum_is_refused(home, serve):
    serve(zipped(GOOD), checksum="sha256:" + "0" * 64)
    refused(home, r"must have the sha256 checksum 0000.*; got [0-9a-f]{64}")


def test_an_md5_checksum_is_understood(home, serve):
    body = zipped(GOOD)
    serve(body, checksum="md5:" + hashlib.md5(body, usedforsecurity=False).hexdigest())
    assert datasets.load("ml-100k").n_ratings == 2


def test_a_download_that_breaks_off_is_refused(home, serve):
    body = zipped(GOOD)
    serve(body[:100], promise=len(body))
    refused(home, r"broke off after 100 of \d+ bytes")


@pytest.mark.parametrize("cut", [10, 100, -30])
def test_a_truncated_archive_is_refused(home, serve, cut):
    serve(zipped(GOOD)[:cut])
    refused(home, "damaged or cut off")


def test_an_archive_with_damaged_contents_is_refused(home, serve):
    body = bytearray(zipped({"ml-100k/u.data": bytes(range(256)) * 4}))
    body[60:70] = b"x" * 10
    serve(bytes(body))
    refused(home, "damaged or cut off")


@pytest.mark.parametrize("name", ["../u.data", "a/../../u.data", "/etc/u.data", "C:/u.data", "..\\u.data"])
def test_names_that_lead_outside_are_refused(home, serve, name):
    serve(zipped({**GOOD, name: b"1\t1\t1\t0\n"}))
    refused(home, "must not name files outside its folder")


def test_links_are_refused(home, serve):
    serve(zipped(GOOD, link="ml-100k/u.info"))
    refused(home, r"must not have links; got 'ml-100k/u.info'")


def test_an_archive_without_the_file_is_refused(home, serve):
    serve(zipped({"other/data.csv": b"1"}))
    refused(home, r"must have the file u.data; got other/data.csv")


def test_the_file_nearest_the_top_is_taken(home, serve):
    serve(zipped({"a/samples/u.data": b"5\t5\t5\t0\n", "a/u.data": b"1\t1\t1\t0\n"}))
    assert triples(datasets.load("ml-100k"), "movies")[0][:2] == (1, 1)


@pytest.mark.parametrize("promise", [None, 0])
def test_more_bytes_than_allowed_are_refused(home, serve, promise):
    serve(b"x" * 20_000, promise=promise)
    refused(home, r"must have at most 10,000 bytes; got")


def test_an_archive_that_unpacks_to_too_much_is_refused(home, serve):
    serve(zipped({"ml-100k/u.data": b"0" * 1_000_000}))
    refused(home, r"must unpack to at most 10,000 bytes; got 1,000,000")


def test_an_answer_that_is_no_file_is_refused(home, serve):
    serve(b"gone", status=404)
    refused(home, "answered 404")


def test_no_network_says_where_to_put_the_file(home, serve):
    with socket.socket() as taken:   # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        serve.put_up(f"http://127.0.0.1:{taken.getsockname()[1]}/ml-100k.zip")
        refused(home, r"could not be reached .*is there a network\?.*Put u.data \(from http://127")


def test_download_false_never_asks(home, serve):
    serve.put_up("http://127.0.0.1:1/ml-100k.zip")
    with pytest.raises(DownloadError, match="not to be downloaded"):
        datasets.load("ml-100k", download=False)


@pytest.mark.parametrize("full_at", ["archive.zip", "u.data", "README"])
def test_a_full_disk_leaves_everything_as_it_was(home, serve, monkeypatch, full_at):
    serve(zipped(GOOD))
    true_open = Path.open

    def open_until_full(path, *args, **options):
        file = true_open(path, *args, **options)
        if path.name != full_at or "wb" not in args:
            return file
        file.close()
        return FullDisk()

    monkeypatch.setattr(Path, "open", open_until_full)
    refused(home, "could not be kept in .*: the disk is full. Make room there")


class FullDisk(io.RawIOBase):
    def write(self, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_cache_that_cannot_be_written_says_so(home, serve):
    serve(zipped(GOOD))
    (home / "ml-100k" / "u.item").unlink()
    (home / "ml-100k").rmdir()
    home.rmdir()
    write(home, "a file where the cache folder should be")
    with pytest.raises(DownloadError, match="could not be kept in"):
        datasets.load("ml-100k")


# The demo


def test_the_demo_is_the_one_in_the_catalogue():
    data, entry = datasets.load("demo"), datasets.info("demo")
    assert tuple(data.domains) == entry.domains == ("films", "music", "books")
    assert (data.n_ratings, data.n_users, data.n_items) == (entry.n_ratings, entry.n_users, entry.n_items)


def test_the_demo_repeats_for_a_seed_and_differs_for_another():
    first = datasets.load("demo", seed=3).fingerprint
    demo._world.cache_clear()
    assert datasets.load("demo", seed=3).fingerprint == first
    assert datasets.load("demo", seed=4).fingerprint != first


def test_demo_users_are_in_one_domain_only_and_books_are_sparse():
    data = datasets.load("demo")
    ids = [user for d in data.domains.values() for user in d.users.ids]
    assert len(set(ids)) == len(ids)
    density = {d.name: len(d) / d.n_users / d.n_items for d in data.domains.values()}
    assert density["books"] < density["music"] / 1.5
    assert all(np.bincount(d.user).min() >= demo.FEWEST for d in data.domains.values())


def test_demo_items_have_their_region_and_genre_as_attributes():
    data, truth = datasets.load("demo"), demo.truth()
    for name, domain in data.domains.items():
        for code, title in enumerate(domain.items.ids):
            assert data.attributes.facts(name, code) == {"region": truth.region_of[name][title],
                                                         "genre": truth.genre_of[name][title]}
    assert len(data.attributes.features) == len(demo.PLACES) + sum(map(len, demo.TITLES.values()))


def test_demo_files_are_read_with_their_attributes(tmp_path):
    from pclf import Ratings

    demo.write_files(tmp_path)
    data = Ratings.from_files(
        {name: tmp_path / f"{name}.csv" for name in ("movies", "books")},
        attributes={"movies": tmp_path / "movie_facts.csv", "books": tmp_path / "book_facts.csv"})
    number, title = (tmp_path / "book_titles.csv").read_text().splitlines()[5].split(",", 1)
    code = data["books"].items.code(int(number))
    assert data.attributes.facts("books", code)["region"] == demo.truth().region_of["books"][title.strip('"')]
    assert all(data.attributes.known(name).all() for name in data.domains)


def test_demo_titles_show_their_region_and_are_unique():
    truth = demo.truth()
    for domain, regions in truth.region_of.items():
        patterns = sum(map(len, demo.TITLES[domain].values()))
        assert len(regions) == len(truth.genre_of[domain]) == patterns * len(demo.PLACES)
        for title, region in regions.items():
            assert any(place in title for place in demo.PLACES[region])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("domain", ["films", "music", "books"])
def test_demo_ratings_follow_the_tastes_they_were_made_from(domain, seed):
    data, truth = datasets.load("demo", seed=seed), demo.truth(seed)
    rows = triples(data, domain)
    for names, of, tastes in ((truth.regions, truth.region_of, truth.region_tastes),
                              (truth.genres[domain], truth.genre_of, truth.genre_tastes)):
        taste = [tastes[domain][u][names.index(of[domain][i])] for u, i, _ in rows]
        assert 0.3 < np.corrcoef(taste, [r for *_, r in rows])[0, 1] < 0.8


def test_demo_ratings_use_the_whole_scale_and_lean_to_what_people_like():
    for domain in datasets.load("demo").domains.values():
        share = np.bincount(domain.value, minlength=5) / len(domain)
        assert share.min() > 0.01
        assert 3.2 < domain.ratings.mean() < 4


def test_the_demo_has_no_file_to_choose():
    with pytest.raises(TypeError, match="generated"):
        datasets.load("demo", file="x.csv")


@pytest.fixture
def speak(serve):
    """speak(lines) makes ml-100k come from a server that sends these bytes, a little at a time, as they are."""
    sockets = []

    def start(parts, pause=0.0):
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def answer():
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.recv(1000)
                    for part in parts:
                        client.sendall(part)
                        time.sleep(pause)

        threading.Thread(target=answer, daemon=True).start()
        serve.put_up(f"http://127.0.0.1:{server.getsockname()[1]}/ml-100k.zip", zipped(GOOD))

    yield start
    for server in sockets:
        server.close()


@pytest.mark.parametrize("length", ["many", "-5", "1e9", "9" * 5000, "1, 2"])
def test_a_length_that_is_no_number_is_not_believed(home, speak, length):
    speak([f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode(), zipped(GOOD)])
    try:
        assert len(datasets.load("ml-100k")["movies"]) == 2
    except DownloadError:
        assert_nothing_changed(home)


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_drips_is_left_in_the_end(home, speak, monkeypatch, begin):
    monkeypatch.setattr(_fetch, "PATIENCE", 0.5)
    speak([begin, *[b"x"] * 100], pause=0.05)
    start = time.monotonic()
    refused(home, r"too slow|no answer in")
    assert time.monotonic() - start < 3


def test_what_a_server_says_is_shown_not_obeyed(home, speak):
    speak([b"HTTP/1.1 500 \x1b[31mred \x9b2J\r\n\r\n"])
    refused(home, r"answered 500 \\x1b\[31mred")
