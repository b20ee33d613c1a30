"""TALMUD: codebooks of several sources, each with a weight that says how related it is to the target.

Moreno, Shapira, Rokach & Shani, "TALMUD: Transfer Learning for Multiple Domains", CIKM 2012:

    min |W * (Y - sum_n a(n) U(n) B(n) V(n)')|^2    over memberships U(n), V(n) and weights a(n)

The codebooks B(n) are CBT's, one of each source. The weights are the least-squares solution given the
memberships; the memberships are the best ones given the weights. Neither step raises the error.

What differs from the paper: the clusters of a user or an item are chosen for one source after the other, not
over all combinations of clusters, and every source is first expanded alone, as in CBT. Codebooks are moved to
the target's mean (see `cbt`). With one source this is CBT with a weight.
"""

from collections.abc import Sequence

from pclf.data.ratings import Ratings
from pclf.models.base import Recommender
from pclf.models.cbt import Codebooks, other_domains


class TALMUD(Codebooks, Recommender):
    """Transfer from several domains, by default from all the others.

    sources: the domains to learn from. `weights_["books"]["films"]` is how related films are to books.
    """

    weighted = True

    def __init__(self, n_user_clusters: int = 8, n_item_clusters: int = 8, *,
                 sources: Sequence[str] | None = None, codebook: str = "learned", match_means: bool = True,
                 max_iter: int = 50, n_restarts: int = 3) -> None:
        self.n_user_clusters = n_user_clusters
        self.n_item_clusters = n_item_clusters
        self.sources = sources
        self.codebook = codebook
        self.match_means = match_means
        self.max_iter = max_iter
        self.n_restarts = n_restarts

    def _sources(self, ratings: Ratings, target: str) -> list[str]:
        return other_domains(ratings, target, [self.sources] if isinstance(self.sources, str) else self.sources or ())
