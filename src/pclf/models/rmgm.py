"""RMGM: every domain draws from one cluster-level rating model.

Li, Yang & Xue, "Transfer Learning for Collaborative Filtering via a Rating-Matrix Generative Model", ICML 2009.
Prediction is the posterior mean rating:

    E[r | u, v] = sum_r r sum_kc P(r | k, c) P(k | u) P(c | v)

Against FMM: all domains share user clusters, item clusters and the table. Against PCLF: no domain keeps item
clusters of its own.
"""

from pclf.data.ratings import Ratings
from pclf.em.state import Layout, View
from pclf.models.mixture import _Mixture


class RMGM(_Mixture):
    """All domains in one view."""

    def __init__(self, n_user_clusters: int = 20, n_item_clusters: int = 20, *, user_prior: float = 0.0,
                 item_prior: float = 0.0, table_prior: float = 0.0, start: str = "memberships",
                 betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5, max_iter: int = 50,
                 tol: float = 1e-5, n_restarts: int = 1, combine: str = "average") -> None:
        self.n_user_clusters = n_user_clusters
        self.n_item_clusters = n_item_clusters
        self.user_prior = user_prior
        self.item_prior = item_prior
        self.table_prior = table_prior
        self.start = start
        self.betas = betas
        self.steps_per_beta = steps_per_beta
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.combine = combine

    def _layout(self, ratings: Ratings) -> Layout:
        view = View("common", tuple(range(len(ratings.domains))), self.n_item_clusters)
        return Layout(self.n_user_clusters, (view,))
