"""Choice: what people pick in each catalogue, learnt from all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pclf.choice import rows as rows_of
from pclf.choice.calibration import Calibration, find_calibration
from pclf.choice.crossing import Crossing, learn_crossing
from pclf.choice.few import Together
from pclf.choice.gram import Floats
from pclf.choice.items import CORE, Items, learn_items
from pclf.choice.rows import LARGEST, Rows, Setting, taken
from pclf.choice.sums import Chosen, Counts, Source, stacked
from pclf.choice.tastes import Column, Tastes, learn_tastes
from pclf.choice.things import elsewhere
from pclf.choice.validate import find_setting
from pclf.door import check_array, check_names
from pclf.engines.cpu import one_thread_of_algebra
from pclf.errors import DataError, ModelFileError

SUREST = 0.999       # share of people who chose an item, of which odds are taken


@dataclass(frozen=True)
class Choice:
    """A catalogue's items, its setting and calibration, what other catalogues say, None where they say nothing, and
    what attributes do; no tastes where there are no attributes. sample: what some people chose in each catalogue, where
    the rows of all are on disk."""

    items: tuple[Items, ...]
    settings: tuple[Setting, ...]
    calibrations: tuple[Calibration, ...]
    crossings: tuple[Crossing | None, ...]
    tastes: tuple[Tastes, ...] = ()
    sample: tuple[Rows, ...] = ()

    def scores(self, target: int, chosen: Sequence[Rows | None], people: NDArray[Any] | None = None,
               together: Together | None = None, odds: Floats | None = None) -> Floats:
        """How much each item of a catalogue would count for some people, who may be guests or visitors.   (n, V)

        chosen: what they chose in each catalogue, (n, V of that), or None for nothing. people: their rows among all
        people, -1 for a guest; without them, all are taken as people that nothing was learnt from. together: who chose
        what with what here, for those who told little. odds: how many times as probable as for anybody it is that each
        of these people chooses each item next, (n, V).
        What somebody chose already has no meaning here: leave it out.
        """
        items, pull = self.items[target], self.settings[target].pull
        here = chosen[target]
        n = next(rows.shape[0] for rows in chosen if rows is not None)
        here = csr_array((n, items.n_items), dtype=np.float32) if here is None else here
        been = np.diff(here.indptr) > 0
        moved = self._moved(target, chosen, here, people)
        mean = np.float32(pull) * items.mean_times
        few = None if together is None else together.asked(np.diff(here.indptr))
        if been.all() and (few is None or not few.any()):
            return items.expected(here, mean if moved is None else mean + items.times(moved))
        out = np.empty((n, items.n_items), np.float32)
        means = np.broadcast_to(items.mean, out.shape) if moved is None else items.mean + moved
        if odds is not None:           # nothing is chosen twice, so what many choose anyway stays below 1
            means = -np.expm1(np.log1p(-np.clip(means, 0, SUREST)) * odds)
        out[~been] = means[~been]
        if been.any():
            out[been] = items.expected(taken(here, been), mean if moved is None else mean + items.times(moved[been]))
        if together is not None and few is not None and few.any():
            told = taken(here, few)
            share = together.whole(np.diff(told.indptr)).astype(np.float32)[:, None]
            out[few] = share * out[few] + (1 - share) * together.expected(told, means[few])
        return out

    def probability(self, target: int, scores: Floats, n_chosen: NDArray[Any]) -> NDArray[np.float64]:
        """P(chosen) from scores of people with so many choices; see `Calibration` for what it means.   (n, V)"""
        return self.calibrations[target].probability(scores, n_chosen)

    def _moved(self, target: int, chosen: Sequence[Rows | None], here: Rows,
               people: NDArray[Any] | None) -> NDArray[np.float32] | None:
        """What other catalogues add to the mean rows; nothing for those who have not been elsewhere.   (n, V)"""
        crossing = self.crossings[target]
        if crossing is None or all(rows is None for z, rows in enumerate(chosen) if z != target):
            return None
        n, sizes = here.shape[0], [items.n_items for items in self.items]
        others = stacked(chosen, target, n, sizes)
        told = np.diff(others.indptr) > 0
        move = crossing.move(others)
        if people is not None and len(crossing.people):
            place = np.searchsorted(crossing.people, people).clip(max=len(crossing.people) - 1)
            own = (crossing.people[place] == people) & (np.diff(here.indptr) > 0)
            h = crossing.leverage_of(place[own], taken(others, own))[:, None]
            left = taken(here, own, crossing.target).toarray() - crossing.target_mean - move[own]
            move[own] -= h / (1 - h) * left
        out = np.zeros((n, sizes[target]), np.float32)
        out[np.ix_(told, crossing.target)] = move[told]
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for z, (items, setting, calibration, crossing) in enumerate(zip(
                self.items, self.settings, self.calibrations, self.crossings, strict=True)):
            arrays |= items.to_arrays(f"{prefix}.{z}.items")
            arrays |= {f"{prefix}.{z}.setting": np.array([*setting, *calibration[:2], *calibration[4:]]),
                       f"{prefix}.{z}.curve": np.array(calibration[2:4])}
            arrays |= crossing.to_arrays(f"{prefix}.{z}.crossing") if crossing else {}
        for z, tastes in enumerate(self.tastes):
            arrays |= tastes.to_arrays(f"{prefix}.{z}.tastes")
        for z, rows in enumerate(self.sample):
            arrays |= rows_of.to_arrays(f"{prefix}.{z}.sample", rows)
        return arrays

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], sizes: Sequence[int],
                    n_people: int, n_features: int = 0) -> "Choice":
        """What `to_arrays` gave, for catalogues of so many items. It is from a file, so it is checked."""
        items, settings, calibrations, crossings = [], [], [], list[Crossing | None]()
        for z, n_items in enumerate(sizes):
            name = f"{prefix}.{z}"
            setting = check_array(f"{name}.setting", arrays[f"{name}.setting"], dtype="float64", shape={"numbers": 11},
                                  low=-LARGEST, high=LARGEST).tolist()
            curve = check_array(f"{name}.curve", arrays[f"{name}.curve"], dtype="float64", low=-LARGEST, high=LARGEST,
                                shape={"lines": 2, "points": None})
            if not curve.shape[1] or (np.diff(curve, axis=1) < 0).any() or min(setting[0], *setting[5:7]) < 0 or not (
                    1 <= setting[9] <= setting[10]):
                raise ModelFileError(f"{name} must have a curve that rises, and settings that are not negative")
            items.append(Items.from_arrays(f"{name}.items", arrays, n_items))
            settings.append(Setting(*setting[:7]))
            calibrations.append(Calibration(*setting[7:9], *map(tuple, curve.tolist()), *setting[9:]))
            crossings.append(Crossing.from_arrays(f"{name}.crossing", arrays, sum(sizes) - n_items, n_items, n_people)
                             if f"{name}.crossing.left" in arrays else None)
        tastes = [Tastes.from_arrays(f"{prefix}.{z}.tastes", arrays, n_features) for z in range(len(sizes))
                  if any(name.startswith(f"{prefix}.{z}.tastes.") for name in arrays)]
        if len(tastes) not in (0, len(sizes)):
            raise ModelFileError(f"{prefix} must have tastes in all catalogues or in none")
        sample = tuple(rows_of.from_arrays(f"{prefix}.{z}.sample", arrays, None, n_items, low=0)
                       for z, n_items in enumerate(sizes) if f"{prefix}.{z}.sample.start" in arrays)
        if len(sample) not in (0, len(sizes)):
            raise ModelFileError(f"{prefix} must have a sample of people in all catalogues or in none")
        known = cls(tuple(items), tuple(settings), tuple(calibrations), tuple(crossings), tuple(tastes), sample)
        check_names("the model", [n for n in arrays if n.startswith(f"{prefix}.")], known.to_arrays(prefix))
        return known


def learn(rows: Sequence[Rows], people: Sequence[NDArray[Any]] | None = None,
          things: Sequence[NDArray[Any]] | None = None, *, settings: Sequence[Setting] | None = None, core: int = CORE,
          seed: int = 0, n_threads: int | None = None, previous: Choice | None = None,
          attributes: Sequence[Any] = (), columns: Sequence[Column] = (), sample: Chosen | None = None) -> Choice:
    """From what each person of each catalogue chose, see `graded`.

    people: the row of each person of a catalogue among all people, where these are the same in several; without it
    every catalogue has its own. things: the same for items. settings: those of each catalogue, which then has no
    calibration; without them, they are found on hidden choices. core: items of a catalogue whose ties to each other are
    all kept, the most chosen.
    previous: an older one of the same catalogues, whose settings and calibrations are kept. attributes: of the items
    of each catalogue, (V, P), where they have some; columns: where the features of each column are. sample: the people
    on whom settings are found, everybody unless it is given.
    """
    for of_domain in rows:
        bad = ~(np.isfinite(of_domain.data) & (of_domain.data > 0))
        if bad.any():
            raise DataError(f"what a choice counts must be a finite number above 0; got {of_domain.data[bad][0]:g}")
    everybody = Chosen(rows, people, things, n_threads)
    return learn_from(everybody, sample or everybody, settings=settings, core=core, seed=seed, previous=previous,
                      attributes=attributes, columns=columns)


def learn_from(source: Source, sample: Chosen, *, settings: Sequence[Setting] | None = None, core: int = CORE,
               seed: int = 0, previous: Choice | None = None, attributes: Sequence[Any] = (),
               columns: Sequence[Column] = ()) -> Choice:
    """`learn` from everybody, wherever they are. What hidden choices decide is decided on a sample of the people, and
    where the rows of the others are on disk, those of the sample are kept."""
    rng, n_threads, rows = np.random.default_rng(seed), source.n_threads, sample.rows
    given = settings if previous is None else previous.settings
    others = [None if sample.things is None else elsewhere(rows, sample.things, z) for z in range(len(rows))] \
        if given is None else []
    if given is not None:
        used = list(given)
    else:
        with one_thread_of_algebra():
            used = [find_setting(own, rng, n_threads, more=more) for own, more in zip(rows, others, strict=True)]
    counts = [Counts.of(source, z, setting) for z, setting in enumerate(used)]
    items = [learn_items(source, z, setting, core, counts[z]) for z, setting in enumerate(used)]
    crossings: list[Crossing | None] = [None] * len(rows)
    if sample.people is not None and len(rows) > 1:
        crossings = [learn_crossing(source, sample, z, own.mean, rng) for z, own in enumerate(items)]
    tastes = [learn_tastes(of_domain, a, columns, rng) for of_domain, a in zip(rows, attributes, strict=True)] \
        if attributes else []
    if previous is not None:
        calibrations = list(previous.calibrations)
    elif settings is not None:
        calibrations = [Calibration()] * len(rows)
    else:
        with one_thread_of_algebra():
            calibrations = [find_calibration(rows[z], own, used[z], counts[z], rng, others[z], n_threads)
                            for z, own in enumerate(items)]
    return Choice(tuple(items), tuple(used), tuple(calibrations), tuple(crossings), tuple(tastes),
                  tuple(rows) if source.here is None else ())
