"""pclf: cross-domain recommendation from ratings alone.

    data = pclf.Ratings.from_frames({"movies": movies, "books": books})
    model = pclf.PCLF().fit(data)
    model.recommend("books", user, n=10)

Names are imported when they are first used, so that importing pclf costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "Ratings": "pclf.data.ratings", "Scale": "pclf.data.ratings", "Split": "pclf.data.splits",
    "by_time": "pclf.data.splits", "given_n": "pclf.data.splits", "hold_out": "pclf.data.splits",
    "last_n": "pclf.data.splits", "user_folds": "pclf.data.splits",
    "PCLF": "pclf.models.pclf", "RMGM": "pclf.models.rmgm", "FMM": "pclf.models.fmm",
    "EASE": "pclf.models.ease", "Popular": "pclf.models.popular",
    "Bias": "pclf.models.bias", "NMF": "pclf.models.nmf", "CBT": "pclf.models.cbt", "TALMUD": "pclf.models.talmud",
    "RatingFiles": "pclf.data.parts",
    "load": "pclf.models", "compare": "pclf.evaluate.compare", "audit": "pclf.evaluate.audit",
    "Client": "pclf.client",
}
_ROOMS = ("blocks", "choice", "clusters", "data", "datasets", "engines", "errors", "evaluate", "factors", "models",
          "plots", "report", "spark", "storage", "tracking")

__all__ = ["__version__", *_HOME, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"pclf.{name}")
    raise AttributeError(f"module 'pclf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from pclf import blocks as blocks
    from pclf import choice as choice
    from pclf import clusters as clusters
    from pclf import data as data
    from pclf import datasets as datasets
    from pclf import engines as engines
    from pclf import errors as errors
    from pclf import evaluate as evaluate
    from pclf import factors as factors
    from pclf import models as models
    from pclf import plots as plots
    from pclf import report as report
    from pclf import spark as spark
    from pclf import storage as storage
    from pclf import tracking as tracking
    from pclf.client import Client as Client
    from pclf.data.parts import RatingFiles as RatingFiles
    from pclf.data.ratings import Ratings as Ratings
    from pclf.data.ratings import Scale as Scale
    from pclf.data.splits import Split as Split
    from pclf.data.splits import by_time as by_time
    from pclf.data.splits import given_n as given_n
    from pclf.data.splits import hold_out as hold_out
    from pclf.data.splits import last_n as last_n
    from pclf.data.splits import user_folds as user_folds
    from pclf.evaluate.audit import audit as audit
    from pclf.evaluate.compare import compare as compare
    from pclf.models import load as load
    from pclf.models.bias import Bias as Bias
    from pclf.models.cbt import CBT as CBT
    from pclf.models.ease import EASE as EASE
    from pclf.models.fmm import FMM as FMM
    from pclf.models.nmf import NMF as NMF
    from pclf.models.pclf import PCLF as PCLF
    from pclf.models.popular import Popular as Popular
    from pclf.models.rmgm import RMGM as RMGM
    from pclf.models.talmud import TALMUD as TALMUD
