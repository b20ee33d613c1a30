"""PCLF: the probabilistic cluster-level latent factor model.

Ren & Gao, "Improving Cross-domain Recommendation through Probabilistic Cluster-level Latent Factor Model". User
clusters are shared by all domains. Items have two memberships: in T common clusters, shared by all domains, and
in L_z clusters of their own domain. The prediction in domain z weighs both, eq. (Fr):

    f(u, v) = W1 p_u S_com p_vcom  +  W2 p_u S_spez p_vspez,      W1 + W2 = 1

Against RMGM: domains keep patterns of their own. Against FMM: they share some.
"""

from collections.abc import Mapping

import numpy as np

from pclf.data.ratings import Ratings
from pclf.em.state import Layout, View
from pclf.errors import UnknownNameError, did_you_mean
from pclf.models.base import Floats
from pclf.models.mixture import _Mixture


class PCLF(_Mixture):
    """Common and domain-specific item clusters over shared user clusters.

    n_specific_clusters, common_weight: one number, or a dict with one for each domain. common_weight is W1.
    """

    def __init__(self, n_user_clusters: int = 20, n_common_clusters: int = 10,
                 n_specific_clusters: int | Mapping[str, int] = 15, *,
                 common_weight: float | Mapping[str, float] = 0.35, user_prior: float = 0.0,
                 item_prior: float = 0.0, table_prior: float = 0.0, start: str = "memberships",
                 betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5, max_iter: int = 50,
                 tol: float = 1e-5, n_restarts: int = 1, combine: str = "average") -> None:
        self.n_user_clusters = n_user_clusters
        self.n_common_clusters = n_common_clusters
        self.n_specific_clusters = n_specific_clusters
        self.common_weight = common_weight
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

    @property
    def common_rating_matrix_(self) -> dict[str, Floats]:
        """S_com of eq. (Scom) on each domain's scale: (K, T). The same matrix where the scales are the same."""
        return {name: self.rating_matrix(0, name) for name in self.data_.domains}

    @property
    def specific_rating_matrices_(self) -> dict[str, Floats]:
        """S_spez of eqs. (Sspeone), (Sspetwo): (K, L_z) for each domain."""
        return {name: self.rating_matrix(1 + z, name) for z, name in enumerate(self.data_.domains)}

    def set_common_weight(self, domain: str, weight: float) -> None:
        """Change W1 of a domain after training: predictions follow at once."""
        self._domain(domain)
        z = list(self.data_.domains).index(domain)
        self.weights_[domain] = _pair(z, _checked(weight, domain))

    def _layout(self, ratings: Ratings) -> Layout:
        names = list(ratings.domains)
        common = View("common", tuple(range(len(names))), self.n_common_clusters)
        specific = (View(name, (z,), int(_of_domain(self.n_specific_clusters, name, "n_specific_clusters", names)))
                    for z, name in enumerate(names))
        return Layout(self.n_user_clusters, (common, *specific))

    def _weights(self, ratings: Ratings) -> dict[str, dict[int, float]]:
        names = list(ratings.domains)
        return {name: _pair(z, _checked(_of_domain(self.common_weight, name, "common_weight", names), name))
                for z, name in enumerate(names)}

    def _check_settings(self, ratings: Ratings) -> None:
        super()._check_settings(ratings)
        self._weights(ratings)


def _pair(z: int, weight: float) -> dict[int, float]:
    return {0: weight, 1 + z: 1.0 - weight}


def _of_domain(setting: float | Mapping[str, float], name: str, what: str, names: list[str]) -> float:
    if not isinstance(setting, Mapping):
        return setting
    for key in setting:
        if key not in names:
            raise UnknownNameError(did_you_mean(key, names, f"domain in {what}"))
    if name not in setting:
        raise ValueError(f"{what} must name every domain; {name!r} is missing from {dict(setting)}.")
    return setting[name]


def _checked(weight: float, domain: str) -> float:
    if not 0 <= weight <= 1 or not np.isfinite(weight):
        raise ValueError(f"common_weight must be between 0 and 1; got {weight} for domain {domain!r}.")
    return float(weight)
