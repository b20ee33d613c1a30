"""Attributes: each column becomes the numbers it should, they follow the items wherever these go, and what is wrong is
said before anything is fitted."""

import math
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pclf import storage
from pclf.cli import arguments
from pclf.data import Attributes, Feature, Ratings, Split, given_n
from pclf.errors import DataError, UnknownNameError

N = 12   # items of each domain in most tests
FILMS = {
    "movie_id": list(range(N)),
    "genre": ["Horror", "crime|Horror", "romance", "crime"] * 3,
    "country": ["JP", " jp", "FR", "SE"] * 3,
    "colour": [True, False, True, True] * 3,
    "decade": [1970, 1980, 1990, 1970] * 3,
    "embedding": [[float(i), 1.0, -float(i)] for i in range(N)],
}
AS_FRAME = {
    "dict": dict,
    "pandas": lambda table: pytest.importorskip("pandas").DataFrame(table),
    "polars": lambda table: pytest.importorskip("polars").DataFrame(table),
    "pyarrow": pa.table,
}


def some_ratings(domains=("films",), ids=range(N), **options):
    """Everybody of three rates every item."""
    triple = [0, 1, 2] * len(ids), [i for i in ids for _ in range(3)], [1, 3, 5] * len(ids)
    return Ratings.from_arrays(dict.fromkeys(domains, triple), scale=(1, 5), **options)


def films(**columns):
    """Ratings whose items 0 to 11 have these attributes."""
    return some_ratings(attributes={"films": {"item_id": list(range(N)), **columns}}).attributes


def dense(attributes, domain="films"):
    return attributes.of(domain).toarray()


def column(attributes, name):
    return next(c for c in attributes.columns if c.name == name)


# What columns become


def test_a_category_is_an_indicator_and_neither_case_nor_blanks_matter():
    made = films(country=FILMS["country"])
    assert made.features == (("country", "JP"), ("country", "FR"), ("country", "SE"))
    assert dense(made)[:4].tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert dense(made).dtype == np.float32


@pytest.mark.parametrize("genre", [FILMS["genre"], [text.split("|") for text in FILMS["genre"]],
                                   [set(text.split("|")) for text in FILMS["genre"]]])
def test_several_values_have_length_one_together(genre):
    made = films(genre=genre)
    assert column(made, "genre").kind == "several"
    by_name = dict(zip((f.value.lower() for f in made.features), dense(made).T, strict=True))
    assert by_name["horror"][:3] == pytest.approx([1, math.sqrt(0.5), 0])
    assert by_name["crime"][:4] == pytest.approx([0, math.sqrt(0.5), 0, 1])
    assert np.linalg.norm(dense(made), axis=1) == pytest.approx(np.ones(N))


def test_a_value_named_twice_in_a_row_counts_once():
    made = films(genre=["drama|Drama", "drama|war", "war"] * 4)
    assert dense(made)[0].tolist() == [1, 0]


def test_a_text_with_a_rare_bar_is_one_category():
    made = some_ratings(ids=range(60), attributes={"films": {
        "item_id": range(60), "studio": ["A|B Films", *["Toho", "Gaumont"] * 29, "Toho"]}})
    assert column(made.attributes, "studio").kind == "category"


def test_few_numbers_are_knots_themselves_and_what_lies_between_belongs_to_both():
    made = films(decade=FILMS["decade"])
    assert [str(f) for f in made.features] == ["decade around 1970", "decade around 1980", "decade around 1990"]
    assert dense(made)[:3].tolist() == np.eye(3).tolist()
    assert made.encode([{"decade": 1974}]).toarray()[0] == pytest.approx([0.6, 0.4, 0])
    assert made.encode([{"decade": 1900}]).toarray()[0].tolist() == [1, 0, 0]


def test_many_numbers_have_six_knots_and_a_row_always_sums_to_one():
    years = np.random.default_rng(0).integers(1920, 2001, 300)
    made = some_ratings(ids=range(300), attributes={"films": {"item_id": range(300), "year": years}}).attributes
    knots = column(made, "year").knots
    assert len(knots) == 6
    assert np.all(np.diff(knots) > 0)
    assert dense(made).sum(axis=1) == pytest.approx(np.ones(300))
    inside = (years >= knots[0]) & (years <= knots[-1])
    assert (dense(made) @ knots)[inside] == pytest.approx(years[inside], rel=1e-5)   # float32


def test_knots_reach_back_where_most_numbers_are_recent():
    """90 % are of 1990 to 1999: plain quantiles would leave one knot for the fifty years before."""
    years = np.r_[np.tile(np.arange(1990, 2000), 45), np.arange(1940, 1990)]
    made = some_ratings(ids=range(500), attributes={"films": {"item_id": range(500), "year": years}}).attributes
    assert sum(knot < 1990 for knot in column(made, "year").knots) >= 3


def test_numbers_with_too_few_rows_for_knots_are_standardised():
    made = some_ratings(ids=range(5), attributes={"films": {"item_id": range(5), "pages": [1, 2, 3, 4, 5]}}).attributes
    assert made.features == (Feature("pages"),)
    assert dense(made)[:, 0] == pytest.approx((np.arange(5) - 2) / np.sqrt(2))


@pytest.mark.parametrize("values", [[True, False, None], [1, 0, None], ["yes", "No", None], ["true", "FALSE", ""],
                                    [1.0, 0.0, math.nan]])
