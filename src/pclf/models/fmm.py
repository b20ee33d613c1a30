"""FMM: the flexible mixture model, one domain alone.

Si & Jin, "Flexible Mixture Model for Collaborative Filtering", ICML 2003. Users and items each belong to
clusters of their own kind, and the rating depends on the pair of clusters:

    P(u, v, r) = sum_kc  P(k) P(u | k)  P(c) P(v | c)  P(r | k, c)

Given several domains, each is fitted apart: users of different domains have no clusters in common, and a user of
one domain is scored in another like anybody there.
"""

from typing import Any

from pclf.data.ratings import Ratings
from pclf.models.base import Recommender
from pclf.models.mixture import PLAIN, Mixture
from pclf.problem import Layout, View


class FMM(Mixture, Recommender):
    """Single-domain mixture, with priors. `FMM.paper()` is the model as published: plain annealed EM.

    user_prior, item_prior, table_prior: pseudo-ratings of the priors; 0 is plain maximum likelihood.
    start: "memberships" (cheap) or "posteriors" (the paper's), either with " by id" behind it for random numbers that
    depend on ids and not on the order of rows. betas, steps_per_beta: the annealing.
    max_iter, tol: when EM stops. early_stopping: try on four fifths of the ratings first, and stop all fits after the
    iteration that was best for the rest. n_restarts: fits, "auto" for as many as pay. combine: "average" their
    predictions, or keep the "best".
    """

    def __init__(self, n_user_clusters: int = 20, n_item_clusters: int = 20, *, user_prior: float = 1.0,
                 item_prior: float = 1.0, table_prior: float = 1.0, start: str = "memberships",
                 betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5, max_iter: int = 35,
                 tol: float = 1e-5, early_stopping: bool = False, n_restarts: int | str = "auto",
                 combine: str = "average") -> None:
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
        self.early_stopping = early_stopping
        self.n_restarts = n_restarts
        self.combine = combine

    @classmethod
    def paper(cls, **settings: Any) -> "FMM":
        """The model as published: plain annealed EM from random posteriors."""
        return cls(**{**PLAIN, **settings})

    def _layout(self, ratings: Ratings) -> Layout:
        views = tuple(View(name, (z,), self.n_item_clusters) for z, name in enumerate(ratings.domains))
        return Layout(self.n_user_clusters, views, separate_users=True)
