"""About: what is known of people and things besides ratings, which is who chose what.

Domains that people or things tie together are analysed together. Where attributes alone tie them, every domain has axes
of its own, which are turned so that the same attributes lie on the same axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Machine
from pclf.factors.attributes import align
from pclf.factors.choices import Choice, learn_choices
from pclf.factors.fitted import NARROWEST, about_items
from pclf.factors.hyper import Hyper
from pclf.factors.rows import Floats
from pclf.factors.source import Source, Ties
from pclf.factors.start import Start
from pclf.problem import row_keys

COUNTS = 3           # numbers that say how often an item was chosen


@dataclass(frozen=True)
class About:
    """What is known about people and things besides ratings, a domain each."""

    people: list[Floats]         # (U, 1 + Q) 1, and where a person stands by what they chose
    things: list[Floats]         # (V, 3 + Q) see `about_items`
    chosen: list[Choice]         # things as people choose them, on axes of all domains that are analysed together
    choosers: list[Choice]       # people as things are chosen by them
    count: list[Floats]          # (4,) see `about_items`
    agreement: list[Floats]      # (Q,) how far an axis of choices means the same as in the first domain


def learn_about(sources: Sequence[Source], ties: Ties, hyper: Hyper, seed: int, machine: Machine,
                start: Start | None = None) -> About:
    """One analysis of the choices in all domains that people or things tie together.

    Where attributes alone tie them every domain has one of its own, and the axes of two have nothing in common.
    """
    out = About([], [], [], [], [], [])
    for group in [list(sources)] if ties.choices else [[s] for s in sources]:
        if ties.choices:
            people, things = [s.person for s in group], [s.thing for s in group]
        else:                                                # of its own rows alone, whatever comes before them
            people, things = ([np.arange(n, dtype=np.int32)] for n in (group[0].n_users, group[0].n_items))
        n_people, n_things = (1 + max(int(rows.max(initial=-1)) for rows in side) for side in (people, things))
        person = [rows[s.user[s.chosen]] for s, rows in zip(group, people, strict=True)]
        thing = [rows[s.item[s.chosen]] for s, rows in zip(group, things, strict=True)]
        n_chosen = sum(map(len, person))
        by_user, by_item = machine.lists(np.concatenate(person), np.concatenate(thing), np.zeros(n_chosen, np.uint8),
                                         n_people, n_things, 1, 0)
        of_domains = counted(person, n_people), counted(thing, n_things)
        chosen, choosers = learn_choices(by_user, by_item, of_domains, hyper.places, seed, machine,
                                         keys_of(group, things))
        if start is not None:
            names = [s.name for s in group]
            chosen = start.as_before(chosen, "chosen", names, things, by_item.n_chosen)
            choosers = start.as_before(choosers, "choosers", names, people, by_user.n_chosen)
        counts = of_domains[1].sum(axis=1)
        count = spread_of(counts)
        stand = np.column_stack([np.ones(n_people), chosen.of_all(by_user, machine)])
        known = about_items(counts, count, choosers.of_all(by_item, machine))
        for own_people, own_things in zip(people, things, strict=True):
            out.people.append(stand[own_people])
            out.things.append(known[own_things])
            out.chosen.append(Choice(chosen.places[own_things], chosen.variance))
            out.choosers.append(Choice(choosers.places[own_people], choosers.variance))
            out.count.append(count)
            out.agreement.append(np.full(chosen.places.shape[1], float(ties.choices)))
    if ties.attributes and not ties.choices:
        align_axes(out, sources, seed)
    return out


def keys_of(sources: Sequence[Source], things: Sequence[NDArray[Any]]) -> NDArray[np.uint64] | None:
    """The key of each thing, where items have some."""
    keys = [s.keys for s in sources if s.keys is not None]
    if len(keys) < len(sources):
        return None
    n = sum(s.n_items for s in sources)
    return row_keys(keys, things, tied=1 + max(int(rows.max(initial=-1)) for rows in things) < n)


def spread_of(counts: Floats) -> Floats:
    """What `about_items` must know of how often things were chosen. (4,)"""
    logs = np.log(counts[counts > 0]) if counts.any() else np.zeros(1)
    spread = max(logs.std(), NARROWEST)
    standard = (logs - logs.mean()) / spread
    typical = [np.average(x, weights=np.exp(logs)) for x in (standard, standard**2)]
    return np.array([logs.mean(), spread, *typical])


def align_axes(about: About, sources: Sequence[Source], seed: int) -> None:
    """Axes of choices that attributes tie together are turned onto those of the largest domain."""
    known = [z for z, s in enumerate(sources) if s.attributes is not None and s.attributes.nnz]
    known.sort(key=lambda z: -sources[z].counts.total)
    sizes = {about.chosen[z].places.shape[1] for z in known}
    if len(known) < 2 or len(sizes) > 1:
        return
    turns, agreements = align([about.things[z][:, COUNTS:] for z in known], [sources[z].attributes for z in known],
                              seed)
    for z, turn, agreement in zip(known, turns, agreements, strict=True):
        about.things[z][:, COUNTS:] = about.things[z][:, COUNTS:] @ turn
        about.choosers[z] = replace(about.choosers[z], turn=turn)
        about.agreement[z] = agreement


def counted(rows: Sequence[NDArray[np.int32]], n: int) -> Floats:
    """How often each of n rows comes, a domain a column. (n, Z)"""
    return np.stack([np.bincount(own, minlength=n) for own in rows], axis=1).astype(np.float64)
