"""What people type, turned into what the library takes: files, ids, guests, settings files."""

import json
import re
import tomllib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pclf.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from pclf.data.parts import RatingFiles
    from pclf.data.ratings import Domain, Ratings

NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
RATED = rf"(.+?)\s*=\s*({NUMBER})\s*(?:,\s*|$)"      # an item and its rating


def pairs(words: Sequence[str], what: str, value: str = "FILE", example: str = "books=books.csv") -> dict[str, str]:
    """NAME=VALUE words as a dict."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, said = word.partition("=")
        if not (name and equals and said):
            raise typer.BadParameter(f"{what} must be NAME={value}, such as {example}; got {word!r}.")
        if name in out:
            raise typer.BadParameter(f"{what} must name each domain once; got {name!r} twice.")
        out[name] = said
    return out


def counts(words: Sequence[str], what: str) -> dict[str, int]:
    """NAME=N words, N from 1 on."""
    out = {}
    for name, said in pairs(words, what, "N", "genre=2").items():
        if not said.isdigit() or int(said) < 1:
            raise typer.BadParameter(f"{what} must be NAME=N with a whole number from 1 on; got {name}={said}.")
        out[name] = int(said)
    return out


def settings(words: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as settings of a model; hyper.NAME are together in `hyper`."""
    from pclf.evaluate.tuning import as_settings

    out = {}
    for name, said in pairs(words, "--set", "VALUE", "n_factors=16").items():
        try:
            out[name] = json.loads(said)
        except ValueError:
            out[name] = said
    return as_settings(out)


def read_ratings(files: Sequence[str], *, user_col: str | None, item_col: str | None, rating_col: str | None,
                 scale: Sequence[str], titles: Sequence[str], attributes: Sequence[str], user_attributes: Sequence[str],
                 shared_users: bool, shared_items: bool, duplicates: str, encoding: str, events: bool,
                 time_col: str | None, weight_col: str | None, half_life: float | None,
                 skip_bad: int) -> "Ratings":
    """Ratings, or events, from NAME=FILE words; a catalogue name such as `demo` alone loads that data set.

    events: all files hold events; one alone is NAME=FILE:events.
    """
    from pclf import datasets
    from pclf.data.ratings import Ratings

    if len(files) == 1 and "=" not in files[0]:
        if Path(files[0]).exists():
            raise typer.BadParameter(f"say what the file holds: NAME={files[0]}, such as "
                                     f"{Path(files[0]).stem}={files[0]}.")
        _refuse(f"{files[0]!r} is a data set, and only files go with", user_col=user_col, item_col=item_col,
                rating_col=rating_col, scale=scale, titles=titles, attributes=attributes,
                user_attributes=user_attributes, shared_users=shared_users, shared_items=shared_items,
                duplicates=duplicates != "error", encoding=encoding != "utf-8", events=events, time_col=time_col,
                weight_col=weight_col, half_life=half_life is not None, skip_bad=skip_bad)
        return datasets.load(files[0])
    paths, of_events = _with_events(files, events, rating_col=rating_col, scale=scale,
                                    duplicates=duplicates != "error")
    by_name = pairs(scale, "--scale", "LOW-HIGH", "books=1-10")
    return Ratings.from_files(
        paths, events=of_events, encoding=_encoding(encoding),
        user_col=_column(user_col), item_col=_column(item_col), rating_col=_column(rating_col),
        time_col=_wanted(time_col), weight_col=_wanted(weight_col), half_life=half_life,
        scale={name: _scale(name, value) for name, value in by_name.items()} or None, shared_users=shared_users,
        shared_items=shared_items, titles=dict(pairs(titles, "--titles")) or None, skip_bad=skip_bad,
        attributes=pairs(attributes, "--attributes", example="books=book_facts.csv"),
        user_attributes=pairs(user_attributes, "--user-attributes", example="books=readers.csv"),
        duplicates=duplicates)  # type: ignore[arg-type]    # a word that it does not know is refused there


def _with_events(files: Sequence[str], events: bool, **without: Any) -> tuple[dict[str, str], list[str]]:
    """Paths from NAME=PATH words, and the domains of events: all, or those that end in :events. without: options that
    go with ratings alone."""
    paths = pairs(files, "files of ratings")
    of_events = list(paths) if events else [name for name, file in paths.items() if file.endswith(":events")]
    if len(of_events) == len(paths):
        _refuse("events go without", **without)
    return {name: file.removesuffix(":events") for name, file in paths.items()}, of_events


def read_like(data: "Ratings", files: Sequence[str], encoding: str, user_col: str | None = None,
              item_col: str | None = None, rating_col: str | None = None) -> "Ratings":
    """Ratings or events from NAME=FILE words, on the scales of ratings that are there."""
    from pclf.data.ratings import Ratings

    paths = pairs(files, "--test")
    for name in paths:
        data[name]                                          # an unknown name is guessed there
    events = [name for name in paths if data[name].events]
    return Ratings.from_files(paths, events=events, encoding=_encoding(encoding), duplicates="last",
                              levels=data.n_levels,
                              user_col=_column(user_col), item_col=_column(item_col), rating_col=_column(rating_col),
                              scale={name: data[name].scale for name in paths if name not in events} or None)


