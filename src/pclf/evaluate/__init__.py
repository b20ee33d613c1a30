"""Evaluate: metrics, models compared over splits, the paper's experiment."""

from pclf.evaluate.compare import Comparison, compare
from pclf.evaluate.paper import Reproduction, reproduce
from pclf.evaluate.significance import holm, paired_tests

__all__ = ["Comparison", "Reproduction", "compare", "holm", "paired_tests", "reproduce"]
