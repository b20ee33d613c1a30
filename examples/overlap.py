"""Overlap: on Douban most people rate both books and music. What is it worth to know who is who?"""

import numpy as np

import pclf
from pclf import datasets
from pclf.evaluate.metrics import mae

FOLDS = 3


def errors(data: pclf.Ratings, model: pclf.models.base.Recommender) -> list[float]:
    """The error in books, fold by fold, on people whose book ratings are all hidden."""
    books, out = data["books"], []
    fold = np.random.default_rng(0).integers(FOLDS, size=books.n_users)
    for i in range(FOLDS):
        hidden = fold[books.user] == i
        model.fit(data.select({"books": ~hidden}), random_state=i)
        out.append(mae(books.ratings[hidden], model.predict_codes("books", books.user[hidden], books.item[hidden])))
    return out


def main() -> None:
    if not datasets.info("douban").here:
        print("This example needs the Douban ratings of books and music: set PCLF_DATA to a folder that has "
              "douban/book_ratings.dat and douban/music_ratings.dat.")
        return
    same, strangers = (datasets.load("douban", shared_users=shared) for shared in (True, False))
    print(same, end="\n\n")
    model = pclf.PCLF(n_restarts=1, lists=False)      # ratings are asked for here, and no lists
    found = {
        "item means (bias model)": errors(strangers, pclf.Bias()),
        "PCLF, every id a stranger": errors(strangers, model),
        "PCLF, one id one person": errors(same, model),
    }
    print(f"Mean absolute error in books, for people who have rated none, in {FOLDS} folds of people:")
    for name, values in found.items():
        print(f"  {name:<26}{np.mean(values):.4f}   ({', '.join(f'{v:.4f}' for v in values)})")
    apart, together = (np.mean(values) for values in list(found.values())[1:])
    print(f"To know who is who changes the error by {together / apart - 1:+.1%}.")


if __name__ == "__main__":
    main()