def rating_files(files: Sequence[str], *, engine: str, user_col: str | None, item_col: str | None,
                 rating_col: str | None, scale: Sequence[str], titles: Sequence[str], attributes: Sequence[str],
                 user_attributes: Sequence[str], shared_users: bool, shared_items: bool, duplicates: str,
                 encoding: str, events: bool, time_col: str | None, weight_col: str | None,
                 half_life: float | None) -> "RatingFiles":
    """Files, folders and patterns from NAME=PATH words, to be read in parts."""
    from pclf.data.parts import RatingFiles

    paths, of_events = _with_events(files, events, rating_col=rating_col, scale=scale,
                                    duplicates=duplicates != "error")
    _refuse(f"--engine {engine} goes without", user_attributes=user_attributes, time_col=time_col,
            half_life=half_life is not None)
    by_name = pairs(scale, "--scale", "LOW-HIGH", "books=1-10")
    return RatingFiles(
        paths, user_col=_column(user_col), item_col=_column(item_col), rating_col=_column(rating_col),
        weight_col=_wanted(weight_col), events=tuple(of_events), encoding=encoding,
        scale={name: _scale(name, value) for name, value in by_name.items()} or None,
        shared_users=shared_users, shared_items=shared_items,
        titles=pairs(titles, "--titles") or None,
        attributes=pairs(attributes, "--attributes", example="books=book_facts.csv") or None,
        duplicates=duplicates)  # type: ignore[arg-type]    # a word that it does not know is refused there


def _wanted(text: str | None) -> str | dict[str, str] | bool:
    """A column that is read only where it is asked for: its name, DOMAIN=NAME,..., or auto for the usual names."""
    return True if text == "auto" else _column(text) or False


def _column(text: str | None) -> str | dict[str, str] | None:
    """A column's name, or DOMAIN=NAME,DOMAIN=NAME."""
    return pairs(text.split(","), "a column", "COLUMN", "books=reader") if text and "=" in text else text


def _encoding(text: str) -> str | dict[str, str]:
    """An encoding, or DOMAIN=ENCODING,DOMAIN=ENCODING."""
    return pairs(text.split(","), "an encoding", "ENCODING", "books=latin-1") if "=" in text else text


def _refuse(why: str, **options: Any) -> None:
    """An option that would be ignored is an error, never silence."""
    for name, given in options.items():
        if given:
            raise typer.BadParameter(f"{why} --{name.replace('_', '-')}: leave it out.")


def _scale(name: str, text: str) -> tuple[float, ...]:
    """1-10, 0.5:5:0.5 (with the step) or -1,0,1."""
    if not re.fullmatch(rf"{NUMBER}(?:[-:,]{NUMBER})+", text):
        raise typer.BadParameter(f"--scale must be DOMAIN=LOW-HIGH, such as books=1-10, or LOW:HIGH:STEP; got "
                                 f"{name}={text}.")
    return tuple(float(x) for x in re.findall(rf"(?:^|[-:,])({NUMBER})", text))


def read_pairs(path: Path, users: Any, items: Any, user_col: str | None = None,
               item_col: str | None = None) -> tuple[list[Any], list[Any]]:
    """The columns of users and items, as ids of these vocabularies."""
    columns = _read(path, {"user_col": user_col, "item_col": item_col}, "utf-8")
    user, item = (alike(ids, known) for ids, known in zip(columns, (users, items), strict=True))
    return user, item


def read_items(path: Path, items: Any, item_col: str | None = None) -> list[Any]:
    """A column of items, as ids of a vocabulary."""
    ids, = _read(path, {"item_col": item_col}, "utf-8")
    return alike(ids, items)


def read_users(path: Path, users: Any, user_col: str | None = None) -> list[Any]:
    """A column of users, as ids of a vocabulary."""
    ids, = _read(path, {"user_col": user_col}, "utf-8")
    return alike(ids, users)


def alike(ids: list[Any], vocabulary: Any) -> list[Any]:
    """Ids as text where those of a vocabulary are: a file of digits alone is read as numbers."""
    return [id if id is None or id in vocabulary else str(id) for id in ids] if vocabulary.kind == "str" else ids


def _read(path: Path, names: dict[str, str | None], encoding: str) -> list[list[Any]]:
    """Columns of a file, found by their names or the usual ones, with ids as ratings files have them."""
    from pclf.data import files

    return [column.values() for column in files.read(path, names, encoding)]


def find_id(vocabulary: Any, text: str, what: str) -> Hashable:
    """The id that somebody typed: as it stands, or as the number it reads as."""
    for candidate in readings(text):
        if candidate in vocabulary:
            return candidate
    raise UnknownNameError(did_you_mean(text, [str(i) for i in vocabulary.ids], what))


