"""Tastes: the attributes of what people chose tell what they choose in a catalogue where they have never been."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import pclf
from pclf.choice.rows import as_rows
from pclf.choice.tastes import Column, Tastes, learn_tastes, told
from pclf.errors import ModelFileError

GENRES = ("horror", "romance", "war", "comedy")


def world(rng, n_people, n_items, strength=2.0, each=12):
    """Who likes which genre, the genre of every item, and what people choose: by taste and by what is popular."""
    taste, genre = rng.integers(4, size=n_people), np.arange(n_items) % 4
    scores = rng.normal(0, 0.7, n_items) + strength * (taste[:, None] == genre) + rng.gumbel(size=(n_people, n_items))
    return taste, genre, np.argsort(-scores, axis=1)[:, :each]


def as_choices(picked, n_items):
    person = np.repeat(np.arange(len(picked)), picked.shape[1])
    return as_rows(person, picked.ravel(), np.ones(picked.size), (len(picked), n_items))


def indicators(genre):
    return csr_array(np.eye(4, dtype=np.float32)[genre])


@pytest.fixture(scope="module")
def catalogues():
    """Films and books with other people in each, and genres."""
    rng, frames, facts = np.random.default_rng(0), {}, {}
    tastes = {}
    for name, first in (("films", 0), ("books", 1000)):
        tastes[name], genre, picked = world(rng, 200, 60)
        person = np.repeat(np.arange(200), picked.shape[1])
        rating = np.where(genre[picked.ravel()] == tastes[name][person], 5, 3) - rng.integers(2, size=picked.size)
        frames[name] = {"user": person + first, "item": picked.ravel(), "rating": rating}
        facts[name] = {"item_id": np.arange(60), "genre": [GENRES[g] for g in genre]}
    return pclf.Ratings.from_frames(frames, attributes=facts), tastes["films"]


@pytest.fixture(scope="module")
def model(catalogues):
    return pclf.PCLF(n_restarts=1).fit(catalogues[0])


def share_of(genre, found):
    return np.mean([GENRES[int(r.item) % 4] == genre for r in found])


def test_visitors_are_offered_books_of_the_genre_of_their_films(model, catalogues):
    data, taste = catalogues
    shares = [share_of(GENRES[taste[code]], model.recommend("books", int(id), 5, user_domain="films"))
              for code, id in enumerate(data["films"].users.ids[:40])]
    assert np.mean(shares) > 0.6                                                     # by chance 0.25


def test_two_guests_who_loved_other_genres_get_other_books(model):
    lists = {}
    for g, genre in enumerate(GENRES[:2]):
        guest = model.fold_in({"films": dict.fromkeys(range(g, 40, 4), 5)})
        lists[genre] = model.recommend("books", guest, 5)
        assert share_of(genre, lists[genre]) >= 0.8
    assert not {r.item for r in lists["horror"]} & {r.item for r in lists["romance"]}


def test_a_model_without_the_bridge_has_no_tastes(catalogues):
    assert not pclf.PCLF(n_restarts=1, bridges=("people",)).fit(catalogues[0]).lists_.choice.tastes


def test_tastes_are_saved(model, tmp_path):
    model.save(tmp_path / "model")
    guest = {"films": dict.fromkeys(range(0, 40, 4), 5)}
    lists = [[r.item for r in m.recommend("books", m.fold_in(guest), 10)]
             for m in (model, pclf.load(tmp_path / "model"))]
    assert lists[0] == lists[1]


def test_random_attributes_say_little_beside_true_ones():
    """Eighty items are few: some random genres go with true ones."""
    rng, column = np.random.default_rng(1), [Column(slice(0, 4), False)]
    _, genre, picked = world(rng, 300, 80)
    chosen = as_choices(picked, 80)
    true = learn_tastes(chosen, indicators(genre), column, rng).weights.min()
    random = [learn_tastes(chosen, indicators(rng.permutation(genre)), column, rng).weights.max() for _ in range(5)]
    assert np.mean(random) < 0.3 * true
    assert min(random) == 0


def test_people_who_chose_once_tell_nothing():
    rows = as_choices(np.arange(30)[:, None] % 8, 8)
    found = learn_tastes(rows, indicators(np.arange(8) % 4), [Column(slice(0, 4), False)], np.random.default_rng(0))
    assert not found.useful
    np.testing.assert_allclose(found.usual, indicators(np.arange(8) % 4).toarray()[np.arange(30) % 8].mean(axis=0))


def test_tastes_by_hand():
    """Half of all choices are of each genre. Who chose three of the first, with a doubt of one, has 3.5 of 4 of it."""
    tastes = Tastes(np.array([0.5, 0.5], np.float32), np.zeros(2, np.float32), np.ones(2, np.float32), 1.0)
    items = csr_array(np.eye(2, dtype=np.float32))
    chosen = csr_array(np.array([[3.0, 0.0]], np.float32))
    known = told([tastes], 0, [chosen], [items])
    np.testing.assert_allclose(known, np.log([[3.5 / 4 / 0.5, 0.5 / 4 / 0.5]]), rtol=1e-6)
    np.testing.assert_allclose(tastes.odds(known, items, np.array([0.5, 0.5])), [[1.75, 0.25]], rtol=1e-5)


def test_nothing_chosen_changes_no_odds():
    tastes = Tastes(np.array([0.5, 0.5], np.float32), np.zeros(2, np.float32), np.ones(2, np.float32), 1.0)
    items = csr_array(np.eye(2, dtype=np.float32))
    known = told([tastes, tastes], 1, [csr_array((1, 2), dtype=np.float32), None], [items, items])
    np.testing.assert_allclose(tastes.odds(known, items, np.array([0.5, 0.5])), 1, rtol=1e-6)


def test_vectors_are_tastes_too():
    """Numbers with a sign: who chose what lies on one side chooses there again."""
    rng = np.random.default_rng(2)
    place, taste = rng.normal(size=(80, 3)), rng.normal(size=(300, 3))
    picked = np.argsort(-(taste @ place.T + rng.gumbel(size=(300, 80))), axis=1)[:, :12]
    column = [Column(slice(0, 3), True)]
    found = learn_tastes(as_choices(picked, 80), csr_array(place.astype(np.float32)), column, rng)
    assert found.useful
    far = np.argsort(-place[:, 0])[:5]
    chosen = as_rows(np.zeros(5, int), far, np.ones(5), (1, 80))
    attributes = csr_array(place.astype(np.float32))
    odds = found.odds(told([found], 0, [chosen], [attributes]), attributes, np.full(80, 1 / 80))
    assert np.corrcoef(np.log(odds[0]), place[:, 0])[0, 1] > 0.8


@pytest.mark.parametrize(("part", "value"), [("weights", [-1.0, 1.0]), ("weights", [np.nan, 1.0]), ("usual", [1.0]),
                                         ("variance", [-1.0, 0.0]), ("doubt", [0.0])])
def test_forged_tastes_are_refused(part, value):
    tastes = Tastes(*(np.array([0.5, 0.5], np.float32),) * 3, 1.0)
    arrays = tastes.to_arrays("t")
    arrays["t." + part] = np.array(value, arrays["t." + part].dtype)
    with pytest.raises(ModelFileError, match=f"t.{part} must"):
        Tastes.from_arrays("t", arrays, 2)
    assert Tastes.from_arrays("t", replace(tastes, doubt=2.0).to_arrays("t"), 2).doubt == 2.0


def test_a_first_book_is_no_reason_to_forget_the_films(model):
    """Somebody known by one book of no genre's own is still offered the genre of their films."""
    horror = dict.fromkeys(range(0, 40, 4), 5)
    alone = share_of("horror", model.recommend("books", model.fold_in({"books": {3: 3}}), 10))
    with_films = share_of("horror", model.recommend("books", model.fold_in({"films": horror, "books": {3: 3}}), 10))
    assert with_films > alone + 0.3


def test_an_explanation_says_which_tastes_offer_a_book(model):
    """Horror books are 0, 4, 8 ... Who watches horror picks them more often than others do."""
    guest = model.fold_in({"films": dict.fromkeys(range(0, 32, 4), 5)})
    found, other = model.explain("books", guest, 0), model.explain("books", guest, 1)
    assert found.draws[0][:2] == ("genre", "horror")
    assert found.picked > 1.5 > 1 > other.picked
    assert f"You often choose horror (genre): you are {found.picked:.2g} times as likely as others to pick it next." \
        in found.text
    assert "often" not in other.text
    chances = {r.item: r.chosen for r in model.recommend("books", guest, 60)}
    usual = {r.item: r.chosen for r in model.recommend("books", model.fold_in({}), 60)}
    assert chances[0] > usual[0]
    assert chances[1] < usual[1]


def test_nobody_is_certain_to_pick_something(model):
    guest = model.fold_in({"films": dict.fromkeys(range(0, 60, 4), 5)})
    assert max(r.chosen for r in model.recommend("books", guest, 60)) < 0.9
