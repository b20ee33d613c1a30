"""Quick start: three catalogues, one fit, lists across them, a guest, a file."""

import tempfile
from pathlib import Path

import pclf
from pclf import datasets

data = datasets.load("demo")   # or pclf.Ratings.from_frames({"films": df, "books": df2})
print(data, end="\n\n")

model = pclf.PCLF(n_restarts=2).fit(data, random_state=0)
print(model, end="\n\n")

print("What was found about books:")
print(model.transfer_["books"], end="\n\n")

print("Books for ana-000, who rated films and never a book:")
for book in model.recommend("books", "ana-000", n=3):
    print(f"  {book.rating:.2f}  {book.title}")

rated = {"A Kiss in Nara": 5, "Robots of Kobe": 5, "Clone City Osaka": 5, "Oh No, Memphis!": 1, "Boston 2099": 2}
guest = model.fold_in({"films": rated})
print("\nBooks for somebody new, who likes Japanese films:")
for book in model.recommend("books", guest, n=3):
    print(f"  {book.rating:.2f}  {book.title}")

best = model.recommend("books", guest, n=1)[0].item
print("\nHow sure? The chances of 1 to 5 stars for the first of these:")
chances = model.predict_proba("books", guest, best)[0]
print("  " + "  ".join(f"{p:.0%}" for p in chances))
print(f"\nWhy?\n{model.explain('books', guest, best)}")

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "model"
    model.save(file)
    again = pclf.load(file)
    same = again.recommend("books", guest) == model.recommend("books", guest)
    print(f"\nSaved, {file.stat().st_size / 1e6:.1f} MB. Loaded, it recommends the same: {same}")
