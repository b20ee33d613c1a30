"""Films to books: MovieLens and goodbooks have no person in common, and no item. They have genres, in other words."""

from collections import Counter
from typing import Any

import numpy as np

import pclf
from pclf import datasets

N_VIEWERS, N_READERS, N_BOOKS = 2_000, 2_500, 1_500     # enough to see something in a minute
SAID_AS = {                  # what MovieLens calls it, and words on the shelves of readers
    "Horror": "horror vampires gothic", "Romance": "romance romantic chick", "Thriller": "thriller thrillers suspense",
    "Mystery": "mystery mysteries", "Crime": "crime detective", "Sci-Fi": "scifi sci", "Fantasy": "fantasy magic",
    "Comedy": "humor funny comedy", "Children's": "children childrens", "War": "war", "Adventure": "adventure",
    "Action": "action", "Western": "western", "Musical": "music", "Drama": "drama plays",
    "Documentary": "biography history nonfiction",
}
GENRE = {word: genre for genre, words in SAID_AS.items() for word in words.split()}
ENOUGH = 2                   # shelves that must say so
GUESTS = {
    "horror": ("Psycho (1960)", "Exorcist, The (1973)", "Nightmare on Elm Street, A (1984)", "Shining, The (1980)",
               "Halloween (1978)", "Evil Dead II (Dead By Dawn) (1987)", "Night of the Living Dead (1968)",
               "Carrie (1976)"),
    "romances": ("Sleepless in Seattle (1993)", "Pretty Woman (1990)", "You've Got Mail (1998)", "Notting Hill (1999)",
                 "Sense and Sensibility (1995)", "Four Weddings and a Funeral (1994)", "Jerry Maguire (1996)",
                 "Ever After: A Cinderella Story (1998)"),
}


def load() -> pclf.Ratings:
    """Some viewers of MovieLens 1M; of goodbooks the most rated books and some of their readers; genres of both."""
    films, books = datasets.load("ml-1m"), datasets.load("goodbooks")
    rng = np.random.default_rng(0)
    viewers = rng.permutation(films["movies"].n_users)[:N_VIEWERS]
    readers = rng.permutation(books["books"].n_users)[:N_READERS]
    often = np.argsort(-np.bincount(books["books"].item), kind="stable")[:N_BOOKS]
    some = {"films": (films["movies"], np.isin(films["movies"].user, viewers)),
            "books": (books["books"], np.isin(books["books"].user, readers) & np.isin(books["books"].item, often))}
    of_films, of_books = films.facts("movies"), books.facts("books")
    return pclf.Ratings.from_arrays(
        {name: (d.users.array()[d.user[rows]], d.items.array()[d.item[rows]], d.ratings[rows])
         for name, (d, rows) in some.items()},
        scale=(1, 5), titles={name: dict(zip(d.items.ids, d.titles or (), strict=False))
                              for name, (d, _) in some.items()},
        attributes={"films": {"item_id": of_films["item_id"], "genre": of_films["genre"]},
                    "books": {"item_id": of_books["item_id"], "genre": list(map(genres, of_books["genre"]))}})


def genres(shelves: list[str]) -> list[str]:
    """The genres of a book, in the words of films, from the names of the shelves that readers put it on."""
    said = Counter(genre for shelf in shelves for genre in {GENRE[word] for word in shelf.split("-") if word in GENRE})
    return sorted(genre for genre, n in said.items() if n >= ENOUGH)


def main() -> None:
    missing = [name for name in ("ml-1m", "goodbooks") if not datasets.info(name).here]
    if missing:
        print(f"This example needs {' and '.join(missing)}: set PCLF_DATA to a folder that has them, or fetch them "
              f"once with pclf.datasets.load(...).")
        return
    data = load()
    print(data, end="\n\n")
    model = pclf.PCLF(n_restarts=1).fit(data)
    print(model.transfer_["books"])

    film = {data["films"].title(code): id for code, id in enumerate(data["films"].items.ids)}
    for loved, hated in (("horror", "romances"), ("romances", "horror")):
        ratings = dict.fromkeys(GUESTS[loved], 5) | dict.fromkeys(GUESTS[hated][:4], 2)
        guest = model.fold_in({"films": {film[title]: rating for title, rating in ratings.items()}})
        found = model.recommend("books", guest, n=10)
        print(f"\nSomebody who loves {loved}, by {len(ratings)} films and no book. Books to offer:")
        show(found, data)
        print(model.explain("books", guest, found[0].item))


def show(books: list[Any], data: pclf.Ratings) -> None:
    genre = dict(zip(data.facts("books")["item_id"], data.facts("books")["genre"], strict=True))
    for book in books:
        print(f"  {book.rating:.2f}  {book.title[:50]:<50}  {', '.join(genre[book.item] or ())}".rstrip())


if __name__ == "__main__":
    main()
