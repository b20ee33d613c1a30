"""Model files: one safetensors file whose header carries a JSON manifest. No pickle, nothing that runs.

Manifest: format version, class, settings, domains (scale, titles, sharing), what else the model keeps. Beside it stands
a SHA-256 over manifest and arrays, so that a file that was cut off or altered by accident is refused, and, where it was
saved with a key, an HMAC of that, so that one that somebody else made is refused too. All else is checked at the door.
"""

import hashlib
import hmac
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import door
from pclf.atomic import replacing
from pclf.data.attributes import Attributes
from pclf.data.ratings import Domain, Ratings, Scale, Vocabulary
from pclf.errors import ArgumentError, ModelFileError, OutputError, brief

FORMAT = 6
SHORTEST = 16      # bytes of a key
PIECE = 1 << 20    # numbers of an array that are read in one go
Arrays = dict[str, NDArray[Any]]
Key = str | bytes

MANIFEST = {"format": int, "pclf": str, "kind": str, "settings": dict, "extra": dict, "levels": int,
            "shared_users": bool, "shared_items": bool, "domains": [dict]}
KNOWN = {"attributes": "items", "user_attributes": "users"}      # whose they are
IDS = ("int", "str", "mixed")


def _titles(value: Any) -> bool:
    """a list of texts, or null"""
    return value is None or (isinstance(value, list) and all(type(v) is str for v in value))


DOMAIN = {"name": str, "scale": [float], "titles": _titles, "events": bool, "users": IDS, "items": IDS}


@dataclass(frozen=True)
class ModelFile:
    kind: str
    settings: dict[str, Any]
    data: Ratings
    arrays: Arrays
    extra: dict[str, Any]


def save(path: str | Path, kind: str, settings: dict[str, Any], data: Ratings, arrays: Arrays,
         extra: dict[str, Any], *, key: Key | None = None, force: bool = False) -> None:
    """Write beside `path`, then rename: a crash in the middle leaves the old file whole.

    key: a secret that whoever loads the model can ask for. force: replace a file even if it is no model.
    """
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
    for kind_of in KNOWN:
        known: Attributes | None = getattr(data, kind_of)
        if known is not None:
            manifest[kind_of] = known.description
            stored |= known.to_arrays(f"{kind_of}.")
    text = json.dumps(manifest, allow_nan=False)
    seal = _digest(text, stored)
    signature = {"hmac": _signed(seal, key)} if key is not None else {}
    write_atomically(Path(path), stored, {"pclf": text, "sha256": seal, **signature}, force=force)


def load(path: str | Path, key: Key | None = None) -> ModelFile:
    """What a file holds, once all of it but the model's own arrays is known to be right: these the model checks.

    key: the secret that the file must have been saved with; without one, it is only known to be whole.
    """
    manifest, stored = read(Path(path), key)
    with door.opening(path):
        door.check_keys("the manifest", manifest, MANIFEST, dict.fromkeys(KNOWN, dict))
        data = _ratings(manifest, stored)
        arrays = {name[6:]: a for name, a in stored.items() if name.startswith("model.")}
        return ModelFile(manifest["kind"], _tuples(manifest["settings"]), data, arrays, manifest["extra"])


def is_model(path: Path) -> bool:
    """Whether a file begins as a model does, whole or not."""
    with path.open("rb") as file:
        start = file.read(400)
    return start[8:24] == b'{"__metadata__":' and b'"pclf":' in start


def _ratings(manifest: dict[str, Any], stored: Arrays) -> Ratings:
    domains: dict[str, Domain] = {}
    wanted = []
    for z, d in enumerate(manifest["domains"]):
        door.check_keys(f"domain {z}", d, DOMAIN)
        if d["name"] in domains:
            raise ModelFileError(f"domains must have different names; got {d['name']!r} twice")
        wanted += [f"data.{z}.{column}" for column in ("user", "item", "value")]
        wanted += [name for name in (f"data.{z}.time", f"data.{z}.weight") if name in stored]
        ids = {}
        for side in ("users", "items"):
            name = f"data.{z}.{side}"
            wanted += [name, f"{name}.ends"] if d[side] == "str" else [name]
            door.check_names("the file", stored, wanted, stored)
            ids[side] = Vocabulary(_unpack_ids(d[side], stored, name))
        domains[d["name"]] = Domain(
            d["name"], ids["users"], ids["items"], stored[f"data.{z}.user"], stored[f"data.{z}.item"],
            stored[f"data.{z}.value"], Scale(tuple(d["scale"])), None if d["titles"] is None else tuple(d["titles"]),
            d["events"], stored.get(f"data.{z}.time"), stored.get(f"data.{z}.weight"))
    known = {}
    for name, whose in KNOWN.items():
        if name in manifest:
            sizes = {domain: len(getattr(d, whose)) for domain, d in domains.items()}
            known[name] = Attributes.from_arrays(manifest[name], stored, f"{name}.", whose, sizes)
            wanted += known[name].to_arrays(f"{name}.")
    door.check_names("the file", [name for name in stored if not name.startswith("model.")], wanted)
    if manifest["levels"] < 1:
        raise ModelFileError(f"levels must be at least 1; got {manifest['levels']}")
    return Ratings(domains, n_levels=manifest["levels"], shared_users=manifest["shared_users"],
                   shared_items=manifest["shared_items"], **known)


def write_atomically(path: Path, arrays: Arrays, metadata: dict[str, str], *, force: bool = False) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, None if force else is_model, "a model") as part:
        try:
            save_file(arrays, part, metadata)
        except SafetensorError as error:      # a full disk, among others
            raise OutputError(f"{path} could not be written: {error}") from None


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays and the metadata of a file that a run left in its folder of work."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} must say where a run stands; {error}. Remove it to begin anew.") from None