def test_true_and_false_are_one_and_zero(values):
    made = films(colour=values * 4)
    assert column(made, "colour").kind == "yes or no"
    assert made.features == (Feature("colour"),)
    assert dense(made)[:3, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("make", [list, lambda rows: np.array(rows), lambda rows: [np.array(r) for r in rows]])
def test_a_vector_is_standardised_to_length_one_on_average(make):
    made = films(embedding=make(FILMS["embedding"]))
    assert column(made, "embedding").kind == "vector"
    assert made.features[2] == ("embedding", 2)
    found = dense(made)
    assert found.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-6)
    assert found.var(axis=0) == pytest.approx([1 / 3, 0, 1 / 3], rel=1e-5)


def test_text_that_reads_as_numbers_is_numbers_but_a_leading_zero_is_text():
    assert column(films(year=["1970", "1980", "1990", "1970"] * 3), "year").kind == "number"
    assert column(films(zip=["02139", "10001", "02139", "10001"] * 3), "zip").kind == "category"


def test_dates_are_their_years():
    dates = np.array(["1970-05-01", "1980-01-01", "1990-12-31", "1970-02-02"] * 3, "datetime64[D]")
    assert column(films(released=dates), "released").knots == (1970, 1980, 1990)


def test_missing_values_are_zeros_and_counted():
    made = films(country=["JP", None, "FR", ""] * 3, decade=[1970, math.nan, 1980, 1990] * 3,
                 embedding=[[1.0, 2.0], None, [2.0, 1.0], [0.0, 0.0]] * 3)
    assert not dense(made)[1].any()
    assert column(made, "country").found.endswith("; 6 missing")
    assert column(made, "decade").found.endswith("; 3 missing")
    assert column(made, "embedding").found.endswith("; 3 missing")


def test_categories_of_fewer_than_three_items_are_left_out_and_counted():
    made = films(country=["JP"] * 5 + ["FR"] * 3 + ["SE"] * 2 + ["NO", "FI"])
    assert made.features == (("country", "JP"), ("country", "FR"))
    assert "3 rarer left out" in column(made, "country").found


def test_at_most_500_categories_stay_the_most_frequent_ones():
    n = 2400
    tags = [f"t{i % 600}" for i in range(n)] + ["t599"] * 5
    made = some_ratings(ids=range(n + 5), attributes={"films": {"item_id": range(n + 5), "tag": tags}}).attributes
    assert len(made.features) == 500
    assert made.features[0] == ("tag", "t599")
    assert "100 rarer left out" in column(made, "tag").found


@pytest.mark.parametrize(("values", "why"), [
    ([None] * N, "it has no values"),
    (["JP"] * N, "it has one value everywhere (1 value: JP)"),
    ([7] * N, "it has one value everywhere (7 to 7)"),
    ([f"A story of {i}" for i in range(N)], "nearly every one is another (12 values of 12)"),
    ([f"drama,tag {i}" for i in range(N)], "no categories; if they are lists, write a|b and not a,b"),
    ([[f"tag {i}"] for i in range(N)], "none of its 12 values is found 3 times"),
    ([{"a": 1}] * N, "are neither text, numbers"),
])
def test_a_column_that_tells_nothing_is_left_out_and_says_why(values, why):
    made = films(odd=values, country=FILMS["country"])
    assert column(made, "odd").kind == "left out"
    assert why in column(made, "odd").found
    assert {f.column for f in made.features} == {"country"}
    assert why in repr(made)


def test_whole_numbers_called_id_that_all_differ_are_left_out():
    made = films(imdbId=range(100, 100 + N), country=FILMS["country"])
    assert "ids" in column(made, "imdbId").found


def test_a_column_with_one_value_in_each_domain_is_left_out():
    """It would tell nothing but the domains apart."""
    table = {"item_id": range(N), "country": FILMS["country"]}
    made = some_ratings(("films", "books"), attributes={"films": {**table, "medium": ["reel"] * N},
                                                        "books": {**table, "medium": ["paper"] * N}}).attributes
    assert "one value in each domain" in column(made, "medium").found


def test_a_column_that_only_some_rows_have_tells_them_apart():
    made = films(prize=["yes", None] * 6)
    assert dense(made)[:2, 0].tolist() == [1, 0]


# From everywhere, for all domains


@pytest.mark.parametrize("kind", AS_FRAME)
def test_any_frame_gives_the_same_attributes(kind):
    made = some_ratings(attributes={"films": AS_FRAME[kind](FILMS)})
    assert made.fingerprint == some_ratings(attributes={"films": FILMS}).fingerprint
    assert [c.kind for c in made.attributes.columns] == ["several", "category", "yes or no", "number", "vector"]


@pytest.mark.parametrize(("name", "separator"), [("f.csv", ","), ("f.tsv", "\t"), ("f.dat", "::"), ("f.txt", ";")])
def test_a_file_gives_the_same_attributes_as_a_frame(tmp_path, name, separator):
    columns = {key: FILMS[key] for key in ("movie_id", "genre", "country", "colour", "decade")}
    rows = [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / name).write_text("\n".join([separator.join(columns), *rows]) + "\n")
    frame = some_ratings(attributes={"films": columns})
    assert some_ratings(attributes={"films": tmp_path / name}).fingerprint == frame.fingerprint
    ratings = {"user": [0, 1, 2] * N, "item": [i for i in range(N) for _ in range(3)], "rating": [1, 3, 5] * N}
    pq.write_table(pa.table(ratings), tmp_path / "r.parquet")
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    read = Ratings.from_files({"films": tmp_path / "r.parquet"}, scale=(1, 5),
                              attributes={"films": tmp_path / "f.parquet"})
    assert read.fingerprint == frame.fingerprint


