"""Model files: one safetensors file whose header carries a JSON manifest. No pickle, nothing that runs.

Manifest: format version, class, settings, domains (scale, titles, sharing), what else the model keeps, and a
SHA-256 over manifest and arrays, so that a file that was cut off or altered is refused.
"""

import hashlib
import json
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.atomic import replacing
from pclf.data.ratings import Domain, Ratings, Scale, Vocabulary
from pclf.errors import ModelFileError

FORMAT = 5
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ModelFile:
    kind: str
    settings: dict[str, Any]
    data: Ratings
    arrays: Arrays
    extra: dict[str, Any]


def save(path: str | Path, kind: str, settings: dict[str, Any], data: Ratings, arrays: Arrays,
         extra: dict[str, Any]) -> None:
    """Write beside `path`, then rename: a crash in the middle leaves the old file whole."""
    from pclf import __version__

    stored = {f"model.{name}": np.ascontiguousarray(a) for name, a in arrays.items()}
    manifest = {
        "format": FORMAT, "pclf": __version__, "kind": kind, "settings": _plain(settings), "extra": _plain(extra),
        "levels": data.n_levels, "shared_users": data.shared_users, "shared_items": data.shared_items,
        "domains": [],
    }
    for z, (name, domain) in enumerate(data.domains.items()):
        stored |= {f"data.{z}.{each}": column for each in ("user", "item", "value", "time", "weight")
                   if (column := getattr(domain, each)) is not None}
        manifest["domains"].append({
            "name": name, "scale": list(domain.scale.values), "titles": domain.titles and list(domain.titles),
            "events": domain.events,
            "users": _pack_ids(domain.users.ids, stored, f"data.{z}.users"),
            "items": _pack_ids(domain.items.ids, stored, f"data.{z}.items"),
        })
    text = json.dumps(manifest, allow_nan=False)
    write_atomically(Path(path), stored, {"pclf": text, "sha256": _digest(text, stored)})


def load(path: str | Path) -> ModelFile:
    text, stored = read(Path(path))
    manifest = json.loads(text)
    if manifest.get("format") != FORMAT:
        raise ModelFileError(f"{path} has model format {manifest.get('format')}; this version of pclf reads format "
                             f"{FORMAT}. Fit the model again, or install the pclf that wrote it "
                             f"({manifest.get('pclf')}).")
    domains = {}
    for z, d in enumerate(manifest["domains"]):
        domains[d["name"]] = Domain(
            name=d["name"],
            users=Vocabulary(_unpack_ids(d["users"], stored, f"data.{z}.users")),
            items=Vocabulary(_unpack_ids(d["items"], stored, f"data.{z}.items")),
            user=stored[f"data.{z}.user"], item=stored[f"data.{z}.item"], value=stored[f"data.{z}.value"],
            scale=Scale(tuple(d["scale"])), titles=d["titles"] and tuple(d["titles"]),
            events=d["events"], time=stored.get(f"data.{z}.time"), weight=stored.get(f"data.{z}.weight"),
        )
    data = Ratings(domains, n_levels=manifest["levels"], shared_users=manifest["shared_users"],
                   shared_items=manifest["shared_items"])
    arrays = {name[6:]: a for name, a in stored.items() if name.startswith("model.")}
    return ModelFile(manifest["kind"], _tuples(manifest["settings"]), data, arrays, manifest["extra"])


def write_atomically(path: Path, arrays: Arrays, metadata: dict[str, str]) -> None:
    from safetensors.numpy import save_file

    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; give the name of a file to write.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        save_file(arrays, part, metadata)


def read(path: Path) -> tuple[str, Arrays]:
    """The manifest's text and the arrays of a file that is whole."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise ModelFileError(f"no model file at {path}.")
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a model file.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, struct.error, ValueError, OSError) as error:
        raise ModelFileError(f"{path} is not a model file, or was cut off: {error}. Save the model again.") from None
    if "pclf" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but no pclf model.")
    if metadata.get("sha256") != _digest(metadata["pclf"], arrays):
        raise ModelFileError(f"{path} was altered after it was saved: its checksum does not match. Save it again.")
    return metadata["pclf"], arrays


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _pack_ids(ids: Sequence[Hashable], stored: Arrays, name: str) -> str:
    """Integers and strings as arrays; other ids as tagged JSON in bytes. Returns which."""
    kinds = {type(i) for i in ids}
    if kinds <= {int} and all(-(1 << 63) <= i < 1 << 63 for i in ids):          # type: ignore[operator]
        stored[name] = np.array(ids, np.int64)
        return "int"
    if kinds == {str}:
        encoded = [i.encode() for i in ids]                                     # type: ignore[attr-defined]
        stored[f"{name}.ends"] = np.cumsum([len(e) for e in encoded], dtype=np.int64)
        stored[name] = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        return "str"
    stored[name] = np.frombuffer(json.dumps([_tag(i) for i in ids]).encode(), np.uint8)
    return "mixed"


def _unpack_ids(kind: str, stored: Arrays, name: str) -> Any:
    if kind == "int":
        return stored[name]
    if kind == "str":
        text, ends = stored[name].tobytes(), [0, *stored[f"{name}.ends"].tolist()]
        return [text[a:b].decode() for a, b in pairwise(ends)]
    return [_untag(i) for i in json.loads(stored[name].tobytes())]


def _tag(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"tuple": [_tag(v) for v in value]}
    if isinstance(value, float):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ModelFileError(f"ids must be strings, numbers, booleans, None or tuples of these to be saved; got "
                         f"{value!r} ({type(value).__name__}). Map your ids to one of these before fitting.")


def _untag(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_untag, value["tuple"])) if "tuple" in value else float(value["float"])
    return value


def _plain(value: Any) -> Any:
    """NumPy numbers as Python's, mappings as dicts, so that JSON can hold them."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
