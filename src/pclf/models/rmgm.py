"""RMGM: every domain draws from one cluster-level rating model.

Li, Yang & Xue, "Transfer Learning for Collaborative Filtering via a Rating-Matrix Generative Model", ICML 2009.
Prediction is the posterior mean rating:

    E[r | u, v] = sum_r r sum_kc P(r | k, c) P(k | u) P(c | v)

Against FMM: all domains share user clusters, item clusters and the table. Against PCLF: no domain keeps item
clusters of its own.
"""

from pclf.data.ratings import Ratings
from pclf.problem import Layout, View
from pclf.models.mixture import _OneView


class RMGM(_OneView):
    """All domains in one view."""

    def _layout(self, ratings: Ratings) -> Layout:
        view = View("common", tuple(range(len(ratings.domains))), self.n_item_clusters)
        return Layout(self.n_user_clusters, (view,))
