"""Ratings in: domains, scales, vocabularies, splits."""

from pclf.data.ratings import Domain, Ratings
from pclf.data.scale import Scale
from pclf.data.vocabulary import Vocabulary

__all__ = ["Domain", "Ratings", "Scale", "Vocabulary"]