def table(tmp_path, name, lines):
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{u + 1}\n" for u in (0, 1)
                                                                  for i in ("x", "y", "z", "NA")))
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    return Ratings.from_files({"films": tmp_path / "r.csv"}, attributes={"films": tmp_path / name})


def test_titles_of_a_file_may_have_the_separator_in_them_and_colons(tmp_path):
    made = table(tmp_path, "f.dat", ["item::title::genre", "x::Alien: 3::a", "y::A :: B::a", "z::\"C\"::a", "NA::D::b"])
    assert made["films"].titles == ("Alien: 3", "A :: B", '"C"', "D")
    with pytest.raises(DataError, match="must have 2 fields in each line; got 3 in line 3"):
        table(tmp_path, "f.dat", ["item::genre", "x::a", "y::a::b", "z::a"])


def test_an_id_may_be_written_as_what_is_missing_elsewhere(tmp_path):
    made = table(tmp_path, "f.csv", ["item,year", "x,1990", "y,NA", "z,null", "NA,1993"]).attributes
    assert made.known("films").all()
    assert [made.facts("films", i).get("year") for i in range(4)] == [1990, None, None, 1993]


def test_a_quote_that_is_missing_loses_no_row(tmp_path):
    with pytest.raises(DataError, match="ends of lines"):
        table(tmp_path, "f.csv", ["item,genre", 'x,"a', "y,b", 'z,"c"', "NA,b"])
    with pytest.raises(DataError, match="ends of lines"):
        table(tmp_path, "f.csv", ["item,genre", '"x,a', 'y",b', "z,b", "NA,b"])
    made = table(tmp_path, "f.csv", ["item,genre", *['x,"a', 'b"', 'y,"a', 'b"', 'z,"a', 'b"'], "NA,c"]).attributes
    assert made.known("films").all()


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_table_of_attributes_is_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "f.csv")
    with pytest.raises(DataError, match="regular file"):
        some_ratings(attributes={"films": tmp_path / "f.csv"})


def test_a_file_of_another_encoding_is_read_with_it(tmp_path):
    rows = (f"{u},{i},{u + 1}\n" for u in (0, 1) for i in range(6))
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "".join(rows))
    (tmp_path / "f.csv").write_text("item,land\n" + "".join(f"{i},{'Österreich' if i % 2 else 'Türkei'}\n"
                                                            for i in range(6)), encoding="latin-1")
    paths = {"films": tmp_path / "r.csv"}, {"films": tmp_path / "f.csv"}
    made = Ratings.from_files(paths[0], attributes=paths[1], encoding="latin-1")
    assert made.attributes.features == (("land", "Türkei"), ("land", "Österreich"))
    with pytest.raises(DataError, match=r"encoding=..., for example 'latin-1'"):
        Ratings.from_files(paths[0], attributes=paths[1])


def test_each_domain_may_have_an_encoding_of_its_own(tmp_path):
    """Latin-1 reads everything, so that one encoding for all would turn Fantômas into FantÃ´mas without a word."""
    for name, encoding in (("a", "latin-1"), ("b", "utf-8")):
        (tmp_path / f"{name}.csv").write_text("user,item,rating\nZoë,1,5\nann,2,3\n", encoding=encoding)
        (tmp_path / f"{name}t.csv").write_text("item,title,year\n1,Fantômas,1913\n2,Emma,1996\n", encoding=encoding)
    paths = {name: tmp_path / f"{name}.csv" for name in "ab"}
    made = Ratings.from_files(paths, encoding={"a": "latin-1"},
                              attributes={name: tmp_path / f"{name}t.csv" for name in "ab"})
    for name in "ab":
        assert made[name].users.ids[0] == "Zoë"
        assert made[name].title(0) == "Fantômas"
    with pytest.raises(UnknownNameError, match="unknown domain 'c'"):
        Ratings.from_files(paths, encoding={"c": "latin-1"})
    assert arguments._encoding("a=latin-1") == {"a": "latin-1"}


def test_the_same_name_means_the_same_in_all_domains():
    """A category of one domain is a value of several in the other, and Genre is genre."""
    made = some_ratings(("films", "books", "music"), attributes={
        "films": {"item_id": range(N), "Genre": ["Horror|crime", "romance"] * 6},
        "books": {"isbn": range(N), "genre": [["HORROR"], ["poetry"]] * 6}}).attributes
    assert sorted(f.value.lower() for f in made.features) == ["crime", "horror", "poetry", "romance"]
    at = next(i for i, f in enumerate(made.features) if f.value.lower() == "horror")
    assert dense(made)[0, at] == pytest.approx(math.sqrt(0.5))
    assert dense(made, "books")[0, at] == 1
    assert column(made, "Genre").domains == ("films", "books")
    assert made.of("music").shape == (N, 4)
    assert made.of("music").nnz == 0
    assert not made.known("music").any()


