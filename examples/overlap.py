"""Overlap: on Douban most people rate books and music. What is it worth to know who is who?"""

import sys

import numpy as np

import pclf
from pclf import datasets
from pclf.evaluate.metrics import mae

FOLDS = 3


def errors(shared: bool, given: int) -> np.ndarray:
    """The error in books, fold by fold: on people of whom `given` book ratings are known, and all of their music."""
    data = datasets.load("douban", shared_users=shared)
    people = np.random.default_rng(0).integers(FOLDS, size=data["books"].n_users)
    order = np.random.default_rng(1).random(len(data["books"]))
    out = []
    for fold in range(FOLDS):
        books = data["books"]
        tested = people[books.user] == fold
        by_user = np.lexsort((order, books.user))
        first = np.r_[0, np.flatnonzero(np.diff(books.user[by_user])) + 1]
        place = np.empty(len(books), int)       # 0, 1, ... among the ratings of a person
        place[by_user] = np.arange(len(books)) - np.repeat(first, np.diff([*first, len(books)]))
        hidden = tested & (place >= given)
        model = pclf.PCLF(n_restarts=1, max_iter=20).fit(data.select({"books": ~hidden}), random_state=fold)
        test = data.select({"books": hidden})["books"]
        out.append(mae(test.ratings, model.predict_codes("books", test.user, test.item)))
    return np.array(out)


def main() -> None:
    if not datasets.info("douban").here:
        sys.exit(print("This example needs the Douban ratings of books and music: set PCLF_DATA to a folder that has "
                       "douban/book_ratings.dat and douban/music_ratings.dat."))
    print(datasets.load("douban"), end="\n\n")
    print(f"Mean absolute error in books, {FOLDS} folds of people (± standard deviation over the folds)")
    print(f"{'book ratings known':<20}{'strangers':>18}{'the same people':>18}{'change':>10}")
    for given in (0, 5):
        apart, together = errors(False, given), errors(True, given)
        change = together.mean() / apart.mean() - 1
        print(f"{given:<20}" + "".join(f"{e.mean():>9.4f} ± {e.std(ddof=1):.4f}" for e in (apart, together))
              + f"{change:>10.1%}")


if __name__ == "__main__":
    main()
