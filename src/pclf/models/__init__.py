"""The models, all with one contract: `create` makes one by name, `load` reads one from a file."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pclf.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from pclf.models.base import Recommender
    from pclf.models.bias import Bias as Bias
    from pclf.models.cbt import CBT as CBT
    from pclf.models.ease import EASE as EASE
    from pclf.models.fmm import FMM as FMM
    from pclf.models.nmf import NMF as NMF
    from pclf.models.pclf import PCLF as PCLF
    from pclf.models.popular import Popular as Popular
    from pclf.models.rmgm import RMGM as RMGM
    from pclf.models.talmud import TALMUD as TALMUD

NAMES = ("PCLF", "RMGM", "FMM", "CBT", "TALMUD", "NMF", "Bias", "EASE", "Popular")
RANKERS = ("EASE", "Popular")     # of these, those that sort items and predict no ratings


def create(name: str, **settings: Any) -> "Recommender":
    """A model by its name, upper or lower case."""
    by_lower = {known.lower(): known for known in NAMES}
    if name.lower() not in by_lower:
        raise UnknownNameError(did_you_mean(name, list(NAMES), "model"))
    return getattr(import_module(f"pclf.models.{name.lower()}"), by_lower[name.lower()])(**settings)  # type: ignore[no-any-return]


def load(path: str | Path, *, key: str | bytes | None = None) -> "Recommender":
    """A model that `save` wrote, a file or a folder; of a class of your own, once that is imported.

    key: the secret that it must have been saved with. Without one, a file is known to be whole and to hold a model, but
    not who made it.
    """
    from pclf import door, storage
    from pclf.models import disk

    if disk.is_folder_of_model(Path(path)):
        whole: Recommender = disk.load(_made, Path(path), key)
        return whole
    file = storage.load(path, key)
    with door.opening(path):
        model = _made(file.kind, file.settings)
        model._restore(file.data, file.arrays, file.extra)
    return model


def _made(kind: str, settings: dict[str, Any]) -> "Recommender":
    """A model by the name of its class."""
    from pclf.models.base import Recommender

    own = {known.__name__: known for known in _children(Recommender)}
    return own[kind](**settings) if kind in own else create(kind, **settings)


def _children(kind: type[Any]) -> list[type[Any]]:
    return [found for child in kind.__subclasses__() for found in (child, *_children(child))]


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return getattr(import_module(f"pclf.models.{name.lower()}"), name)
    raise AttributeError(f"module 'pclf.models' has no attribute {name!r}")