def test_numbers_are_measured_over_all_domains_together():
    made = some_ratings(("films", "books"), ids=range(3), attributes={
        "films": {"item_id": range(3), "length": [90, 100, 110]},
        "books": {"item_id": range(3), "length": [300, 310, 320]}}).attributes
    both = np.array([90, 100, 110, 300, 310, 320])
    assert dense(made, "books")[:, 0] == pytest.approx((both[3:] - both.mean()) / both.std())


def test_what_means_something_else_in_another_domain_is_refused():
    with pytest.raises(DataError, match=r"attribute 'year' must mean the same in all domains; got numbers in 'films' "
                                        r"and text in 'books'. Rename the column in one"):
        some_ratings(("films", "books"), attributes={"films": {"item_id": range(N), "year": range(1970, 1982)},
                                                     "books": {"item_id": range(N), "year": ["old", "new"] * 6}})


@pytest.mark.parametrize(("rated", "named"), [(int, str), (str, int), (int, float), (str, str)])
def test_ids_match_as_titles_do(rated, named):
    made = some_ratings(ids=[rated(i) for i in range(N)], attributes={
        "films": {"item_id": [named(i) for i in reversed(range(N))], "country": [*reversed(FILMS["country"])]}})
    found = [made.attributes.facts("films", i)["country"].lower() for i in range(N)]
    assert found == [country.strip().lower() for country in FILMS["country"]]


def test_ids_may_be_the_index_of_a_pandas_frame():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(FILMS).set_index("movie_id")
    made = some_ratings(attributes={"films": frame})
    assert made.fingerprint == some_ratings(attributes={"films": FILMS}).fingerprint


def test_single_values_among_lists_are_lists_of_one():
    made = films(genre=["horror", ["horror", "crime"], None, {"crime"}] * 3)
    assert column(made, "genre").kind == "several"
    assert dense(made)[3].sum() == 1


def test_missing_values_of_any_frame_are_missing():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    made = some_ratings(attributes={"films": pd.DataFrame({
        "item_id": range(N), "text": pd.array(["x", pd.NA, "y"] * 4, "string"),
        "number": pd.array([1, pd.NA, 2**60 + 1] * 4, "Int64"),
        "flag": pd.array([True, pd.NA, False] * 4, "boolean"), "lists": [["a", None], [], ["b"]] * 4})})
    assert not dense(made.attributes)[1].any()
    assert [c.kind for c in made.attributes.columns] == ["category", "number", "yes or no", "several"]
    made = some_ratings(attributes={"films": pl.DataFrame({
        "item_id": list(range(N)), "text": pl.Series(["x", None, "y"] * 4, dtype=pl.Enum(["x", "y"])),
        "lists": [["a", "b"], None, ["b"]] * 4,
        "v": pl.Series([[1, 2], None, [3, 4]] * 4, dtype=pl.Array(pl.Int64, 2))})})
    assert not dense(made.attributes)[1].any()
    assert [c.kind for c in made.attributes.columns] == ["category", "several", "vector"]


def test_ids_of_any_type_match():
    ids = [("a", i) for i in range(6)]
    made = some_ratings(ids=ids, attributes={"films": {"item_id": ids[::-1], "side": ["left"] * 3 + ["right"] * 3}})
    assert [made.attributes.facts("films", i)["side"] for i in range(6)] == ["right"] * 3 + ["left"] * 3


def test_the_id_column_is_the_one_that_was_named_for_the_ratings():
    frame = {"who": [0, 1, 2] * N, "code": [i for i in range(N) for _ in range(3)], "rating": [1, 3, 5] * N}
    facts = {"item_id": ["x"] * N, "code": range(N), "country": FILMS["country"]}
    named = {"films": frame}, {"films": {"code": "code"}}
    for item_col in ("code", {"films": "code"}):
        made = Ratings.from_frames(named[0], user_col="who", item_col=item_col, attributes={"films": facts})
        assert made.attributes.known("films").all()


def test_every_way_in_takes_attributes():
    pairs = [0, 1, 2] * N, [i for i in range(N) for _ in range(3)]
    long = {"domain": ["films"] * 3 * N, "user": pairs[0], "item": pairs[1], "rating": [1, 3, 5] * N}
    people = {"films": {"user_id": range(3), "age": [20, 30, 40]}}
    for made in (Ratings.from_frame(long, attributes={"films": FILMS}, user_attributes=people),
                 Ratings.from_frames({"films": long}, attributes={"films": FILMS}, user_attributes=people),
                 Ratings.from_events({"films": pairs}, attributes={"films": FILMS}, user_attributes=people)):
        assert made.attributes.of("films").shape == (N, 13)
        assert made.user_attributes.of("films").shape == (3, 1)
        assert made.user_attributes.whose == "users"
    assert made.events


def test_titles_are_shown_and_are_no_attribute():
    facts = {"item_id": range(N), "title": [f"Film {i}" for i in range(N)], "country": FILMS["country"]}
    made = some_ratings(attributes={"films": facts})
    assert made["films"].title(3) == "Film 3"
    assert {f.column for f in made.attributes.features} == {"country"}
    assert "title, to show" in column(made.attributes, "title").found
    kept = some_ratings(attributes={"films": facts}, titles={"films": {3: "Heat"}})
    assert kept["films"].title(3) == "Heat"
    assert kept["films"].title(4) == "4"


