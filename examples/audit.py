"""Audit: does pooling films with books help either of them? Measured on people held out of the fit."""

import pclf
from pclf import datasets

data = datasets.load("demo").only(["films", "books"])

# Small settings and few repeats, to have an answer in half a minute. The default is five repeats of PCLF().
model = pclf.PCLF(n_user_clusters=10, n_common_clusters=5, n_specific_clusters=5, n_restarts=1, max_iter=20)
found = pclf.audit(data, given=5, repeats=3, sizes=(20, None), model=model)
print(found)

print("\nFor scripts, every comparison is a row:")
row = next(row for row in found.rows if row["sources"] and row["against"])
print({name: row[name] for name in ("target", "model", "sources", "measure", "mean", "against", "effect_percent",
                                    "p_holm")})
