"""Films to books: MovieLens 100K and goodbooks have no user in common, and no item."""

from typing import Any

import numpy as np
from scipy.stats import spearmanr

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


def compare(model: pclf.PCLF, first: Any, second: Any) -> None:
    """What two guests are expected to give to the most rated books, and whether they would choose others."""
    books = model.data_["books"]
    famous = np.argsort(-np.bincount(books.item, minlength=books.n_items), kind="stable")[:100]
    a, b = (model.predict("books", guest, books.items.decode(famous)) for guest in (first, second))
    print(f"\nThe fan is expected to rate {np.mean(a > b):.0%} of the 100 most rated books higher than the member "
          f"does.\nRank correlation of their orders: {spearmanr(a, b).statistic:.3f}. The largest differences, and the "
          f"smallest:")
    print(f"  {'fan':>6} {'member':>6}")
    order = np.argsort(-np.abs(a - b), kind="stable")
    for i in [*order[:3], *order[-3:]]:
        print(f"  {a[i]:6.2f} {b[i]:6.2f}  {books.title(int(famous[i]))}")


def main() -> None:
    missing = [name for name in ("ml-100k", "goodbooks") if not datasets.info(name).here]
    if missing:
        print(f"This example needs {' and '.join(missing)}: set PCLF_DATA to a folder that has them, or fetch them "
              f"once with pclf.datasets.load(...).")
        return
    data = load()
    print(data, end="\n\n")
    model = pclf.PCLF(n_restarts=2).fit(data)

    print("Four of the clusters that films and books share: mean rating by the user clusters, most typical items")
    mean = model.common_rating_matrix_["films"].mean(axis=0)   # (T,); the scales are the same, so are the matrices
    for cluster in sorted((c for c in model.clusters_ if c.view == "common"), key=lambda c: -mean[c.index])[::3]:
        print(f"  {mean[cluster.index]:.1f}")
        for domain, items in cluster.members.items():
            print(f"       {domain}: {'; '.join(title for _, title, _ in items[:3])}")

    guests = {name: model.fold_in({"films": {film(data, title): rating for title, rating in ratings.items()}})
              for name, ratings in VISITORS.items()}
    for name, guest in guests.items():
        print(f"\n{name.capitalize()} rated five films. The first books to offer:")
        for book in model.recommend("books", guest, n=3):
            print(f"  {book.score:.2f}  {book.title}")

    compare(model, *guests.values())


if __name__ == "__main__":
    main()