def find_item(domain: "Domain", text: str) -> Hashable:
    """An item by id or title, with or without what stands in brackets after it, Alien for Alien (1979). Part of a title
    will do where it is part of only one."""
    for candidate in readings(text):
        if candidate in domain.items:
            return candidate
    titles = [domain.title(c) for c in range(domain.n_items)]
    folded = text.casefold()
    exact = [c for c, t in enumerate(titles) if t.casefold() == folded]
    bare = [c for c, t in enumerate(titles) if t.casefold().startswith(f"{folded} (")]
    found = exact or bare or [c for c, t in enumerate(titles) if folded in t.casefold()]
    if len(found) == 1:
        return domain.items.decode(found)[0]  # type: ignore[no-any-return]
    if exact:
        ids = ", ".join(map(str, domain.items.decode(exact)))
        raise UnknownNameError(f"{text!r} is the title of {len(exact)} items in {domain.name!r}: give an id, {ids}.")
    if found:
        some = "; ".join(titles[c] for c in found[:5])
        raise UnknownNameError(f"{text!r} is part of {len(found)} titles in {domain.name!r}: {some}"
                               f"{'; ...' if len(found) > 5 else ''}. Give more of it.")
    raise UnknownNameError(did_you_mean(text, titles, f"item in {domain.name!r}"))


def guest_ratings(data: "Ratings", words: Sequence[str]) -> dict[str, dict[Hashable, float]]:
    """movies:Alien=5,Heat=2 as {"movies": {...}}; item names may have commas. Of events, movies:Alien,Heat will do."""
    out: dict[str, dict[Hashable, float]] = {}
    for word in words:
        name, colon, rest = word.partition(":")
        if colon and name not in data.domains:
            raise UnknownNameError(did_you_mean(name, list(data.domains), "domain"))
        if colon and data.domains[name].events and "=" not in rest:
            found = [(item, "1") for item in _listed_items(data.domains[name], rest.split(","))]
        else:
            found = re.findall(RATED, rest.strip())
            if not re.fullmatch(rf"(?:{RATED})+", rest.strip()):
                raise typer.BadParameter(f"--guest must be DOMAIN:ITEM=RATING[,ITEM=RATING ...], such as "
                                         f"movies:Alien=5,Heat=2; got {word!r}.")
        out.setdefault(name, {}).update({find_item(data.domains[name], item): float(r) for item, r in found})
    return out


def _listed_items(domain: "Domain", pieces: list[str]) -> list[str]:
    """Items of a list that was cut at its commas: of those that have some, the longest known name is put together."""
    titles = {domain.title(c).casefold() for c in range(domain.n_items)} | {str(i).casefold() for i in domain.items.ids}
    out = []
    while pieces:
        names = [",".join(pieces[:n]).strip() for n in range(len(pieces), 0, -1)]
        whole = next((name for name in names if name.casefold() in titles), names[-1])
        pieces = pieces[len(whole.split(",")):]
        out.append(whole)
    return out


def use_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Settings from a TOML file become the defaults of the options with the same names.

    A table may hold NAME=VALUE words, [titles] books = "titles.csv", or the settings of one command, [fit].
    """
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"no settings file at {path}.") from None
    except tomllib.TOMLDecodeError as error:
        raise typer.BadParameter(f"{path} is not valid TOML: {error}.") from None
    known = {_typed(p): p for p in ctx.command.params if p.name not in ("config", "help")}
    chosen = {}
    commands = getattr(getattr(ctx.parent, "command", None), "commands", {})
    own = settings.pop(str(ctx.info_name), {}) if isinstance(settings.get(str(ctx.info_name)), dict) else {}
    common = {key: value for key, value in settings.items() if key not in commands or not isinstance(value, dict)}
    for key, value in (common | own).items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise typer.BadParameter(f"{path}: {did_you_mean(key, sorted(known), 'setting')}")
        if isinstance(value, dict):
            value = [f"{name}={_in_one_word(part)}" for name, part in _flat(value).items()]
        several = option.nargs == -1 or getattr(option, "multiple", False)
        words = [str(v) for v in value] if isinstance(value, list) else [str(value)]
        if several or isinstance(value, list):
            value = words if several else ",".join(words)
        chosen[option.name] = value
    ctx.default_map = {**(ctx.default_map or {}), **chosen}
    return path


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """A table without tables in it: {"hyper": {"ridge": 200}} as {"hyper.ridge": 200}."""
    return {f"{name}.{key}" if isinstance(part, dict) else name: value for name, part in table.items()
            for key, value in (part.items() if isinstance(part, dict) else [(name, part)])}


def _in_one_word(value: Any) -> str:
    """A value of a table as it is typed: [1, 10] as 1:10."""
    return ":".join(map(str, value)) if isinstance(value, list) else str(value)


def _typed(option: Any) -> str:
    """The name of an option as people type it, --shared-users, in a settings file: shared_users."""
    longest: str = max(option.opts, key=len)
    return longest.lstrip("-").replace("-", "_")


def readings(text: str) -> list[Hashable]:
    """What a typed word may mean: itself, or the number it reads as."""
    out: list[Hashable] = [text]
    for kind in (int, float):
        try:
            out.append(kind(text))
        except ValueError:
            continue
    return out