def test_the_preview_counts_items_without_a_row_and_rows_without_an_item():
    made = some_ratings(attributes={"films": {"item_id": [*range(10), 50, 51, 52],
                                              "country": [*FILMS["country"][:10], "JP", "JP", "FR"]}})
    assert made.attributes.known("films").tolist() == [True] * 10 + [False] * 2
    assert made.attributes.unused == {"films": 3}
    shown = repr(made).splitlines()
    assert shown[2] == "Attributes of items: 1 feature; films 10 of 12 items (3 rows of items without ratings not used)"
    assert shown[3] == "  country  category  films  1 value: JP; 2 rarer left out"


def test_a_notebook_shows_how_columns_were_understood():
    shown = some_ratings(attributes={"films": {"item_id": range(N), "<b>": FILMS["country"]}})._repr_html_()
    assert "<td>&lt;b&gt;</td><td>category</td><td>films</td><td>3 values: JP, FR, SE</td>" in shown
    assert "Attributes" not in some_ratings()._repr_html_()


def test_a_shared_item_is_known_in_both_domains():
    made = some_ratings(("here", "there"), shared_items=True, attributes={
        "here": {"item_id": range(6), "country": FILMS["country"][:6]},
        "there": {"item_id": range(3, N), "country": ["NO"] * 9}}).attributes
    assert made.known("here").all()
    assert made.known("there").all()
    assert made.facts("there", 0) == {"country": "JP"}
    assert made.facts("there", 3) == {"country": "NO"}     # what a domain says itself comes first
    assert made.facts("here", 11) == {"country": "NO"}


# They follow the items


def test_attributes_follow_the_items_through_every_cut():
    data = some_ratings(("films", "books"), attributes={"films": FILMS}, user_attributes={
        "films": {"user_id": range(3), "age": [20, 30, 40]}})
    masks = {"films": np.isin(data["films"].item, (2, 5, 7)) & (data["films"].user > 0)}
    few = data.select(masks)
    assert few.attributes is data.attributes
    small = few.compact()
    assert small["films"].items.ids == (2, 5, 7)
    assert dense(small.attributes).tolist() == dense(data.attributes)[[2, 5, 7]].tolist()
    assert small.attributes.known("films").tolist() == [True] * 3
    assert dense(small.user_attributes).tolist() == dense(data.user_attributes)[1:].tolist()
    alone = data.only("books")
    assert list(alone.attributes.matrices) == ["books"]
    assert alone.attributes.features == data.attributes.features
    split = given_n(data, 2)
    assert split.test.attributes is data.attributes


def test_parts_that_were_read_apart_get_the_attributes_of_both():
    """The test part has an item of its own; its row is read as the training part reads rows."""
    triple = {"films": ([0, 1, 2] * N, [i for i in range(N) for _ in range(3)], [1, 3, 5] * N)}
    other = {"films": ([0, 0, 0, 0, 0, 0], [3, "new", "newer", "a", "b", "c"], [1, 2, 3, 4, 5, 5])}
    facts = {"item_id": ["newer", "new", 3, "a", "b", "c"],
             "genre": ["crime|horror", "war", "crime"] + ["crime|war"] * 3,
             "decade": [1975, 1970, 1970, 1980, 1990, 1990], "award": [True] * 3 + [False] * 3}
    train = Ratings.from_arrays(triple, scale=(1, 5), attributes={"films": FILMS})
    test = Ratings.from_arrays(other, scale=(1, 5), attributes={"films": facts})
    split = Split(train, test)
    made = split.train.attributes
    assert made is split.test.attributes
    assert made.features == train.attributes.features
    assert dense(made)[:N].tolist() == dense(train.attributes).tolist()
    newer = split.train["films"].items.code("newer")
    assert made.known("films")[newer]
    assert made.facts("films", newer) == {"genre": ["crime"], "decade": 1975}    # of horror the test part has one film
    alone = Split(train, Ratings.from_arrays(other, scale=(1, 5)))
    assert alone.test.attributes.known("films").sum() == N


def test_the_fingerprint_without_attributes_is_what_it_was():
    """From before there were attributes: splits that were saved then still load."""
    data = Ratings.from_arrays({"films": (["ann", "ben", "ann", "eve"], [7, 7, -3, 9], [1, 5, 3, 4])})
    assert data.fingerprint == "7d2d276db419c42f3685bcb9af3f47e30fb0ad785beff3b3be326dbdb2d5048e"
    assert some_ratings(attributes={"films": FILMS}).fingerprint != some_ratings().fingerprint


def test_attributes_are_saved_with_the_ratings(tmp_path):
    data = some_ratings(("films", "books"), attributes={"films": FILMS}, user_attributes={
        "books": {"user_id": range(3), "age": [20, 30, 40]}})
    storage.save(tmp_path / "m", "PCLF", {}, data, {}, {})
    read = storage.load(tmp_path / "m").data
    assert read.fingerprint == data.fingerprint
    assert repr(read) == repr(data)
    assert read.attributes.columns == data.attributes.columns
    row = [{"genre": "crime|horror", "decade": 1974, "embedding": [1, 2, 3]}]
    assert read.attributes.encode(row).toarray().tolist() == data.attributes.encode(row).toarray().tolist()


def test_files_without_attributes_are_as_before(tmp_path):
    storage.save(tmp_path / "m", "PCLF", {}, some_ratings(), {}, {})
    assert "attributes" not in storage.read(tmp_path / "m")[0]
    assert storage.load(tmp_path / "m").data.attributes is None


