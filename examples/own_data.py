"""Your own data: two CSV files on different scales, with titles, from an export of two shops."""

import csv
import tempfile
from pathlib import Path

import pclf
from pclf import datasets


def write_export(folder: Path) -> None:
    """What a film shop and a book shop might export: other names for columns, 1-5 stars and 1-10 points."""
    demo = datasets.load("demo")
    films, books = demo.to_frame("films"), demo.to_frame("books")
    isbn = {title: f"978-{code:04}" for code, title in enumerate(demo["books"].items.ids)}
    with (folder / "films.csv").open("w", newline="", encoding="utf-8") as file:
        rows = zip(films["user_id"], films["item_id"], films["rating"].astype(int), strict=True)
        csv.writer(file).writerows([("customer", "film", "stars"), *rows])
    with (folder / "books.csv").open("w", newline="", encoding="utf-8") as file:
        points = [int(2 * rating) - row % 2 for row, rating in enumerate(books["rating"])]
        ids = [isbn[title] for title in books["item_id"]]
        csv.writer(file, delimiter=";").writerows(
            [("User-ID", "ISBN", "Book-Rating"), *zip(books["user_id"], ids, points, strict=True)])
    with (folder / "titles.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("isbn", "title"), *((id, title) for title, id in isbn.items())])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_export(folder)
        for file in ("films.csv", "books.csv", "titles.csv"):
            print(f"{file}: {' / '.join((folder / file).read_text(encoding='utf-8').splitlines()[:2])}")

        with (folder / "titles.csv").open(encoding="utf-8") as file:
            titles = {row["isbn"]: row["title"] for row in csv.DictReader(file)}
        data = pclf.Ratings.from_files(
            {"films": folder / "films.csv", "books": folder / "books.csv"},
            scale={"films": (1, 5), "books": (1, 10)},   # the whole scale, whether or not every value occurs
            titles={"books": titles})
    print(f"\n{data}\n")

    model = pclf.PCLF(n_restarts=1).fit(data)
    print(model)
    print("\nBooks for ana-000 of the film shop, in points of 10:")
    for book in model.recommend("books", "ana-000", n=3):
        print(f"  {book.rating:.1f}  {book.title} ({book.item})")
    print("\nFilms for kofi-560 of the book shop, in stars of 5:")
    for film in model.recommend("films", "kofi-560", n=3):
        print(f"  {film.rating:.1f}  {film.title}")


if __name__ == "__main__":
    main()
