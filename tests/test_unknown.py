"""Unknown ids and titles: one id that nobody knows does not stop a batch, and titles are names wherever ids are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pclf
from pclf import models
from pclf.datasets.demo import write_files
from pclf.errors import ArgumentError, UnknownNameError, did_you_mean

TITLES = {"films": {i: f"Film {i}" for i in range(30)} | {3: "Twins", 4: "Twins"}}


def ratings(seed=0, n=900):
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 60, n), rng.integers(0, 30, n)
    _, first = np.unique(user * 30 + item, return_index=True)
    return user[first], item[first], rng.integers(1, 6, len(first))


@pytest.fixture(scope="module")
def data():
    return pclf.Ratings.from_arrays({"films": ratings(0), "books": ratings(1)}, scale=(1, 5), titles=TITLES)


@pytest.fixture(scope="module")
def model(data):
    return pclf.PCLF(4, 2, 2, max_iter=4, n_restarts=1).fit(data)


@pytest.fixture(scope="module", params=[name for name in models.NAMES if name not in models.RANKERS])
def rated(request, data):
    return pclf.Bias().fit(data) if request.param == "Bias" else models.create(request.param).fit(data)


def test_pairs_that_are_not_known_are_nan_in_their_places(rated):
    with pytest.warns(UserWarning, match="1 of 4 users is not known: the first is 'nobody'; 1 of 4 items is not"):
        found = rated.predict("films", [1, "nobody", 2, 3], [5, 5, "nothing", 6], unknown="skip")
    assert np.isnan(found).tolist() == [False, True, True, False]
    assert found[[0, 3]].tolist() == rated.predict("films", [1, 3], [5, 6]).tolist()


def test_one_against_many_goes_on_too(rated):
    with pytest.warns(UserWarning, match="1 of 3 items is not known"):
        found = rated.predict("films", 1, [5, "nothing", 6], unknown="skip")
    assert np.isnan(found).tolist() == [False, True, False]
    with pytest.warns(UserWarning, match="1 of 1 user is not known"):
        assert np.isnan(rated.predict("films", "nobody", [5, 6], unknown="skip")).all()


def test_newcomers_are_predicted_like_anybody(rated):
    with pytest.warns(UserWarning, match="taken for newcomers"):
        found = rated.predict("films", ["nobody", "none", 1], [5, 6, "nothing"], unknown="newcomer")
    low, high = rated.data_["films"].scale.values[0], rated.data_["films"].scale.values[-1]
    assert ((low <= found) & (found <= high)).all()
    with pytest.warns(UserWarning, match="newcomers"):
        again = rated.predict("films", ["else", 2], [5, 6], unknown="newcomer")
    assert again[0] == pytest.approx(found[0], abs=1e-6)              # whoever it is
    assert again[1] == pytest.approx(rated.predict("films", 2, 6)[0], abs=1e-6)


def test_a_newcomer_of_a_mixture_is_a_guest_without_ratings(model):
    with pytest.warns(UserWarning, match="newcomers"):
        found = model.predict_proba("films", ["nobody"], [5], unknown="newcomer")
    assert found == pytest.approx(model.predict_proba("films", model.fold_in({}), 5))


@pytest.mark.parametrize("name", models.NAMES)
def test_lists_go_on_without_those_who_are_not_known(name, data):
    fitted = models.create(name).fit(data)
    with pytest.warns(UserWarning, match="2 of 4 users are not known and left out: the first is 'nobody'"):
        lists = fitted.recommend("films", [1, "nobody", 2, "none"], n=3, unknown="skip")
    assert list(lists.users) == [1, 2]
    assert lists[1] == fitted.recommend("films", 2, n=3)
    with pytest.warns(UserWarning, match="taken for newcomers"):
        lists = fitted.recommend("films", [1, "nobody", 2], n=3, unknown="newcomer")
    assert [len(some) for some in lists] == [3, 3, 3]
    assert lists[2] == fitted.recommend("films", 2, n=3)
    assert lists.to_arrow()["user_id"].to_pylist()[3] == "nobody"


def test_one_who_is_not_known_gets_no_list_or_that_of_anybody(model):
    with pytest.warns(UserWarning, match="1 of 1 user is not known"):
        assert model.recommend("films", "nobody", unknown="skip") == []
    with pytest.warns(UserWarning, match="newcomers"):
        assert len(model.recommend("films", "nobody", n=2, unknown="newcomer")) == 2


def test_one_id_of_several_people_does_not_stop_a_batch(data):
    three = pclf.Ratings.from_arrays({"films": ([1, 2, 1], [1, 1, 2], [1, 5, 3]), "books": ([7, 8], [1, 1], [2, 4]),
                                      "music": ([7, 9], [1, 1], [2, 4])}, scale=(1, 5))
    fitted = pclf.PCLF(2, 2, 2, max_iter=2, n_restarts=1).fit(three)
    with pytest.raises(UnknownNameError, match=r"known in several other domains \(books, music\)"):
        fitted.predict("films", [1, 7], [1, 1])
    with pytest.warns(UserWarning, match="1 of 2 users is not known: the first is 7"):
        assert np.isnan(fitted.predict("films", [1, 7], [1, 1], unknown="skip")).tolist() == [False, True]


def test_the_default_is_an_error_and_other_words_are_refused(model):
    with pytest.raises(UnknownNameError, match="nobody"):
        model.predict("films", [1, "nobody"], [5, 5])
    with pytest.raises(UnknownNameError, match="did you mean 'skip'"):
        model.predict("films", 1, 5, unknown="skipp")
    with pytest.raises(ArgumentError, match="equally many"):
        model.predict("films", [1, 2, "nobody"], [5, 6], unknown="skip")


def test_several_guests_are_placed_at_once(model):
    told = [{"films": {1: 5, 2: 3}}, {}, {"books": {4: 1}}]
    guests = model.fold_in(told)
    assert [guest.ratings for guest in guests] == told
    assert model.recommend("films", guests, n=2)[0] == model.recommend("films", model.fold_in(told[0]), n=2)


def test_titles_are_names_wherever_ids_are(model):
    assert model.predict("films", 1, "Film 7").tolist() == model.predict("films", 1, 7).tolist()
    assert model.predict("films", 1, ["Film 7", 8]).tolist() == model.predict("films", 1, [7, 8]).tolist()
    assert str(model.explain("films", 1, "Film 7")) == str(model.explain("films", 1, 7))
    assert model.similar_items("films", "Film 7", n=3) == model.similar_items("films", 7, n=3)
    guest = model.fold_in({"films": {"Film 7": 5, 8: 2}})
    assert guest.ratings == {"films": {7: 5, 8: 2}}
    lists = model.recommend("films", 1, n=9, candidates=["Film 7", "Film 8", 9], exclude=["Film 9"],
                            exclude_seen=False, boosts={"Film 8": 100.0})
    assert [r.item for r in lists] == [8, 7]


def test_a_part_of_a_long_name_finds_it():
    known = ["Alien (1979)", "Alien: Resurrection (1997)", "Toy Story (1995)", "Heat (1995)"]
    assert "unknown item 'alien' in 'films': did you mean 'Alien (1979)' or" in did_you_mean("alien", known,
                                                                                            "item in 'films'")
    assert "did you mean" not in did_you_mean("zzz", known, "item")


def test_a_title_of_two_items_is_not_guessed(model):
    with pytest.raises(UnknownNameError, match=r"'Twins' is the title of 2 items in 'films': give an id, 3, 4\."):
        model.predict("films", 1, "Twins")
    with pytest.raises(UnknownNameError, match="did you mean 'Film 7'"):
        model.predict("films", 1, "Film7")
    with pytest.raises(ArgumentError, match="there by id and by title"):
        model.fold_in({"films": {"Film 7": 5, 7: 2}})


def run(*words, cwd):
    return subprocess.run([sys.executable, "-m", "pclf", *map(str, words)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, "COLUMNS": "120"})


def test_the_command_line_goes_on_and_counts(tmp_path):
    write_files(tmp_path)
    data = pclf.Ratings.from_files({"movies": tmp_path / "movies.csv"})
    pclf.Bias().fit(data).save(tmp_path / "model")
    known = data["movies"].users.ids[0], data["movies"].items.ids[0]
    Path(tmp_path / "pairs.csv").write_text(f"user_id,item_id\n{known[0]},{known[1]}\nnobody,{known[1]}\n")
    done = run("predict", "model", "--domain", "movies", "--pairs", "pairs.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["user_id"] for row in json.loads(done.stdout)] == [known[0]]
    assert done.stderr.count("\n") == 1
    assert "1 of 2 users is not known" in done.stderr
    done = run("predict", "model", "--domain", "movies", "--pairs", "pairs.csv", "--unknown", "newcomer", "--json",
               cwd=tmp_path)
    assert [row["user_id"] for row in json.loads(done.stdout)] == [known[0], "nobody"]
    assert run("predict", "model", "--domain", "movies", "--pairs", "pairs.csv", "--unknown", "error",
               cwd=tmp_path).returncode == 1
    done = run("recommend", "model", "--domain", "movies", "--users", "pairs.csv", "--n", "2", "--json", cwd=tmp_path)
    assert [row["user_id"] for row in json.loads(done.stdout)] == [known[0]] * 2, done.stderr
    assert run("recommend", "model", "--domain", "movies", "--user", "nobody", cwd=tmp_path).returncode == 1


def test_thousands_of_names_go_on_past_one_that_is_not_known(model):
    """Many ids are looked up by Arrow, whose answer cannot be written to."""
    items = [*[f"Film {i}" for i in range(5, 30)] * 20, "nothing", 7]
    with pytest.warns(UserWarning, match="1 of 502 items is not known"):
        found = model.predict("films", 1, items, unknown="newcomer")
    assert found[-1] == pytest.approx(model.predict("films", 1, 7)[0])
    assert found[0] == pytest.approx(model.predict("films", 1, 5)[0])
