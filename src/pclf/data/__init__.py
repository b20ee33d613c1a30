"""Ratings in: domains, scales, vocabularies, splits."""

from pclf.data.attributes import Attributes
from pclf.data.features import ColumnInfo, Feature
from pclf.data.ratings import Domain, Ratings
from pclf.data.scale import Scale
from pclf.data.splits import Split, given_n, hold_out, user_folds
from pclf.data.vocabulary import Vocabulary

__all__ = ["Attributes", "ColumnInfo", "Domain", "Feature", "Ratings", "Scale", "Split", "Vocabulary", "given_n",
           "hold_out", "user_folds"]