def test_ratings_with_attributes_of_other_items_are_refused():
    known = some_ratings(attributes={"films": FILMS}).attributes
    with pytest.raises(DataError, match=r"a row of attributes for each of its 3 items; got 12"):
        Ratings(some_ratings(ids=range(3)).domains, attributes=known)
    with pytest.raises(UnknownNameError, match=r"unknown domain 'books'.*films"):
        known.of("books")


def test_facts_come_out_as_they_went_in():
    data = some_ratings(attributes={"films": FILMS})
    facts = data.facts("films")
    assert facts["item_id"] == list(range(N))
    assert facts["decade"] == FILMS["decade"]
    assert np.array(facts["embedding"]) == pytest.approx(np.array(FILMS["embedding"]), rel=1e-5, abs=1e-5)
    again = some_ratings(attributes={"films": facts})
    assert dense(again.attributes) == pytest.approx(dense(data.attributes), abs=1e-5)
    assert some_ratings().facts("films") == {"item_id": []}


# New items


@settings(deadline=None, max_examples=50, derandomize=os.environ.get("TEST_SEED") != "any")
@given(st.lists(st.fixed_dictionaries({
    "genre": st.one_of(st.none(), st.lists(st.sampled_from(["Drama", "war", "WAR ", "noir", "rare"]), max_size=3)),
    "country": st.one_of(st.none(), st.sampled_from(["JP", "fr", ""])),
    "year": st.one_of(st.none(), st.integers(1900, 1930)), "length": st.one_of(st.none(), st.floats(-1e3, 1e3)),
    "seen": st.one_of(st.none(), st.booleans())}), min_size=20, max_size=40))
