"""Plots of fitted models, each a function that returns a matplotlib Axes."""

from pclf.report.plots import *  # noqa: F403
from pclf.report.plots import __all__ as __all__
