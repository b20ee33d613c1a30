"""PCLF: the probabilistic cluster-level latent factor model.

Ren & Gao, "Improving Cross-domain Recommendation through Probabilistic Cluster-level Latent Factor Model". User
clusters are shared by all domains. Items have two memberships: in T common clusters, shared by all domains, and
in L_z clusters of their own domain. The prediction in domain z weighs both, eq. (Fr):

    f(u, v) = W1 p_u S_com p_vcom  +  W2 p_u S_spez p_vspez,      W1 + W2 = 1

Against RMGM: domains keep patterns of their own. Against FMM: they share some.
"""

from collections.abc import Mapping
from typing import Any

from pclf.data.ratings import Ratings
from pclf.problem import Layout, View
from pclf.models.base import Floats
from pclf.models.mixture import PLAIN, _Mixture, checked, of_domain
from pclf.models.weights import Transfer


class PCLF(_Mixture):
    """Common and domain-specific item clusters over shared user clusters, with a personal view beside them.

    n_specific_clusters: L, one number or a dict with one for each domain.
    common_weight: W1, a number or a dict; "auto" learns it for each domain from ratings held out of training, and
    leaves it at 0 where the common clusters do not surely help there; `transfer_` says what was found.

    `PCLF.paper()` is the model as published.
    """

    def __init__(self, n_user_clusters: int = 20, n_common_clusters: int = 10,
                 n_specific_clusters: int | Mapping[str, int] = 15, *,
                 common_weight: float | str | Mapping[str, float] = "auto", user_prior: float = 2.0,
                 item_prior: float = 1.0, table_prior: float = 1.0,
                 personal_weight: float | str | Mapping[str, float] = "auto",
                 personal_factors: int | str = "auto",
                 start: str = "memberships", betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5,
                 max_iter: int = 35, tol: float = 1e-5, early_stopping: bool = False,
                 n_restarts: int | str = "auto", combine: str = "average") -> None:
        self.n_user_clusters = n_user_clusters
        self.n_common_clusters = n_common_clusters
        self.n_specific_clusters = n_specific_clusters
        self.common_weight = common_weight
        self.user_prior = user_prior
        self.item_prior = item_prior
        self.table_prior = table_prior
        self.personal_weight = personal_weight
        self.personal_factors = personal_factors
        self.start = start
        self.betas = betas
        self.steps_per_beta = steps_per_beta
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.n_restarts = n_restarts
        self.combine = combine

    @classmethod
    def paper(cls, **settings: Any) -> "PCLF":
        """The model as published: plain annealed EM from random posteriors, K=20, T=10, L=15, W1=0.35."""
        return cls(**{"common_weight": 0.35, **PLAIN, **settings})

    @property
    def common_rating_matrix_(self) -> dict[str, Floats]:
        """S_com of eq. (Scom) on each domain's scale: (K, T). The same matrix where the scales are the same."""
        self._check_fitted()
        return {name: self.rating_matrix(0, name) for name in self.data_.domains}

    @property
    def specific_rating_matrices_(self) -> dict[str, Floats]:
        """S_spez of eqs. (Sspeone), (Sspetwo): (K, L_z) for each domain."""
        self._check_fitted()
        return {name: self.rating_matrix(1 + z, name) for z, name in enumerate(self.data_.domains)}

    def set_common_weight(self, domain: str, weight: float) -> None:
        """Change W1 of a domain after training: predictions follow at once, as far as clusters are heard in them."""
        self._domain(domain)
        weight = checked(weight, "common_weight", domain)
        self._set_weights(domain, weight, self.personal_weights_.get(domain, 0.0))
        self.transfer_[domain] = Transfer(weight, None, f"W1 of {domain} is {weight:g}, as set.")

    def _layout(self, ratings: Ratings) -> Layout:
        names = list(ratings.domains)
        common = View("common", tuple(range(len(names))), self.n_common_clusters)
        specific = (View(name, (z,), of_domain(self.n_specific_clusters, name, "n_specific_clusters", names))
                    for z, name in enumerate(names))
        return Layout(self.n_user_clusters, (common, *specific))

    def _common_weight(self, ratings: Ratings, name: str) -> float | None:
        weight = of_domain(self.common_weight, name, "common_weight", list(ratings.domains))
        return None if weight == "auto" else checked(weight, "common_weight", name)

    def _set_weights(self, domain: str, common: float, own: float) -> None:
        super()._set_weights(domain, common, own)
        z = list(self.data_.domains).index(domain)
        self.weights_[domain] = {0: common, 1 + z: 1.0 - common}

    def _transfer(self, domain: str, weight: float, gain: float) -> Transfer:
        set_to = self.common_weight[domain] if isinstance(self.common_weight, Mapping) else self.common_weight
        if set_to != "auto":
            return Transfer(weight, gain, f"W1 of {domain} is {weight:g}, as set.")
        if not weight:
            return Transfer(weight, gain, f"W1 of {domain} is 0: held-out ratings do not surely gain from the common "
                                          f"clusters.")
        return Transfer(weight, gain, f"W1 of {domain} is {weight:g}: on held-out ratings the common clusters raise "
                                      f"the log score by {gain:.1g} a rating.")