def test_a_new_item_with_the_facts_of_a_known_one_has_its_features(rows):
    table = {name: [row[name] for row in rows] for name in rows[0]}
    table = {"item_id": range(len(rows)), "anchor": ["a", "b"] * (len(rows) // 2) + ["a"] * (len(rows) % 2), **table}
    made = some_ratings(ids=range(len(rows)), attributes={"films": table}).attributes
    found, _ = made._encoded(rows)
    width = len(column(made, "anchor").features)
    assert found.toarray()[:, width:] == pytest.approx(dense(made)[:, width:], abs=1e-5)


def test_new_items_may_be_written_in_any_way():
    made = some_ratings(attributes={"films": FILMS}).attributes
    rows = [{"genre": "crime|horror", "colour": "yes"}, {"Genre": ["Horror", "crime"], "colour": 1}]
    first, second = made.encode(rows).toarray()
    assert first.tolist() == second.tolist()
    assert made.encode([]).shape == (0, 13)
    assert made.encode([{}]).nnz == 0


def test_an_unknown_category_of_a_new_item_is_zeros_and_counted():
    made = films(country=FILMS["country"])
    with pytest.warns(UserWarning, match=r"1 value of attributes is unknown and left out: country 'Narnia'"):
        assert made.encode([{"country": "Narnia"}, {"country": "fr"}]).toarray().tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(("row", "message"), [
    ({"contry": "JP"}, r"unknown attribute 'contry': did you mean 'country'\?"),
    ({"decade": "long ago"}, r"attribute 'decade' must be a number; got 'long ago'"),
    ({"colour": "sepia"}, r"attribute 'colour' must be true or false; got 'sepia'"),
    ({"embedding": [1, 2]}, r"attribute 'embedding' must be a list of 3 numbers; got \[1, 2\]"),
    ("JP", r"attributes must be dicts"),
])
def test_a_new_item_that_cannot_be_read_is_refused(row, message):
    with pytest.raises(DataError, match=message):
        some_ratings(attributes={"films": FILMS}).attributes.encode([row])


def test_a_column_that_was_left_out_may_be_given_for_new_items():
    made = films(country=FILMS["country"], title=[f"Film {i}" for i in range(N)], nothing=[None] * N)
    assert made.encode([{"country": "JP", "title": "Ran", "nothing": 3}]).toarray().tolist() == [[1, 0, 0]]


# Bad input


def refused(message, table, ids=range(N), key="attributes", name="films", **options):
    with pytest.raises(DataError, match=message):
        some_ratings(ids=ids, **{key: {name: table}}, **options)


TABLE = {"item_id": list(range(N)), "country": FILMS["country"]}


@pytest.mark.parametrize("key", ["attributes", "user_attributes"])
def test_attributes_of_an_unknown_domain_are_refused(key):
    refused(rf"{key} must be of domains that have ratings; unknown domain 'film': did you mean 'films'\?", TABLE,
            key=key, name="film")


def test_attributes_that_are_no_dict_are_refused():
    with pytest.raises(DataError, match=r"attributes must be a dict {domain: frame}; got list"):
        some_ratings(attributes=[TABLE])
    refused(r"attributes of 'films' must be a pandas, polars or pyarrow frame; got int", 7)
    refused(r"column 'country' must be a sequence or an array; got 'JP'", {**TABLE, "country": "JP"})
    refused(r"column 'x' must have one value or one row of numbers each; got an array of shape \(12, 2, 2\)",
            {**TABLE, "x": np.zeros((N, 2, 2))})
    refused(r"columns must be equally long; got item_id 12, country 2", {**TABLE, "country": ["JP", "FR"]})
    refused(r"column names must differ; got 'Country' twice, apart from letter case",
            {**TABLE, "Country": FILMS["country"]})


def test_attributes_of_items_that_nobody_rated_are_refused():
    refused(r"attributes of 'films' must be of its items, which have ids like 0; the column 'item_id' has ids like "
            r"'tt00', and 0 of 12 are among them. This is probably the wrong column, or the table of another domain",
            {**TABLE, "item_id": [f"tt{i:02}" for i in range(N)]})


def test_one_percent_of_matching_ids_is_a_wrong_column():
    table = {"movie": [*range(100_000, 100_199), 7], "length": [*range(200)]}
    refused(r"the column 'movie' has ids like 100000, and 1 of 200 is among them. This is probably the wrong column.*"
            r"rename the right column to 'item_id'", table, ids=range(200))
    table["movie"][:2] = [8, 9]
    assert some_ratings(ids=range(200), attributes={"films": table}).attributes.known("films").sum() == 3


def test_a_catalogue_much_larger_than_what_was_rated_is_no_wrong_column():
    table = {"item_id": range(5000), "country": ["JP", "FR"] * 2500}
    assert some_ratings(attributes={"films": table}).attributes.unused == {"films": 4988}


@pytest.mark.parametrize("country", ["JP", "NO"])
def test_an_id_twice_is_refused_even_with_the_same_row(country):
    refused(r"attributes of 'films' must have one row an id; got 4 in row 4 and row 12. Keep one row each; several "
            r"values go into one field, as a\|b", {"item_id": [*range(N), 4], "country": [*FILMS["country"], country]})
    refused(r"got '4' in row 4 and row 12, and 1 more ids twice",
            {"item_id": [*map(str, range(N)), "4", "5"], "country": [*FILMS["country"], country, country]})


def test_an_id_twice_in_a_file_is_named_with_its_lines(tmp_path):
    (tmp_path / "f.csv").write_text("item_id,country\n" + "".join(f"{i},JP\n" for i in (*range(N), 4)))
    refused(r"got 4 in line 6 and line 14", tmp_path / "f.csv")


def test_an_id_that_is_written_in_two_ways_is_twice():
    refused(r"one row an id; got 4 in row 4 and row 12\.",
            {"item_id": [*range(N), "4"], "country": [*FILMS["country"], "JP"]})


def test_a_missing_id_is_refused():
    refused(r"attributes of 'films': ids in 'item_id' must not be missing; got none in row 0",
            {**TABLE, "item_id": [None, *range(1, N)]})


def test_vectors_of_several_lengths_are_refused():
    vectors = [[1.0, 2.0]] * 9 + [[1.0, 2.0, 3.0]] * 3
    refused(r"attributes of 'films', row 9: the vector 'v' must have as many numbers as the first one has, 2 "
            r"\(attributes of 'films', row 0\); got 3. Make them equally long", {**TABLE, "v": vectors})
    with pytest.raises(DataError, match=r"attributes of 'books', row 0: the vector 'v' must have as many"):
        some_ratings(("films", "books"), attributes={
            name: {"item_id": range(N), "v": [[1.0 * i] * length for i in range(N)]}
            for name, length in (("films", 2), ("books", 3))})


def test_infinite_numbers_are_refused():
    refused(r"attributes of 'films', row 3: attribute 'n' must be a finite number; got inf",
            {**TABLE, "n": [1.0, 2.0, 3.0, math.inf] * 3})
    refused(r"row 0: the numbers of the vector 'v' must be finite; got -inf", {**TABLE, "v": [[-math.inf, 1.0]] * N})


def test_attributes_of_users_given_as_those_of_items_are_recognised():
    people = {"user_id": [0, 1, 2], "age": [20, 30, 40]}
    refused(r"attributes of 'films' must be about items; its column 'user_id' has ids of users, 3 of 3. Pass a table "
            r"about users as user_attributes=...", people)
    refused(r"user_attributes of 'films' must be about users; its column 'item_id' has ids of items, 12 of 12. Pass a "
            r"table about items as attributes=...", TABLE, key="user_attributes")


def test_an_attribute_called_like_the_ids_of_users_is_refused():
    refused(r"attributes of 'films' must be about items; its column 'user_id' has ids of users, 3 of 3",
            {**TABLE, "user_id": [0, 1, 2] * 4})
    refused(r"must not have an attribute that is called like the ids of users; got 'user'. Rename it",
            {**TABLE, "user": [f"u{i % 3}" for i in range(N)]})


def test_somebodys_favourite_artist_is_an_attribute():
    made = some_ratings(user_attributes={"films": {"user_id": range(3), "artist": ["Abba"] * 3, "age": [20, 30, 40]}})
    assert column(made.user_attributes, "artist").kind == "left out"


def test_a_table_without_ids_is_refused():
    refused(r"attributes of 'films': there must be a column of ids like 'item_id'; got 'nr', 'country'. Rename the "
            r"one with the ids to that", {"nr": range(N, 2 * N), "country": FILMS["country"]})


def test_ids_are_found_by_their_values_where_their_column_has_an_unusual_name():
    renamed = {name.replace("movie_id", "Bestell-Code"): values for name, values in FILMS.items()}
    found, usual = (some_ratings(attributes={"films": table}).attributes for table in (renamed, FILMS))
    assert (dense(found) == dense(usual)).all()
    assert found.features == usual.features


def test_of_two_columns_that_could_be_ids_none_is_taken():
    refused(r"there must be a column of ids like 'item_id'; got 'nr', 'shelf', 'country'",
            {"nr": range(N), "shelf": range(N)[::-1], "country": FILMS["country"]})


# Numbers as people write them


@pytest.mark.parametrize(("texts", "numbers"), [
    (["12,25 €", "5 €", "1.299,00 €", "7,5"], [12.25, 5, 1299, 7.5]),
    (["$12.25", "$5", "$1,299.00", "7"], [12.25, 5, 1299, 7]),
    (["EUR 3,20", "eur 4", "0,99", "10"], [3.2, 4, 0.99, 10]),
    (["90 min", "120 min", "95", "100 min"], [90, 120, 95, 100]),
    (["-1,5", "2,25", "+3", "4"], [-1.5, 2.25, 3, 4]),
    (["31.05.2024", "1.6.1999", "24.12.2023", "01.01.2001"], [2024, 1999, 2023, 2001]),
    (["2024-05-31", "1999-06-01 12:30:00", "2023-12-24T00:00:00Z", "2001/01/01"], [2024, 1999, 2023, 2001]),
    (["05/31/2024", "12/24/1999", "31-May-2023", "01 Jan 2001"], [2024, 1999, 2023, 2001]),
])
def test_amounts_and_dates_are_numbers_however_they_are_written(texts, numbers):
    made, plain = films(x=texts * 3), films(x=numbers * 3)
    assert column(made, "x").kind == "number"
    assert (dense(made) == dense(plain)).all()
    new = made.encode([{"x": text} for text in texts])
    assert (new.toarray() == plain.encode([{"x": number} for number in numbers]).toarray()).all()


@pytest.mark.parametrize("texts", [
    ["1,234", "2,500", "3,100", "4,750"],                 # thousands, or three digits behind a comma
    ["1.299 €", "999 €", "2.500 €", "45 €"],
    ["12,25", "12.25", "8,5", "8.5"],
    ["5 €", "5 $", "7 €", "9 $"],
    ["02139", "10001", "94103", "60601"],
    ["1.2.3", "1.2.4", "2.0.0", "2.1.0"],
    ["5 stars", "4 stars", "3 stars", "2 stars"],
    ["32.13.2024", "40.01.1999", "32.12.2023", "41.01.2001"],
])
def test_what_may_mean_two_things_stays_text(texts):
    assert column(films(x=texts * 3), "x").kind == "category"


def test_each_domain_may_write_numbers_in_its_own_way():
    tables = {"films": {"item_id": range(N), "price": ["12,25 €", "8,50 €", "1.000 €"] * 4},
              "books": {"item_id": range(N), "price": ["12.25", "8.50", "1,000.00"] * 4}}
    made = some_ratings(("films", "books"), attributes=tables).attributes
    assert column(made, "price").kind == "number"
    assert (dense(made) == dense(made, "books")).all()


def test_a_table_without_a_useful_column_is_refused():
    refused(r"attributes must have a column that tells items apart; got none beside the ids \('note': it has no "
            r"values\). Add one, or leave attributes out", {"item_id": range(N), "note": [None] * N})
    refused(r"got none beside the ids \(no other column\)", {"item_id": range(N)})
    refused(r"must have at least one row; got none", {"item_id": [], "country": []})


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "f.csv").write_text("1,JP\n2,FR\n")
    refused(r"there must be a column of ids like 'item_id'; got '1', 'JP'", tmp_path / "f.csv")
    (tmp_path / "g.csv").write_text("item_id,country\n1,JP,7\n")
    refused(r"g.csv must be a whole table of text", tmp_path / "g.csv")
    (tmp_path / "h.csv").write_text("item_id,country,country\n1,JP,7\n")
    refused(r"h.csv: column names must differ; got 'country' 2 times", tmp_path / "h.csv")
    (tmp_path / "i.csv").write_text("item_id,country\n")
    refused(r"i.csv must have at least one row of data", tmp_path / "i.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'f.csv'"):
        some_ratings(attributes={"films": tmp_path / "ff.csv"})


# Large tables


def test_two_hundred_thousand_items_are_read_in_seconds():
    """About 1 s on an idle core; the bound allows for a busy machine and still tells a Python loop a row and column."""
    n, rng = 200_000, np.random.default_rng(0)
    data = Ratings.from_arrays({"films": (np.arange(n), np.arange(n), rng.integers(1, 6, n))}, scale=(1, 5))
    tags = np.array([f"tag {i}" for i in range(3000)])[rng.integers(0, 3000, (n, 3))]
    table = pa.table({"item_id": rng.permutation(n), "year": rng.integers(1900, 2020, n),
                      "tag": pa.array(["|".join(row) for row in tags]),
                      "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=8 * n)), 8)})
    start = time.process_time()
    from pclf.data.tables import attributes_of

    made, _ = attributes_of({"films": table}, data.domains, "items", {})
    assert time.process_time() - start < 6
    assert isinstance(made, Attributes)
    assert made.of("films").shape == (n, 6 + 500 + 8)
    years = table["year"].to_numpy()[np.argsort(table["item_id"].to_numpy())]
    knots = np.array(column(made, "year").knots)
    assert (made.of("films")[:, :6] @ knots)[:1000] == pytest.approx(years[:1000].clip(knots[0], knots[-1]), rel=1e-5)
