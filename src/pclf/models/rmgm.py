"""RMGM: every domain draws from one cluster-level rating model.

Li, Yang & Xue, "Transfer Learning for Collaborative Filtering via a Rating-Matrix Generative Model", ICML 2009.
Prediction is the posterior mean rating:

    E[r | u, v] = sum_r r sum_kc P(r | k, c) P(k | u) P(c | v)

Against FMM: all domains share user clusters, item clusters and the table. Against PCLF: no domain keeps item
clusters of its own.
"""

from typing import Any

from pclf.data.ratings import Ratings
from pclf.models.base import Recommender
from pclf.models.mixture import PLAIN, Mixture
from pclf.problem import Layout, View


class RMGM(Mixture, Recommender):
    """All domains in one view, with priors. `RMGM.paper()` is the model as published: plain annealed EM.

    The settings are those of FMM.
    """

    def __init__(self, n_user_clusters: int = 20, n_item_clusters: int = 20, *, user_prior: float = 1.0,
                 item_prior: float = 1.0, table_prior: float = 1.0, start: str = "memberships",
                 betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5, max_iter: int = 35,
                 tol: float = 1e-5, early_stopping: bool = False, n_restarts: int | str = "auto",
                 combine: str = "average") -> None:
        self.n_user_clusters, self.n_item_clusters = n_user_clusters, n_item_clusters
        self.user_prior, self.item_prior, self.table_prior = user_prior, item_prior, table_prior
        self.start, self.betas, self.steps_per_beta = start, betas, steps_per_beta
        self.max_iter, self.tol, self.early_stopping = max_iter, tol, early_stopping
        self.n_restarts, self.combine = n_restarts, combine

    @classmethod
    def paper(cls, **settings: Any) -> "RMGM":
        """The model as published: plain annealed EM from random posteriors."""
        return cls(**{**PLAIN, **settings})

    def _layout(self, ratings: Ratings) -> Layout:
        view = View("common", tuple(range(len(ratings.domains))), self.n_item_clusters)
        return Layout(self.n_user_clusters, (view,))