def read(path: Path, key: Key | None = None) -> tuple[dict[str, Any], Arrays]:
    """The manifest and the arrays of a file that is whole."""
    from safetensors import safe_open

    if not path.exists():
        raise ModelFileError(f"no model file at {path}.")
    if not path.is_file():      # a pipe would be waited for
        raise ModelFileError(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}, not a model file.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: _array(file, name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:   # of Rust, of NumPy, of types that NumPy has not
        raise ModelFileError(f"{path} is not a model file, or was cut off: {error}. Save the model again.") from None
    if "pclf" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but no pclf model.")
    with door.opening(path):
        manifest = door.from_json("the manifest", metadata["pclf"])
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise ModelFileError(f"{path} has model format {brief(found)}; this version of pclf reads format "
                             f"{FORMAT}. Fit the model again, or install the pclf that wrote it "
                             f"({brief(manifest.get('pclf') if isinstance(manifest, dict) else None)}).")
    seal = _digest(metadata["pclf"], arrays)
    if not hmac.compare_digest(metadata.get("sha256", "").encode(), seal.encode()):
        raise ModelFileError(f"{path} was altered after it was saved: its checksum does not match. Save it again.")
    if key is not None and "hmac" not in metadata:
        raise ModelFileError(f"{path} must be signed to be loaded with a key; it is not. Save it with save(path, "
                             f"key=...), or load it without a key if you trust where it comes from.")
    if key is not None and not hmac.compare_digest(metadata["hmac"].encode(), _signed(seal, key).encode()):
        raise ModelFileError(f"{path} must be signed with this key; it was signed with another, or altered by somebody "
                             f"who has none.")
    return manifest, arrays


def _array(file: Any, name: str) -> NDArray[Any]:
    """One array of a file. A large one is read in pieces, between which other threads get on: while a piece is read,
    none of them runs."""
    part = file.get_slice(name)
    shape = part.get_shape()
    rows = PIECE // max(1, int(np.prod(shape[1:], dtype=np.float64))) if shape else 0
    if not rows or rows >= shape[0]:
        whole: NDArray[Any] = file.get_tensor(name)
        return whole
    first = part[:rows]
    out = np.empty(shape, first.dtype)
    out[:rows] = first
    for start in range(rows, shape[0], rows):
        stop = min(start + rows, shape[0])
        out[start:stop] = part[start:stop]
    return out


def _digest(text: str, arrays: Arrays) -> str:
    """Of the manifest, then of what arrays there are, then of what they hold: no part can pass for another."""
    names = sorted(arrays)
    digest = hashlib.sha256(json.dumps([text, [[n, arrays[n].dtype.str, arrays[n].shape] for n in names]]).encode())
    for name in names:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _signed(seal: str, key: Key) -> str:
    if not isinstance(key, (str, bytes)):
        raise ArgumentError(f"key must be text or bytes; got {type(key).__name__}.")
    secret = key.encode() if isinstance(key, str) else key
    if len(secret) < SHORTEST:
        raise ArgumentError(f"key must have at least {SHORTEST} bytes; got {len(secret)}. Make one with "
                            f"secrets.token_hex().")
    return hmac.new(secret, seal.encode(), hashlib.sha256).hexdigest()


def _pack_ids(ids: Sequence[Hashable], stored: Arrays, name: str) -> str:
    """Integers and strings as arrays; other ids as tagged JSON in bytes. Returns which."""
    kinds = {type(i) for i in ids}
    if kinds <= {int} and all(-(1 << 63) <= i < 1 << 63 for i in ids):          # type: ignore[operator]
        stored[name] = np.array(ids, np.int64)
        return "int"
    if kinds == {str}:
        encoded = [i.encode(errors="surrogatepass") for i in ids]                                     # type: ignore[attr-defined]
        stored[f"{name}.ends"] = np.cumsum([len(e) for e in encoded], dtype=np.int64)
        stored[name] = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        return "str"
    stored[name] = np.frombuffer(json.dumps([_tag(i) for i in ids]).encode(), np.uint8)
    return "mixed"


def _unpack_ids(kind: str, stored: Arrays, name: str) -> Any:
    if kind == "int":
        return door.check_array(name, stored[name], dtype="int64", shape={"ids": None})
    text = door.check_array(name, stored[name], dtype="uint8", shape={"bytes": None}).tobytes()
    if kind == "str":
        ends = door.check_array(f"{name}.ends", stored[f"{name}.ends"], dtype="int64", shape={"ids": None}, low=0,
                                high=len(text))
        if not len(ends) or (np.diff(ends) < 0).any() or (ends[-1] != len(text) and text != b"\0"):   # or one, empty
            raise ModelFileError(f"{name}.ends must ascend to the {len(text):,} bytes of the ids")
        return [text[a:b].decode(errors="surrogatepass") for a, b in pairwise([0, *ends.tolist()])]
    found = door.from_json(name, text)
    if not isinstance(found, list):
        raise ModelFileError(f"{name} must be a list of ids; got {type(found).__name__}")
    return [_untag(i) for i in found]


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
        kind, held = next(iter(value.items()), ("nothing", None))
        if len(value) == 1 and kind == "tuple" and isinstance(held, list):
            return tuple(map(_untag, held))
        if len(value) == 1 and kind == "float" and isinstance(held, str):
            return float(held)
        raise ModelFileError(f"an id must be text, a number, a truth value or a tuple; got {brief(value)}")
    return value


def _plain(value: Any) -> Any:
    """NumPy numbers as Python's, mappings and dataclasses as dicts, so that JSON can hold them."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
