"""FMM: the flexible mixture model, one domain alone.

Si & Jin, "Flexible Mixture Model for Collaborative Filtering", ICML 2003. Users and items each belong to
clusters of their own kind, and the rating depends on the pair of clusters:

    P(u, v, r) = sum_kc  P(k) P(u | k)  P(c) P(v | c)  P(r | k, c)

Given several domains, each is fitted apart: users of different domains have no clusters in common, and a user of
one domain is scored in another like anybody there.
"""

from pclf.data.ratings import Ratings
from pclf.em.state import Layout, View
from pclf.models.mixture import _Mixture


class FMM(_Mixture):
    """Single-domain mixture. The twin against which pooling is measured."""

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
        views = tuple(View(name, (z,), self.n_item_clusters) for z, name in enumerate(ratings.domains))
        return Layout(self.n_user_clusters, views, separate_users=True)
