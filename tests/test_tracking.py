"""Tracking: a model that MLflow loads gives the lists of the model."""

import pytest

import pclf
from pclf.errors import DataError

pytest.importorskip("mlflow.pyfunc", reason="the export needs pip install mlflow-skinny")


@pytest.mark.filterwarnings("ignore")                  # of MLflow, about itself
def test_a_model_that_mlflow_loads_gives_the_lists_of_the_model(tmp_path):
    import mlflow
    import pandas as pd

    from pclf import tracking

    model = pclf.PCLF(3, 2, 2, max_iter=2, n_restarts=1, n_factors=3).fit(pclf.datasets.load("demo"))
    tracking.save_pyfunc(model, tmp_path / "exported")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "exported"))
    found = loaded.predict(pd.DataFrame({"user": ["ana-000", "bo-001"], "domain": ["books", "films"], "n": [3, 2]}))
    assert found["title"].tolist() == [r.title for r in [*model.recommend("books", "ana-000", n=3),
                                                         *model.recommend("films", "bo-001", n=2)]]
    assert found["rank"].tolist() == [1, 2, 3, 1, 2]
    with pytest.raises(DataError, match="columns user, domain"):
        loaded.predict(pd.DataFrame({"who": ["ana-000"]}))
