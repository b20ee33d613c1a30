"""Tracking: a fitted model as an MLflow model, which MLflow's own servers and jobs can load without knowing pclf.

    pclf.tracking.save_pyfunc(model, "exported")
    mlflow.pyfunc.load_model("exported").predict(frame)      # columns user, domain, and n where it is not 10

The file inside is what `save` writes: no pickle of a model travels. MLflow must be installed to call this.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pclf.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from pclf.models.base import Recommender

COLUMNS = ("user", "domain")


def save_pyfunc(model: "Recommender", path: str | Path) -> Path:
    """Write a model as a folder that `mlflow.pyfunc.load_model` reads; `mlflow.pyfunc.log_model` takes its parts."""
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        model.save(file)
        mlflow.pyfunc.save_model(path=str(path), loader_module="pclf.tracking", data_path=str(file),
                                 pip_requirements=["pclf"])
    return Path(path)


def _load_pyfunc(path: str) -> "Lists":
    """What MLflow calls to load a model."""
    from pclf import models

    return Lists(models.load(path))


class Lists:
    """A model with MLflow's one word, `predict`: a row a recommendation."""

    def __init__(self, model: "Recommender") -> None:
        self.model = model

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> Any:
        """Lists for the users of a frame with the columns user and domain, and n where it is not 10."""
        import narwhals as nw

        asked = nw.from_native(frame, eager_only=True)
        missing = [name for name in COLUMNS if name not in asked.columns]
        if missing:
            raise DataError(f"a question must have the columns {', '.join(COLUMNS)}; got {', '.join(asked.columns)}.")
        rows: dict[str, list[Any]] = {name: [] for name in ("user", "domain", "rank", "item", "title", "score")}
        for row in asked.iter_rows(named=True):
            found = self.model.recommend(row["domain"], row["user"], int(row.get("n", (params or {}).get("n", 10))))
            for rank, entry in enumerate(found, 1):
                for name, value in zip(rows, (row["user"], row["domain"], rank, entry.item, entry.title, entry.score),
                                       strict=True):
                    rows[name].append(value)
        return nw.from_dict(rows, backend=asked.implementation).to_native()


def _mlflow() -> Any:
    try:
        import mlflow.pyfunc
    except ImportError:
        raise ArgumentError("an export needs MLflow: pip install mlflow-skinny.") from None
    return mlflow
