"""Hostile and damaged files, by the thousand: `make attack`.

    python benchmarks/attack.py                      # 10,000 models, 10,000 files of ratings, 1,000 folders and archives
    python benchmarks/attack.py --models 500 --ratings 0 --archives 0 --seed 7

A model, in a file or in a folder, is changed and given new checksums, as anybody can; a file of ratings and an archive
are damaged. Each must be
refused by an error of our family, or be read as what it is. Work is done in processes of their own, so that one that
dies is seen and named. The same seed gives the same attacks; `--only KIND:NUMBER` repeats one with its traceback.

What is counted:
    refused    an error of the family, at the door
    the same   accepted, and it predicts as before: what was changed has no meaning
    another    accepted, and it predicts something else: a sound model, or sound ratings, of somebody else. With a key
               (models) or a checksum (archives) it is refused; without, nobody can tell.
    FAILED     a process that died, an error that is not ours, one that came later than the door, numbers that are none
               or off the scale, rows that were lost, a changed model that was accepted with a key
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np

BATCH = 500
KEY = "attackers do not know this one"


class Failure(Exception):
    """Something that must not happen."""


# Models


def _ratings():
    import pclf

    rng = np.random.default_rng(0)
    pairs = rng.permutation(12 * 9)[:60]
    films = [f"u{p // 9}" for p in pairs], [f"film {p % 9}" for p in pairs], rng.integers(1, 6, 60)
    books = pairs // 9, [(int(p % 9), "b") for p in pairs], rng.integers(1, 11, 60)
    return pclf.Ratings.from_arrays({"films": films, "books": books}, scale={"films": (1, 5), "books": (1, 10)},
                                    titles={"films": {f"film {i}": f"Title {i}" for i in range(9)}})


def _shops():
    """Two shops with people and things in common, in which taste says who buys what."""
    import pclf

    rng, frames = np.random.default_rng(2), {}
    taste = np.tile([[0.7, 0.1] * 6, [0.1, 0.7] * 6], (30, 1))
    for name in ("old shop", "new shop"):
        user, item = np.nonzero(rng.random(taste.shape) < taste)
        frames[name] = {"user": user, "item": [f"thing {i}" for i in item], "rating": rng.integers(1, 6, len(user)),
                        "when": rng.integers(1, 10**6, len(user))}
    return pclf.Ratings.from_frames(frames, scale=(1, 5), time_col="when", shared_users=True, shared_items=True)


def _events():
    """What people played, how often and when."""
    import pclf

    rng = np.random.default_rng(3)
    user, item = np.divmod(rng.permutation(15 * 10)[:70], 10)
    return pclf.Ratings.from_events({"songs": (user, item, rng.integers(1, 10**6, 70), rng.integers(1, 9, 70))},
                                    time_col=True, weight_col=True)


def _tied_ratings(shared):
    """Three catalogues whose items have attributes of every kind; with common people, or without."""
    import pclf

    rng, frames, facts = np.random.default_rng(1), {}, {}
    for z, (name, levels) in enumerate((("films", 5), ("books", 10), ("music", 5))):
        pairs = rng.permutation(14 * 10)[:80]
        user, item = pairs // 10, pairs % 10
        liked = (user % 2 == item % 2) * (levels - 2) + rng.integers(1, 3, 80)
        frames[name] = {"user": [f"u{u + 4 * z}" for u in user], "item": [f"{name} {i}" for i in item], "rating": liked}
        facts[name] = {"item": [f"{name} {i}" for i in range(10)], "genre": ["horror", "romance"] * 5,
                       "tags": ["a|b", "b|c", "a", "c", "b"] * 2, "year": list(range(1990, 2000)),
                       "long": [i % 3 == 0 for i in range(10)], "weight": [1.5, 1.5, 1.5, 7.25, None] * 2,
                       "mood": rng.normal(size=(10, 3)), "note": [f"note {i}" for i in range(10)]}
    people = {"films": {"user": [f"u{i}" for i in range(14)], "country": ["no", "fi"] * 7}}
    return pclf.Ratings.from_frames(frames, scale={"films": (1, 5), "books": (1, 10), "music": (1, 5)},
                                    shared_users=shared, attributes=facts, user_attributes=people)


def _fitted():
    """A small model of every kind; of PCLF as published, and with all it has: factors that people, things or attributes
    tie, choices, what they say about another catalogue, neighbours; of ratings and of events."""
    import pclf
    from pclf.models import create

    small = {"n_user_clusters": 3, "max_iter": 3}
    parts = {**small, "n_common_clusters": 2, "n_specific_clusters": 2}
    plain = [create("Popular"), create("EASE"), pclf.Bias(), pclf.NMF(3), pclf.CBT(2, 2), pclf.TALMUD(2, 2), pclf.FMM.paper(**small, n_item_clusters=2),
             pclf.RMGM.paper(**small, n_item_clusters=2), pclf.PCLF.paper(**parts)]
    hyper = {"sweeps": 4, "newton": 3, "places": 3, "attribute_factors": 3}
    tied = {"n_factors": 3, "n_restarts": 1, "hyper": hyper, **parts}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from (model.fit(_ratings()) for model in plain)
        yield pclf.PCLF(**tied, bridges=("people", "attributes"), common_weight=0.3, factor_weight=0.7,
                        ).fit(_tied_ratings(shared=True))
        yield pclf.PCLF(**tied, bridges=("attributes",), common_weight=0.5, factor_weight=1.0,
                        ).fit(_tied_ratings(shared=False))
        yield pclf.PCLF(**tied).fit(_tied_ratings(shared=True))
        yield pclf.PCLF(**tied).fit(_events())
        yield _with_neighbours(pclf.PCLF(**tied).fit(_shops()))


def _with_neighbours(model):
    """Neighbours in every domain: so few ratings would not ask for them."""
    from pclf import neighbours

    for name, d in model.data_.domains.items():
        rows = model.factors_[name].domains[name]
        left = neighbours.left_of(rows, rows.user_rows(np.arange(d.n_users, dtype=np.int32)), d.user, d.item, d.value)
        model.neighbours_[name] = next(neighbours.learn(*left, (1.0,)))
    return model


class Models:
    """A saved model of each kind, changed and signed anew without the key."""

    @staticmethod
    def prepare(made):
        for i, model in enumerate(_fitted()):
            model.save(made / f"model {i}", key=KEY)

    def __init__(self, folder, made):
        import pclf
        from pclf import storage

        self.path, self.whole, self.said = folder / "model", [], []
        self.storage, self.pclf = storage, pclf
        for path in sorted(made.glob("model *")):
            manifest, arrays = storage.read(path)
            self.whole.append((json.dumps(manifest), arrays, path.read_bytes()))
            self.said.append(self._say(pclf.load(path, key=KEY)))

    def attack(self, rng):
        from safetensors.numpy import save_file

        which = rng.randrange(len(self.whole))
        text, arrays, content = self.whole[which]
        resigned = rng.random() < 0.85
        if resigned:
            manifest, arrays = json.loads(text), {name: a.copy() for name, a in arrays.items()}
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                _change_json(rng, manifest) if rng.random() < 0.4 else _change_array(rng, arrays)
            text = json.dumps(manifest)
            arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
            save_file(arrays, self.path, {"pclf": text, "sha256": self.storage._digest(text, arrays)})
        else:
            self.path.write_bytes(_damaged(rng, content))
        return self._judged(which, resigned)

    def _judged(self, which, resigned):
        try:
            model = self.pclf.load(self.path)
        except self.pclf.errors.ModelFileError as error:
            if len(str(error)) > 4000:
                raise Failure(f"a message of {len(str(error)):,} characters") from error
            return "refused"
        said = self._say(model)
        try:
            self.pclf.load(self.path, key=KEY)
        except self.pclf.errors.ModelFileError:
            signed = False
        else:
            signed = True
        if all(np.array_equal(a, b) for a, b in zip(said, self.said[which], strict=False)) \
                and len(said) == len(self.said[which]):
            return "the same"
        if signed or not resigned:
            raise Failure("a changed model was accepted as the one that was saved")
        return "another"

    def _say(self, model):
        """All that a model says of its own users, as numbers on the scale."""
        out = []
        for name, d in model.data_.domains.items():
            users, items = (x.ravel().astype(np.int32) for x in np.meshgrid(np.arange(d.n_users), np.arange(d.n_items)))
            ratings = [model.predict_codes(name, users, items, rule=rule) for rule in model.rules]
            for rank in getattr(model, "ranks", ("rating",)):
                lists = model.recommend(name, n=3, rank_by=rank)
                scores = np.where(lists.codes >= 0, lists.scores, d.scale.low)
                (ratings if rank == "rating" and model.rules else out).append(scores)
                out.append(lists.codes)
                list(lists), repr(model)
            if not all(np.isfinite(values).all() and (values >= d.scale.low - 1e-9).all()
                       and (values <= d.scale.high + 1e-9).all() for values in ratings):
                raise Failure("a number that is none, or is off the scale")
            out += ratings
            if hasattr(model, "fold_in") and d.n_items:
                out += self._newcomers(model, name, d)
        _check_finite(out)
        return out

    def _newcomers(self, model, name, d):
        """What it says to guests and visitors, about new items, and why."""
        guest, item = model.fold_in({name: {d.items.ids[0]: d.scale.high}}), d.items.ids[-1]
        out = []
        for other, target in model.data_.domains.items():
            out.append(np.array([r.score for r in model.recommend(other, guest, n=2)]))
            visitors = model.predict(other, d.users.ids[0], target.items.ids[0], user_domain=name)
            out += [visitors, model.predict_proba(other, guest, target.items.ids[0])]
        lists = model.recommend(name, [guest], n=3, diversity=0.5, boosts={item: 2.0})
        out.append(np.array([r.score for r in lists[0]]))
        if getattr(model, "lists_", None) is not None:
            found = model.embeddings(name, 4)
            out += [found.vectors, found.embedding(guest)]
        if name in model.factors_:
            said = [model.explain(name, d.users.ids[0], item), model.explain(name, guest, item)]
            out += [np.array([x.prediction, *(taste.effect for taste in x.tastes), *(n.likeness for n in x.nearest)])
                    for x in said]
            out.append(np.array([r.score for r in model.similar_items(name, item, 3)]))
        known = model.data_.attributes
        if known is not None:
            facts = known.facts(name, 0)
            repr(facts), repr(model.data_), str(model.transfer_[name])
            new = model.fold_in_item(name, {d.users.ids[0]: d.scale.high}, attributes=facts)
            out.append(model.predict(name, d.users.ids[0], [new, model.fold_in_item(name, attributes=facts)]))
            out.append(known.encode([facts]).toarray().ravel())
        return out


def _check_finite(said):
    if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in said):
        raise Failure("a number that is none")


class Folders:
    """A model whose users are in Parquet parts: what all parts have in common, or a part, changed and sealed anew."""

    @staticmethod
    def prepare(made):
        import pclf

        for name, n, levels in (("films", 9, 5), ("books", 7, 5)):
            rng = np.random.default_rng(n)
            rows = "".join(f"u{u},{name} {i},{rng.integers(1, levels + 1)}\n" for u in range(20) for i in range(n) if rng.random() < 0.6)
            (made / f"{name}.csv").write_text("user,item,rating\n" + rows)
        files = pclf.RatingFiles({name: made / f"{name}.csv" for name in ("films", "books")}, shared_users=True)
        small = {"n_user_clusters": 3, "n_common_clusters": 2, "n_specific_clusters": 2, "max_iter": 2}
        pclf.PCLF.paper(**small).fit(files, engine="disk", work=made / "work").save(made / "published", key=KEY)
        for name, n in (("films", 12), ("books", 10)):      # odd people choose odd things: lists cross the catalogues
            rng = np.random.default_rng(n)
            rows = "".join(f"u{u},{name} {i},{rng.integers(1, 6)}\n" for u in range(160) for i in range(n)
                           if rng.random() < (0.7 if (u + i) % 2 else 0.1))
            (made / f"{name}.csv").write_text("user,item,rating\n" + rows)
        listed = pclf.PCLF(factor_weight=0, common_weight=0.3, n_restarts=1, **small)
        listed.fit(files, engine="disk", work=made / "work of lists").save(made / "listed", key=KEY)
        assert any(listed.lists_.choice.crossings)

    def __init__(self, folder, made):
        self.models = [FolderOf(folder / "model", made / name) for name in ("published", "listed")]

    def attack(self, rng):
        return rng.choice(self.models).attack(rng)


class FolderOf:
    """A model in a folder that is attacked at a path."""

    def __init__(self, path, whole):
        import pclf
        from pclf import storage
        from pclf.models import disk

        self.pclf, self.storage, self.shared = pclf, storage, disk.SHARED
        self.whole, self.path = whole, path
        manifest, self.arrays = storage.read(self.whole / self.shared)
        self.manifest = json.dumps(manifest)
        self.people = [f"u{u}" for u in range(0, 20, 4)]
        # A part that has somebody in it, of each domain: most are empty, and are not asked for.
        self.parts = [(z, part) for part, sizes in enumerate(self.arrays["model.people.part_users"])
                      for z, n in enumerate(sizes) if n]
        self.said = self._say(pclf.load(self.whole, key=KEY))

    def attack(self, rng):
        from pyarrow import parquet
        from safetensors.numpy import save_file

        from pclf.blocks.people import checksum, path_of

        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.whole, self.path)
        manifest, arrays = json.loads(self.manifest), {name: a.copy() for name, a in self.arrays.items()}
        z, number = rng.choice(self.parts)
        part, resigned = path_of(self.path, z, number), rng.random() < 0.85
        if not resigned:
            file = rng.choice([part, self.path / self.shared])
            file.write_bytes(_damaged(rng, file.read_bytes()))
        else:
            if rng.random() < 0.6:
                parquet.write_table(_changed_table(rng, parquet.read_table(part)), part)
                manifest["extra"]["people"]["seals"][number][z] = checksum(part)
            elif rng.random() < 0.4:
                _change_json(rng, manifest)
            else:
                _change_array(rng, arrays)
            text = json.dumps(manifest)
            arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
            save_file(arrays, self.path / self.shared, {"pclf": text, "sha256": self.storage._digest(text, arrays)})
        return self._judged(resigned)

    def _judged(self, resigned):
        try:
            said = self._say(self.pclf.load(self.path))
        except (self.pclf.errors.ModelFileError, self.pclf.errors.UnknownNameError) as error:
            if len(str(error)) > 4000:
                raise Failure(f"a message of {len(str(error)):,} characters") from error
            return "refused"
        if len(said) == len(self.said) and all(np.array_equal(a, b) for a, b in zip(said, self.said, strict=True)):
            return "the same"
        try:
            self._say(self.pclf.load(self.path, key=KEY))
        except self.pclf.errors.PclfError:
            return "another"
        raise Failure("a changed model was accepted as the one that was saved")

    def _say(self, model):
        out = []
        for name in ("films", "books"):
            d = model.data_.domains.get(name)
            if d is None:
                raise self.pclf.errors.UnknownNameError(name)      # what was renamed is not asked for
            lists = model.recommend(name, self.people, n=3)
            out += [np.where(lists.codes >= 0, lists.scores, d.scale.low), lists.codes]
            ratings = [model.predict(name, self.people, [d.items.ids[i]] * len(self.people)) for i in range(d.n_items)]
            guest = model.fold_in({name: {d.items.ids[0]: d.scale.high}})
            out += [*ratings, np.array([r.score for r in model.recommend(name, guest, n=2)])]
            if not all(((values >= d.scale.low - 1e-9) & (values <= d.scale.high + 1e-9)).all() for values in ratings):
                raise Failure("a number that is none, or is off the scale")
        _check_finite(out)
        return out


def _changed_table(rng, table):
    """A table of Parquet with something changed in a column: a type, a number, a row, the column itself."""
    import pyarrow as pa

    name = rng.choice(table.column_names)
    place, values = table.column_names.index(name), table[name].to_pylist()
    odd = [0, 1, -1, 5, 255, 2**31 - 1, -2**31, 2**62, 0.5, -0.5, 1e300, float("nan"), float("inf"), None, "x"]
    what = rng.randrange(8)
    if what < 3:
        at = rng.randrange(len(values))
        if isinstance(values[at], list) and values[at]:
            values[at] = list(values[at])
            values[at][rng.randrange(len(values[at]))] = rng.choice(odd)
        else:
            values[at] = rng.choice(odd)
    elif what == 3:
        values[rng.randrange(len(values))] = rng.choice([None, [], [1], values[0]])
    elif what == 4:
        rng.shuffle(values)
    elif what == 5:
        return table.drop_columns([name])
    elif what == 6:
        return rng.choice([table.slice(1), table.slice(0, 0), pa.concat_tables([table, table]),
                           table.append_column("x", table[name]), table.rename_columns([f"{n}x" for n in table.column_names])])
    else:
        kinds = [pa.int64(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.binary(), pa.null(),
                 *(pa.list_(of) for of in (pa.int64(), pa.uint8(), pa.uint16(), pa.int32(), pa.float64(), pa.float32(), pa.string()))]
        try:
            return table.set_column(place, name, table[name].cast(rng.choice(kinds)))
        except pa.ArrowException:
            return table.set_column(place, name, pa.nulls(len(table)))
    kind = table[name].type
    for wish in (kind, None):
        try:
            return table.set_column(place, name, pa.array(values, wish))
        except (pa.ArrowException, OverflowError, TypeError):
            continue
    return table.drop_columns([name])


def _change_array(rng, arrays):
    name = rng.choice(sorted(arrays))
    a = arrays[name]
    what = rng.randrange(12)
    if what < 5 and a.size:
        flat = a.reshape(-1)
        at = rng.randrange(flat.size)
        odd = [0, 1, -1, 2, 127, 255, flat.size, 2**31 - 1, -2**31, 2**62, np.nan, np.inf, -np.inf, 1e300, 1e-300, 0.5]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat[at] = np.asarray(rng.choice(odd)).astype(flat.dtype)
    elif what == 5 and a.size:
        raw = bytearray(a.tobytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        arrays[name] = np.frombuffer(bytes(raw), a.dtype).reshape(a.shape).copy()
    elif what == 6:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = rng.choice(["int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool"])
            arrays[name] = a.astype(kind)
    elif what == 7:
        arrays[name] = rng.choice([a[:-1], a[1:], a[:0], np.concatenate([a, a]), a[None], a.reshape(-1), a.T,
                                   np.concatenate([a, a[:1]])])
    elif what == 8:
        other = rng.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
    elif what == 9:
        del arrays[name]
    elif what == 10:
        arrays[rng.choice([name + ".x", "data.9.user", "model.x", "", "data.0", name.replace("0", "1")])] = a
    elif a.size:
        arrays[name] = a.reshape(-1)[np.random.default_rng(rng.randrange(2**32)).permutation(a.size)].reshape(a.shape)


def _change_json(rng, whole):
    places = []

    def walk(value):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], (dict, list)):
                walk(value[key])

    walk(whole)
    where, key = rng.choice(places)
    junk = [None, True, False, 0, 1, -1, 2, 3, 300, 2**70, -0.5, 0.5, 1e308, "", "x", "films", "int", "str", [], {}, [1],
            [[]], {"a": 1}, ["x"] * 9, "x" * 10_000, [float(i) for i in range(6)], "\ud800", "\x1b[31m",
            rng.choice(places)[0]]
    what = rng.randrange(6)
    if what < 3:
        value = rng.choice(junk)
        where[key] = json.loads(json.dumps(value))
    elif what == 3:
        del where[key]
    elif what == 4 and isinstance(where, dict):
        where[rng.choice(["x", "", "name", key + "x"])] = where[key]
    elif what == 4:
        where.append(where[key])
    elif isinstance(where, list):
        rng.shuffle(where)
    else:
        where[key] = where[rng.choice(list(where))]


# Files of ratings


ODD = ["\x00", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\ufeff", "\r", "\r\n", "\n", "\n\n", '"',
       '""', "'", ",", ";", "\t", "|", "::", ":", " ", "-", "=", "1e999", "nan", "inf", "1_0", "٣", "９", "é", "e\u0301",
       "\ud7ff", "\U0001f600", "\x1b[31m", "NULL", "NA", "None", "#", "\\", "9" * 400, "a" * 3000, "0x1", "1e-320", "5.5"]


class Files:
    """Ratings and tables of attributes as CSV and its cousins, Parquet and packed, damaged."""

    def __init__(self, folder, made):
        import gzip

        import pyarrow as pa
        from pyarrow import parquet

        import pclf

        self.pclf, self.folder = pclf, folder
        rows = [(u, f"i{v}", (u * v) % 5 + 1, 100 + u) for u in range(12) for v in range(5)]
        names = ["userId", "itemId", "rating", "timestamp"]
        self.whole = []
        for ending, separator, header, quote in (("csv", ",", True, ""), ("csv", ",", True, '"'), ("tsv", "\t", True, ""),
                                                 ("dat", "::", False, ""), ("csv", ";", False, ""), ("txt", "|", True, "")):
            lines = [names] * header + [[f"{quote}{x}{quote}" for x in row] for row in rows]
            self.whole.append((ending, ("\n".join(separator.join(map(str, line)) for line in lines) + "\n").encode()))
        self.whole.append(("csv.gz", gzip.compress(self.whole[0][1])))
        table = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
        parquet.write_table(table, folder / "r.parquet")
        self.whole.append(("parquet", (folder / "r.parquet").read_bytes()))
        (folder / "sound.csv").write_bytes(self.whole[0][1])
        self.sound = folder / "sound.csv"
        facts = ["itemId,genre,year,tags,weight", *(f"i{v},{'horror' if v % 2 else 'romance'},{1990 + v},a|b{v % 2},{v}.5"
                                                    for v in range(5))]
        self.facts = [(ending, "\n".join(line.replace(",", by) for line in facts).encode() + b"\n")
                      for ending, by in (("csv", ","), ("tsv", "\t"), ("dat", "::"), ("txt", ";"))]

    def attack(self, rng):
        facts = rng.random() < 0.2
        ending, content = rng.choice(self.facts if facts else self.whole)
        text = ending.count(".") == 0 and ending != "parquet"
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            content = _edited(rng, content) if text and rng.random() < 0.7 else _damaged(rng, content)
        path = self.folder / f"r.{ending}"
        path.write_bytes(content)
        encoding = "utf-8" if rng.random() < 0.9 else rng.choice(["latin-1", "utf-16", "cp1252", "utf-7", "ascii", "hex"])
        duplicates = rng.choice(["error", "last", "mean"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                if facts:
                    made = self.pclf.Ratings.from_files({"d": self.sound}, attributes={"d": path}, encoding=encoding)
                    self._check_facts(made.attributes, content if encoding == "utf-8" else b'"')
                    return "another"
                if rng.random() < 0.1:
                    from pclf.data.files import read_titles

                    read_titles(path, encoding)
                    return "another"
                d = self.pclf.Ratings.from_files({"d": path}, encoding=encoding, duplicates=duplicates)["d"]
            except self.pclf.errors.DataError as error:
                if len(str(error)) > 4000:
                    raise Failure(f"a message of {len(str(error)):,} characters") from error
                return "refused"
        if text and duplicates == "error" and encoding == "utf-8" and b'"' not in content:
            lines = [line for line in re.split(rb"\r\n|\n|\r", content.removeprefix(b"\xef\xbb\xbf")) if line.strip()]
            first = lines[0].decode(errors="replace")
            fields = [*re.split(r"::|[,;\t|]", first), "", "", ""]
            named = not re.fullmatch(r"\s*[-+]?[\d.]+\s*", fields[2]) and any(w in first.lower() for w in ("er", "te", "ra"))
            if len(d) != len(lines) - named:
                raise Failure(f"{len(d)} ratings of {len(lines) - named} lines")
        if not np.isfinite(d.ratings).all() or (len(d) and d.user.max() >= d.n_users):
            raise Failure("ratings that are none")
        return "another"


    def _check_facts(self, known, content):
        lines = [line for line in re.split(rb"\r\n|\n|\r", content.removeprefix(b"\xef\xbb\xbf")) if line.strip()]
        rows = int(known.known("d").sum()) + known.unused["d"]
        if b'"' not in content and rows != len(lines) - 1:
            raise Failure(f"{rows} rows of attributes in {len(lines)} lines")
        if not np.isfinite(known.of("d").data).all():
            raise Failure("attributes that are none")
        repr(known), known.facts("d", 0)


def _edited(rng, content):
    """As people and programs spoil text: something put in, a line or a field lost, doubled, moved."""
    text = content.decode(errors="surrogateescape")
    what = rng.randrange(7)
    at = rng.randrange(len(text) + 1) if rng.random() < 0.7 else rng.randrange(min(len(text), 40) + 1)
    if what < 3:
        text = text[:at] + rng.choice(ODD) * rng.choice((1, 1, 1, 2, 3)) + text[at:]
    elif what == 3:
        text = text[:at] + text[at + rng.choice((1, 2, 5, 30)):]
    elif what == 4:
        lines = text.split("\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[i] = rng.choice(["", lines[j], lines[i] + lines[j], lines[i][::-1], lines[i] + ",x", " " + lines[i] + " "])
        text = "\n".join(lines)
    elif what == 5:
        text = text.replace(rng.choice([",", "\n", "1", "::", "i", "\t"]), rng.choice(ODD), rng.choice((1, 5, -1)))[:1_000_000]
    else:
        text = text.replace("\n", rng.choice(["\r\n", "\r", "\n\n", "\x85", "\u2028"]))
    return text.encode(errors="surrogatepass")


def _damaged(rng, content):
    """As disks and networks spoil bytes."""
    raw = bytearray(content)
    what = rng.randrange(5)
    if what == 0:
        return bytes(raw[:rng.randrange(len(raw) + 1)])
    for _ in range(rng.choice((1, 1, 2, 10))):
        at = rng.randrange(len(raw)) if raw else 0
        if what == 1 and raw:
            raw[at] ^= 1 << rng.randrange(8)
        elif what == 2 and raw:
            raw[at] = rng.choice((0, 255, 10, 13, 34, 127, 128))
        elif what == 3:
            raw[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 100))))
        elif raw:
            del raw[at:at + rng.choice((1, 4, 100))]
    return bytes(raw)


# Archives


class Archives:
    """A data set as it is downloaded, damaged, and zips that lie."""

    FILES: ClassVar = {"ml-100k/u.data": b"1\t1\t5\t0\n2\t1\t4\t0\n" * 40, "ml-100k/u.item": b"1|Heat|x\n", "ml-100k/README": b"r"}

    def __init__(self, folder, made):
        from pclf.datasets import _fetch
        from pclf.errors import DownloadError

        self.folder, self.unpack, self.refused = folder, _fetch.unpack, DownloadError
        self.whole = []
        for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            with zipfile.ZipFile(folder / "a.zip", "w", how) as archive:
                for name, content in self.FILES.items():
                    archive.writestr(name, content)
            self.whole.append((folder / "a.zip").read_bytes())

    def attack(self, rng):
        packed, target = self.folder / "a.zip", self.folder / "out"
        if rng.random() < 0.2:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name, content in self.FILES.items():
                    archive.writestr(rng.choice([name, f"../{name}", f"/{name}", f"a\\..\\{name}", f"C:{name}", name + "\x1b",
                                                 "x/" * 50 + name]), content)
                if rng.random() < 0.5:
                    archive.writestr("ml-100k/u.data", b"0" * 20_000_000)
        else:
            packed.write_bytes(_damaged(rng, rng.choice(self.whole)))
        for old in target.iterdir() if target.exists() else ():
            old.unlink()
        if target.exists():
            target.rmdir()
        before = {p.name for p in self.folder.iterdir()}
        try:
            written = self.unpack(packed, target, ["u.data"], ["u.item", "README"], limit=1_000_000)
        except self.refused as error:
            if len(str(error)) > 4000:
                raise Failure(f"a message of {len(str(error)):,} characters") from error
            return "refused"
        finally:
            if {p.name for p in self.folder.iterdir()} - before - {"out"}:
                raise Failure("something was written outside")
        for file in written:
            if file.read_bytes() != self.FILES.get(f"ml-100k/{file.name}"):
                raise Failure(f"{file.name} is not what was packed")
        return "the same"


KINDS = {"archives": Archives, "folders": Folders, "ratings": Files, "models": Models}     # the longest last


def prepare(kind, made):
    """Whatever the attacks on a kind need that takes long, once."""
    if hasattr(KINDS[kind], "prepare"):
        KINDS[kind].prepare(made)


def batch(kind, start, stop, seed, note, made):
    """Some attacks in this process; what came of each goes to `note`, so that a death is known by its number."""
    with tempfile.TemporaryDirectory() as folder, note.open("a") as out:
        attacker = KINDS[kind](Path(folder), made)
        for number in range(start, stop):
            out.write(f"{number} ")
            out.flush()
            try:
                came = attacker.attack(random.Random(f"{kind} {seed} {number}"))
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                came = f"FAILED {type(error).__name__}: {str(error)[:150]!r} at {Path(where.filename).name}:{where.lineno}"
            out.write(came.replace("\n", " ") + "\n")


def run(kind, n, seed, until, made):
    """All attacks of a kind, in processes of BATCH each; a process that dies is followed by another."""
    came, failed, start = Counter(), [], 0
    while start < n and time.monotonic() < until:
        stop = min(n, start + BATCH)
        with tempfile.TemporaryDirectory() as folder:
            note = Path(folder) / "note"
            words = [sys.executable, __file__, "--batch", kind, str(start), str(stop), str(seed), str(note), str(made)]
            try:
                done = subprocess.run(words, capture_output=True, text=True, check=False,
                                      timeout=max(5, min(900, until - time.monotonic())))
                status = done.returncode
            except subprocess.TimeoutExpired:
                done, status = None, "time"
            lines = note.read_text().splitlines() if note.exists() else []
        whole = [line.partition(" ") for line in lines]
        for number, _, what in whole:
            if what:
                came["FAILED" if what.startswith("FAILED") else what] += 1
                if what.startswith("FAILED"):
                    failed.append(f"{kind}:{number} {what}")
        last = int(whole[-1][0]) if whole else start
        if status == 0:
            start = stop
        elif status == "time" and time.monotonic() >= until - 1:
            break
        else:
            came["FAILED"] += 1
            failed.append(f"{kind}:{last} the process ended with {status} {(done.stderr if done else '')[-300:]}")
            start = last + 1
    return came, failed


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--models", type=int, default=10_000)
    ask.add_argument("--ratings", type=int, default=10_000)
    ask.add_argument("--folders", type=int, default=1_000)
    ask.add_argument("--archives", type=int, default=1_000)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--seconds", type=float, default=1e9, help="stop after so many, shared by the kinds")
    ask.add_argument("--only", help="KIND:NUMBER, with its traceback")
    ask.add_argument("--batch", nargs=6, help=argparse.SUPPRESS)
    options = ask.parse_args()
    if options.batch:
        kind, start, stop, seed, note, made = options.batch
        return batch(kind, int(start), int(stop), int(seed), Path(note), Path(made))
    if options.only:
        kind, number = options.only.split(":")
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as made:
            prepare(kind, Path(made))
            print(KINDS[kind](Path(folder), Path(made)).attack(random.Random(f"{kind} {options.seed} {number}")))
        return 0
    all_failed, kinds, seconds = [], [kind for kind in KINDS if getattr(options, kind)], options.seconds
    for i, kind in enumerate(kinds):
        with tempfile.TemporaryDirectory() as made:
            prepare(kind, Path(made))
            began = time.monotonic()             # what is fitted and compiled once does not count
            came, failed = run(kind, getattr(options, kind), options.seed, began + seconds / (len(kinds) - i), made)
        seconds -= time.monotonic() - began      # what one kind leaves, the next may take
        all_failed += failed
        counts = ", ".join(f"{came[what]:,} {what}" for what in ("refused", "the same", "another", "FAILED"))
        print(f"{kind:<9} {sum(came.values()):>7,} tried: {counts} ({time.monotonic() - began:.0f} s)", flush=True)
    for line in all_failed[:40]:
        print(line)
    return 1 if all_failed else 0


if __name__ == "__main__":
    sys.exit(main())
