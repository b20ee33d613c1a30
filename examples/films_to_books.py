"""Films to books: MovieLens 100K and goodbooks have no user in common, and no item."""

import sys

import numpy as np

import pclf
from pclf import datasets

N_READERS, N_BOOKS = 2_500, 1_000   # enough to see something in half a minute
VISITORS = {
    "the blockbuster fan": {"Independence Day": 5, "Titanic (1997)": 5, "Twister": 5, "Liar Liar": 4, "Fargo": 2},
    "the film club member": {"Fargo": 5, "Brazil": 5, "Pulp Fiction": 5, "Citizen Kane": 4, "Twister": 2},
}


def load() -> pclf.Ratings:
    """All of MovieLens 100K; of goodbooks the most rated books, and some readers of them."""
    films, books = datasets.load("ml-100k")["movies"], datasets.load("goodbooks")["books"]
    readers = np.random.default_rng(0).permutation(books.n_users)[:N_READERS]
    some = np.isin(books.user, readers)
    most_rated = np.argsort(-np.bincount(books.item[some], minlength=books.n_items), kind="stable")[:N_BOOKS]
    some &= np.isin(books.item, most_rated)
    everything = np.ones(len(films), bool)
    chosen = {"films": (films, everything), "books": (books, some)}
    return pclf.Ratings.from_arrays(
        {name: (d.users.array()[d.user[rows]], d.items.array()[d.item[rows]], d.ratings[rows])
         for name, (d, rows) in chosen.items()},
        scale=(1, 5), titles={name: dict(zip(d.items.ids, d.titles or (), strict=False))
                              for name, (d, _) in chosen.items()})


def film(data: pclf.Ratings, text: str) -> int:
    """The id of a film by a part of its title."""
    films = data["films"]
    return next(id for code, id in enumerate(films.items.ids) if text in films.title(code))


def main() -> None:
    missing = [name for name in ("ml-100k", "goodbooks") if not datasets.info(name).here]
    if missing:
        sys.exit(print(f"This example needs {' and '.join(missing)}: set PCLF_DATA to a folder that has them, or "
                       f"fetch them once with pclf.datasets.load({missing[0]!r})."))
    data = load()
    print(data, end="\n\n")
    model = pclf.PCLF(n_restarts=2).fit(data)

    print("Four of the clusters that films and books share, with their most typical items:")
    for cluster in [c for c in model.clusters_ if c.view == "common"][:4]:
        for domain, items in cluster.members.items():
            print(f"  {cluster.index}  {domain}: {'; '.join(title for _, title, _ in items[:3])}")

    books = data["books"]
    famous = np.argsort(-np.bincount(books.item, minlength=books.n_items), kind="stable")[:100]
    expected = {}
    for visitor, ratings in VISITORS.items():
        guest = model.fold_in({"films": {film(data, title): rating for title, rating in ratings.items()}})
        expected[visitor] = model.predict("books", guest, books.items.decode(famous))
        print(f"\n{visitor.capitalize()} rated five films. The first books to offer:")
        for book in model.recommend("books", guest, n=3):
            print(f"  {book.score:.2f}  {book.title}")

    fan, member = expected.values()
    print("\nGood books are good for both. The famous ones on which they differ most, and least:")
    print(f"  {'fan':>6} {'member':>6}")
    by_gap = np.argsort(member - fan)
    for i in [*by_gap[:5], *by_gap[-3:]]:
        print(f"  {fan[i]:6.2f} {member[i]:6.2f}  {books.title(int(famous[i]))}")


if __name__ == "__main__":
    main()
