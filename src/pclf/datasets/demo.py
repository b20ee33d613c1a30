"""Films, music and books that do not exist, rated by three groups of people who have never met.

The paper's own example: an item has a *region*, which means something in every domain, and a *genre*, which
means something in its domain alone. People have tastes for both. So what films teach about regions is of use
for books, what they teach about thrillers is not.

The ratings are not drawn from a mixture of clusters, so no model of this library is right by construction:

    liking(u, v) = level(u) + spread(u) * (0.7 region taste + 0.6 genre taste) + quality(v)
    rating(u, v) = 3.2 + liking + noise, rounded, 1 to 5

Tastes are continuous. Region tastes lie near three hidden traits of a person; genre tastes follow the traits
a little, and differently in each domain. Nobody rates at random: popular and liked items come first.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings

Tastes = NDArray[np.float64]

PLACES = {
    "Nordic": ("Bergen", "Uppsala", "Tampere", "Aarhus", "Turku", "Reykjavik"),
    "Japanese": ("Kyoto", "Osaka", "Nara", "Sapporo", "Kobe", "Nagasaki"),
    "French": ("Lyon", "Marseille", "Nantes", "Dijon", "Toulouse", "Rouen"),
    "American": ("Memphis", "Chicago", "Denver", "Boston", "Tucson", "Savannah"),
    "Brazilian": ("Salvador", "Recife", "Manaus", "Natal", "Curitiba", "Olinda"),
    "British": ("Leeds", "Bristol", "York", "Cardiff", "Dundee", "Whitby"),
}
TITLES: dict[str, dict[str, tuple[str, ...]]] = {
    "films": {
        "thriller": ("Midnight in {}", "The {} Conspiracy", "No Witness in {}", "Last Call from {}",
                     "The {} Hostage", "Manhunt in {}"),
        "comedy": ("Two Weddings in {}", "My Crazy Aunt from {}", "The Worst Hotel in {}", "Clowns of {}",
                   "Honeymoon for Six in {}", "Oh No, {}!"),
        "romance": ("A Kiss in {}", "Love Letters to {}", "Spring Comes to {}", "Hearts of {}",
                    "Two Lovers in {}", "Marry Me in {}"),
        "science fiction": ("{} 2099", "Robots of {}", "The {} Signal from Space", "Orbit over {}",
                            "Clone City {}", "Starship {}"),
        "documentary": ("The Fishermen of {}", "A Year in {}", "{}: A Portrait", "The Bees of {}",
                        "Building the {} Bridge", "Inside {} Hospital"),
    },
    "music": {
        "jazz": ("{} Jazz Quartet", "Blue {}", "Saxophone in {}", "Swing, {}!", "{} After Hours",
                 "Trumpets of {}"),
        "folk": ("Folk Songs from {}", "{} Ballads", "The Fiddler of {}", "Harvest Songs of {}",
                 "Lullabies from {}", "The {} Shepherd's Flute"),
        "electronic": ("{} Subway Mix", "Neon {}", "{} at 120 BPM", "Synthesizers of {}", "{} Rave Tapes",
                       "Drum Machine {}"),
        "rock": ("Loud in {}", "{} Garage Band", "Guitars over {}", "Riot at {} Hall", "Electric {} Dogs",
                 "{} Feedback"),
    },
    "books": {
        "crime": ("The Inspector of {}", "A Body in {}", "The {} Poisoner", "Death on the {} Ferry",
                  "The {} Alibi"),
        "fantasy": ("The Dragon of {}", "The Wizards of {}", "The {} Enchantress", "Elves beneath {}",
                    "A Magic Crown for {}"),
        "poetry": ("{} Elegies", "Poems for {}", "Sonnets from {}", "{} in Verse", "Rhymes of {}"),
        "memoir": ("My Childhood in {}", "How I Left {}", "My Grandmother's {}", "My Years as a Nurse in {}",
                   "Diary of a {} Teacher"),
        "cookery": ("The {} Kitchen", "Baking in {}", "Soups of {}", "The {} Spice Book",
                    "Sunday Lunch in {}"),
    },
}
PEOPLE = {"films": (300, 30), "music": (260, 20), "books": (240, 11)}   # users, ratings a user in the middle
FEWEST = 6     # ratings a user, so that five can be given and one be left to test
NAMES = ("ana", "bo", "chidi", "dana", "emil", "freya", "goro", "hana", "ines", "jun", "kofi", "lena", "mika",
         "nils", "olga", "paulo", "quinn", "rosa", "sami", "tova", "uma", "vera", "wim", "yuki", "zoe")


@dataclass(frozen=True)
class Truth:
    """What the ratings were made from: of every item the region and genre, of every user the tastes."""

    regions: tuple[str, ...]
    genres: dict[str, tuple[str, ...]]            # domain -> names
    region_of: dict[str, dict[str, str]]          # domain -> title -> region
    genre_of: dict[str, dict[str, str]]           # domain -> title -> genre
    region_tastes: dict[str, dict[str, Tastes]]   # domain -> user -> one number a region
    genre_tastes: dict[str, dict[str, Tastes]]    # domain -> user -> one number a genre
    habits: dict[str, Tastes]                     # domain -> (users, 2) level and spread
    qualities: dict[str, Tastes]                  # domain -> (items,)


def load(*, seed: int = 0, **options: Any) -> Ratings:
    """Three domains, "films", "music" and "books", the last one sparse; no user in two of them.

    The attributes of every item are its region and its genre.
    """
    arrays, made = _world(int(seed))
    attributes = {domain: _facts(made, domain) for domain in arrays}
    return Ratings.from_arrays(arrays, scale=(1, 5), **{"attributes": attributes, **options})


def truth(seed: int = 0) -> Truth:
    """The region and genre of every item and the tastes of every user of `load("demo", seed=seed)`."""
    return _world(int(seed))[1]


def _facts(made: Truth, domain: str) -> dict[str, list[str]]:
    """The attributes of the items of a domain, as columns."""
    return {"item_id": list(made.region_of[domain]), "region": list(made.region_of[domain].values()),
            "genre": list(made.genre_of[domain].values())}


@lru_cache(maxsize=4)
def _world(seed: int) -> tuple[dict[str, tuple[list[str], list[str], NDArray[np.float64]]], Truth]:
    rng = np.random.default_rng(seed)
    traits_to_regions = rng.normal(size=(3, len(PLACES))) / np.sqrt(3)
    made = Truth(tuple(PLACES), {d: tuple(g) for d, g in TITLES.items()}, {}, {}, {}, {}, {}, {})
    arrays = {}
    first = 0
    for domain, (n_users, middle) in PEOPLE.items():
        items = [(title, region, genre) for region in PLACES for genre in TITLES[domain]
                 for title in _titles(domain, region, genre)]
        titles, regions, genres = zip(*(items[i] for i in rng.permutation(len(items))), strict=True)
        region = np.array([made.regions.index(r) for r in regions])           # (V,)
        genre = np.array([made.genres[domain].index(g) for g in genres])      # (V,)
        users = [f"{NAMES[i % len(NAMES)]}-{i:03d}" for i in range(first, first + n_users)]
        first += n_users

        traits = rng.normal(size=(n_users, 3))
        traits_to_genres = rng.normal(size=(3, len(TITLES[domain]))) / np.sqrt(3)
        region_taste = 0.85 * traits @ traits_to_regions + 0.5 * rng.normal(size=(n_users, len(PLACES)))
        genre_taste = 0.4 * traits @ traits_to_genres + 0.9 * rng.normal(size=(n_users, len(TITLES[domain])))
        level = rng.normal(0, 0.35, (n_users, 1))
        spread = np.exp(rng.normal(0, 0.25, (n_users, 1)))
        quality = rng.normal(0, 0.4, len(items))
        liking = level + spread * (0.7 * region_taste[:, region] + 0.6 * genre_taste[:, genre]) + quality

        rated = _picked(rng, liking, middle)                                  # (U, V)
        user, item = np.nonzero(rated)
        rating = np.rint(3.2 + liking[rated] + rng.normal(0, 0.6, len(user))).clip(1, 5)
        arrays[domain] = [users[u] for u in user], [titles[v] for v in item], rating
        made.region_of[domain] = dict(zip(titles, regions, strict=True))
        made.genre_of[domain] = dict(zip(titles, genres, strict=True))
        made.region_tastes[domain] = dict(zip(users, region_taste, strict=True))
        made.genre_tastes[domain] = dict(zip(users, genre_taste, strict=True))
        made.habits[domain], made.qualities[domain] = np.hstack([level, spread]), quality
    return arrays, made


def visits(home: str, domain: str, seed: int = 0, each: int = 12) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """What the users of one domain would say about items of another, where they have never been: users, items, ratings.

    Their taste for regions and their habits come along; their taste for the genres there is new.
    """
    made, rng = truth(seed), np.random.default_rng([int(seed), list(TITLES).index(home), list(TITLES).index(domain)])
    users, titles = list(made.region_tastes[home]), list(made.region_of[domain])
    region = np.array([made.regions.index(made.region_of[domain][title]) for title in titles])
    genre = np.array([made.genres[domain].index(made.genre_of[domain][title]) for title in titles])
    region_taste = np.stack(list(made.region_tastes[home].values()))
    genre_taste = rng.normal(size=(len(users), len(made.genres[domain])))
    level, spread = made.habits[home][:, :1], made.habits[home][:, 1:]
    liking = level + spread * (0.7 * region_taste[:, region] + 0.6 * genre_taste[:, genre]) + made.qualities[domain]
    appeal = 0.8 * liking + rng.gumbel(size=liking.shape)
    user, item = np.nonzero((-appeal).argsort(axis=1).argsort(axis=1) < each)
    rating = np.rint(3.2 + liking[user, item] + rng.normal(0, 0.6, len(user))).clip(1, 5)
    return [users[u] for u in user], [titles[v] for v in item], rating


def write_files(folder: Path, seed: int = 0) -> list[Path]:
    """Two of the catalogues, and what is known about their items, as files of somebody who has never heard of pclf:
    other column names, books by number."""
    import pyarrow as pa
    from pyarrow import csv

    from pclf import datasets

    data = datasets.load("demo", seed=seed)
    film_facts, book_facts = (_facts(truth(seed), domain) for domain in ("films", "books"))
    films, books = data.to_frame("films"), data.to_frame("books")
    number = {title: 1000 + code for code, title in enumerate(data["books"].items.ids)}
    frames = {
        "movies": {"user": films["user_id"], "movie": films["item_id"], "rating": films["rating"].astype(int)},
        "books": {"user": books["user_id"], "book_id": [number[title] for title in books["item_id"]],
                  "rating": books["rating"].astype(int)},
        "book_titles": {"book_id": list(number.values()), "title": list(number)},
        "movie_facts": {"movie": film_facts.pop("item_id"), **film_facts},
        "book_facts": {"book_id": [number[title] for title in book_facts.pop("item_id")], **book_facts},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in frames.items():
        csv.write_csv(pa.table(columns), folder / f"{name}.csv")
    return [folder / f"{name}.csv" for name in frames]


def _titles(domain: str, region: str, genre: str) -> list[str]:
    """As many titles as the genre has patterns, each about another place of the region."""
    places, shift = PLACES[region], list(TITLES[domain]).index(genre)
    return [pattern.format(places[(i + shift) % len(places)])
            for i, pattern in enumerate(TITLES[domain][genre])]


def _picked(rng: np.random.Generator, liking: Tastes, middle: int) -> NDArray[np.bool_]:
    """Which items each user rates: popular ones first, and those they like.   (U, V)"""
    n_users, n_items = liking.shape
    counts = np.rint(middle * np.exp(rng.normal(0, 0.5, n_users))).clip(FEWEST, n_items // 2)
    appeal = rng.normal(0, 0.8, n_items) + 0.8 * liking + rng.gumbel(size=liking.shape)
    rank = (-appeal).argsort(axis=1).argsort(axis=1)   # with Gumbel noise, the first n are n draws by appeal
    picked: NDArray[np.bool_] = rank < counts[:, None]
    return picked
