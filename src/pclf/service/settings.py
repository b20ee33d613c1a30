"""Settings of a service: what `pclf serve` was told, for every process of it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pclf.errors import ArgumentError

VARIABLE = "PCLF_SERVICE"      # in which the settings travel to worker processes
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """db: where ratings are kept, as SQLAlchemy writes it. models: the folder of the model versions.

    refit_every: hours between refits, refit_after: ratings that bring one on; 0 is never. tolerance: by what share a
    refit may be worse than the model it replaces. rate: requests a second of one client, 0 for any number.
    """

    db: str = "sqlite:///pclf.db"
    models: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    refit_every: float = 24.0
    refit_after: int = 0
    tolerance: float = 0.01
    max_body: int = 1 << 20
    max_n: int = 100
    max_batch: int = 1_000
    rate: float = 0.0
    cors: tuple[str, ...] = ()
    log_ids: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not self.db.startswith(("sqlite:///", "postgresql://")):
            raise ArgumentError(f"the database must be sqlite:///FILE or postgresql://...; got {self.db!r}.")
        if not self.models:
            beside = self.db.removeprefix("sqlite:///") if self.db.startswith("sqlite") else "pclf"
            object.__setattr__(self, "models", f"{beside}.models")
        for name in ("max_body", "max_n", "max_batch", "workers"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in ("refit_every", "refit_after", "rate", "tolerance"):
            if getattr(self, name) < 0:
                raise ArgumentError(f"{name} must be 0 or more; got {getattr(self, name)}.")

    @property
    def folder(self) -> Path:
        return Path(self.models)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    def to_environment(self) -> None:
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> "Settings":
        told: dict[str, Any] = json.loads(os.environ[VARIABLE])
        return cls(**{**told, "cors": tuple(told["cors"])})
