"""Fixtures that several rooms use."""

import os
from pathlib import Path

import pytest

# Matrices are small here, and several tests run at once: more threads of BLAS wait for each other, up to a hundred
# times as long as one of them computes. Read when NumPy is imported, and by every process that a test starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")   # read when Triton is imported, whoever imports it first


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets, or a skip that says how to get one."""
    folder = os.environ.get("PCLF_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no real data: set PCLF_DATA to a folder of data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the demo's catalogues for services, fitted once for all of them."""
    from services import small_model

    return small_model(tmp_path_factory.mktemp("served") / "demo.model")
