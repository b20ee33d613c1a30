"""The oldest versions that pyproject.toml promises to work with, as constraints for pip: what `make lowest` installs."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for line in [*project["dependencies"], *(line for extra in ("dev", "serve") for line in project["optional-dependencies"][extra])]:
    if (found := re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line)) and found[1] not in ("ruff", "mypy", "scipy-stubs"):
        print(f"{found[1]}=={found[2]}")
