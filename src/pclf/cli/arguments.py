"""What people type, turned into what the library takes: files, ids, guests, settings files."""

import re
import tomllib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pclf.cli import tables
from pclf.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from pclf.data.ratings import Domain, Ratings


def pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """NAME=VALUE words as a dict."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{what} must be NAME=FILE, such as books=books.csv; got {word!r}.")
        if name in out:
            raise typer.BadParameter(f"{what} must name each domain once; got {name!r} twice.")
        out[name] = value
    return out


def read_ratings(files: Sequence[str], *, user_col: str | None, item_col: str | None, rating_col: str | None,
                 scale: Sequence[str], titles: Sequence[str], shared_users: bool, shared_items: bool,
                 duplicates: str, events: bool = False) -> "Ratings":
    """Ratings, or events, from NAME=FILE words; a catalogue name such as `demo` alone loads that data set."""
    from pclf import datasets
    from pclf.data.ratings import Ratings

    if len(files) == 1 and "=" not in files[0]:
        if Path(files[0]).exists():
            raise typer.BadParameter(f"say what the file holds: NAME={files[0]}, such as "
                                     f"{Path(files[0]).stem}={files[0]}.")
        if events:
            raise typer.BadParameter(f"--events reads files, and {files[0]!r} is a data set of ratings.")
        return datasets.load(files[0])
    known = {name: read_titles(Path(file)) for name, file in pairs(titles, "--titles").items()} or None
    if events:
        if rating_col or scale or duplicates != "error":
            raise typer.BadParameter("--events goes without --rating-col, --scale and --duplicates: events have none.")
        return Ratings.from_events(pairs(files, "DOMAIN=FILE"), user_col=user_col, item_col=item_col,
                                   shared_users=shared_users, shared_items=shared_items, titles=known)
    scales = {name: [float(x) for x in re.split(r"[-:,]", value)] for name, value in pairs(scale, "--scale").items()}
    return Ratings.from_files(
        pairs(files, "DOMAIN=FILE"), user_col=user_col, item_col=item_col, rating_col=rating_col,
        scale={n: tuple(s) for n, s in scales.items()} or None, shared_users=shared_users,
        shared_items=shared_items, duplicates=duplicates, titles=known,
    )


def read_titles(path: Path) -> dict[Hashable, str]:
    """Item titles from a table: the column that names items, and the one called title or name."""
    table = tables.read(path)
    names = table.column_names
    title = next((n for n in names if n.lower() in ("title", "name", "item_title", "item_name")), None)
    if title is None or len(names) < 2:
        raise ValueError(f"{path} must have a column with item ids and one called title or name; "
                         f"got the columns {', '.join(names)}.")
    item = next(n for n in names if n != title)
    return dict(zip(table[item].to_pylist(), map(str, table[title].to_pylist()), strict=True))


def find_id(vocabulary: Any, text: str, what: str) -> Hashable:
    """The id that somebody typed: as it stands, or as the number it reads as."""
    for candidate in readings(text):
        if candidate in vocabulary:
            return candidate
    raise UnknownNameError(did_you_mean(text, [str(i) for i in vocabulary.ids], what))


def find_item(domain: "Domain", text: str) -> Hashable:
    """An item by id or title; part of a title will do where it is part of only one."""
    for candidate in readings(text):
        if candidate in domain.items:
            return candidate
    titles = [domain.title(c) for c in range(domain.n_items)]
    folded = text.casefold()
    exact = [c for c, t in enumerate(titles) if t.casefold() == folded]
    found = exact or [c for c, t in enumerate(titles) if folded in t.casefold()]
    if len(found) == 1 or exact:
        return domain.items.decode([found[0]])[0]  # type: ignore[no-any-return]
    if found:
        some = "; ".join(titles[c] for c in found[:5])
        raise UnknownNameError(f"{text!r} is part of {len(found)} titles in {domain.name!r}: {some}"
                               f"{'; ...' if len(found) > 5 else ''}. Give more of it.")
    raise UnknownNameError(did_you_mean(text, titles, f"item in {domain.name!r}"))


def guest_ratings(data: "Ratings", words: Sequence[str]) -> dict[str, dict[Hashable, float]]:
    """movies:Alien=5,Heat=2 as {"movies": {...}}; item names may have commas."""
    out: dict[str, dict[Hashable, float]] = {}
    for word in words:
        name, colon, rest = word.partition(":")
        found = re.findall(r"\s*(.+?)\s*=\s*(-?\d+(?:\.\d+)?)\s*(?:,|$)", rest)
        if not colon or not found:
            raise typer.BadParameter(f"--guest must be DOMAIN:ITEM=RATING[,ITEM=RATING ...], such as "
                                     f"movies:Alien=5,Heat=2; got {word!r}.")
        if name not in data.domains:
            raise UnknownNameError(did_you_mean(name, list(data.domains), "domain"))
        out.setdefault(name, {}).update({find_item(data.domains[name], item): float(r) for item, r in found})
    return out


def use_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Settings from a TOML file become the defaults of the options with the same names."""
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"no settings file at {path}.") from None
    except tomllib.TOMLDecodeError as error:
        raise typer.BadParameter(f"{path} is not valid TOML: {error}.") from None
    known = {p.name: p for p in ctx.command.params if p.name and p.name not in ("config", "help")}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name not in known:
            raise typer.BadParameter(f"{path}: {did_you_mean(key, sorted(known), 'setting')}")
        settings[key] = [str(v) for v in value] if isinstance(value, list) else value
    ctx.default_map = {**(ctx.default_map or {}), **{k.replace("-", "_"): v for k, v in settings.items()}}
    return path


def readings(text: str) -> list[Hashable]:
    """What a typed word may mean: itself, or the number it reads as."""
    out: list[Hashable] = [text]
    for kind in (int, float):
        try:
            out.append(kind(text))
        except ValueError:
            continue
    return out
