"""The specification: the paper's E-step as written, in NumPy. Slow, and never unclear.

Every other engine is tested against this one, on whole fits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.state import Params, Stats
from pclf.problem import Problem

BLOCK = 10_000   # ratings whose posteriors are held at a time: K * C numbers each


class ReferenceEngine:
    name = "reference"

    def place(self, problem: Problem) -> Problem:
        return problem

    def estep(self, data: Problem, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posteriors of eqs. (postzero), (postone), (posttwo).

            P(k, c | u, v, r)  is proportional to  [P(u, k) P(v, c) P(r | k, c)] ** beta

        A view sums over the ratings of its domains; user counts add up over the views, as in eq. (uConCu).
        """
        users = np.zeros_like(params.users)
        items = tuple(np.zeros_like(x) for x in params.items)
        tables = tuple(np.zeros_like(x) for x in params.tables)
        objective = 0.0
        for i, view in enumerate(data.layout.views):
            for z, item_rows in zip(view.domains, data.item_rows[i], strict=True):
                u, v, r = data.user_rows[z][data.user[z]], item_rows[data.item[z]], data.level[z]
                for block in np.array_split(np.arange(len(r)), max(1, len(r) // BLOCK)):
                    bu, bv, br = u[block], v[block], r[block]
                    joint = (params.users[bu][:, :, None] * params.items[i][bv][:, None, :]
                             * params.tables[i][br]) ** beta                             # (n, K, C)
                    total = joint.sum(axis=(1, 2))                                       # (n,)
                    posterior = view.weight * joint / total[:, None, None]
                    np.add.at(users, bu, posterior.sum(axis=2))
                    np.add.at(items[i], bv, posterior.sum(axis=1))
                    np.add.at(tables[i], br, posterior)
                    objective += view.weight * float(np.log(total).sum()) / beta
        return Stats(users, items, tables, objective)

    def put(self, array: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(array, np.float64)

    def get(self, array: NDArray[Any]) -> NDArray[np.float64]:
        return array
