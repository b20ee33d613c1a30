"""FMM: the flexible mixture model, one domain alone.

Si & Jin, "Flexible Mixture Model for Collaborative Filtering", ICML 2003. Users and items each belong to
clusters of their own kind, and the rating depends on the pair of clusters:

    P(u, v, r) = sum_kc  P(k) P(u | k)  P(c) P(v | c)  P(r | k, c)

Given several domains, each is fitted apart: users of different domains have no clusters in common, and a user of
one domain is scored in another like anybody there.
"""

from pclf.data.ratings import Ratings
from pclf.problem import Layout, View
from pclf.models.mixture import _OneView


class FMM(_OneView):
    """Single-domain mixture. The twin against which pooling is measured."""

    def _layout(self, ratings: Ratings) -> Layout:
        views = tuple(View(name, (z,), self.n_item_clusters) for z, name in enumerate(ratings.domains))
        return Layout(self.n_user_clusters, views, separate_users=True)
