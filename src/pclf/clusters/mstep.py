"""The M-step and the priors, once for all engines.

Written with operators and methods that NumPy arrays and PyTorch tensors share, so the arrays stay where the
engine put them. Users whose rows lie in blocks are known by their sums: a block does the rest, with `joint`.
"""

from dataclasses import dataclass

import numpy as np

from pclf.clusters.state import Params, SpreadCounts, SpreadUsers, Stats
from pclf.problem import Array, Groups, Problem

BLOCK = 1 << 16      # rows whose sum in float32 is exact enough

@dataclass(frozen=True)
class Priors:
    """How many ratings' worth each prior counts; 0 everywhere is the paper's plain maximum likelihood.

    users, items: Dirichlet prior of a membership P(k | u) or P(c | v); its mean is the share of each cluster
    in the row's group. table: of a cell P(r | k, c); its mean is what the cell would be if row and column did
    not interact, P(r | k) P(r | c) / P(r).
    """

    users: float = 0.0
    items: float = 0.0
    table: float = 0.0


@dataclass(frozen=True)
class Means:
    """Where the priors pull to. Held while the temperature is, so that EM climbs one objective."""

    users: Array               # (G, K)  a row for each group
    items: tuple[Array, ...]   # (G, C)  a view
    tables: tuple[Array, ...]  # (R, K, C)


def mstep(stats: Stats, problem: Problem, priors: Priors, means: Means) -> Params:
    """Parameters from expected counts: eqs. (Cu)-(rConCuCvspetwo), with pseudo-counts where there are priors.

    The paper's P(C) and P(u | C) appear as their product, P(u, C) = counts / total.
    """
    views = range(len(stats.items))
    return Params(
        joint(stats.users, priors.users, means.users, problem.user_groups),
        tuple(joint(stats.items[i], priors.items, means.items[i], problem.item_groups[i]) for i in views),
        tuple(_conditional(stats.tables[i], priors.table, means.tables[i]) for i in views),
    )


def prior_means(stats: Stats, problem: Problem) -> Means:
    """The shares of the clusters in each group, and tables without interaction, from the counts at hand."""
    views = range(len(stats.items))
    return Means(
        shares(stats.users, problem.user_groups),
        tuple(shares(stats.items[i], problem.item_groups[i]) for i in views),
        tuple(_no_interaction(table) for table in stats.tables),
    )


def shares(counts: Array, groups: Groups) -> Array:
    """The share of each cluster in each group; of all rows together where a group has no counts. (G, clusters)"""
    if isinstance(counts, SpreadCounts):
        counts, groups = counts.sums, tuple((g, g + 1) for g in range(len(groups)))
    everyone = _column_sums(counts)
    everyone = everyone + (everyone.sum() <= 0)                # no counts at all: equal shares
    out = (everyone * 0)[None, :][[0] * len(groups)]           # a group may have no rows
    for g, (start, stop) in enumerate(groups):
        total = _column_sums(counts[start:stop]) + 1e-6 * everyone
        out[g] = total / total.sum()
    return out


def _column_sums(x: Array) -> Array:
    """By blocks of rows: a sum of 20 million numbers in float32 does not grow any more."""
    sums = [x[start:start + BLOCK].sum(0) for start in range(0, max(1, len(x)), BLOCK)]
    return sum(sums[1:], sums[0])


def _row_sums(x: Array) -> Array:
    """As a product, which is ten times as fast as NumPy's sum where rows are short."""
    return x @ (np.ones(x.shape[1], x.dtype) if isinstance(x, np.ndarray) else x.new_ones(x.shape[1]))


def memberships(joint: Array, groups: Groups, fallback: Array) -> Array:
    """P(cluster | row) by Bayes' rule (Model Inference); a row without ratings gets its group's fallback."""
    total = _row_sums(joint)[:, None]
    empty = total <= 0
    out = joint / (total + empty)
    for (start, stop), mean in zip(groups, fallback, strict=True):
        out[start:stop] += empty[start:stop] * mean
    return out


def log_prior(params: Params, problem: Problem, priors: Priors, means: Means) -> float:
    """log of the prior density up to a constant: what the penalised objective adds to the likelihood."""
    total = 0.0
    if priors.users:
        total += priors.users * log_density(params.users, problem.user_groups, means.users)
    for i, groups in enumerate(problem.item_groups):
        if priors.items:
            total += priors.items * log_density(params.items[i], groups, means.items[i])
        if priors.table:
            total += priors.table * float((means.tables[i] * _log(params.tables[i])).sum())
    return total


def joint(counts: Array, strength: float, mean: Array, groups: Groups, total: float | None = None) -> Array:
    """P(row, cluster) from counts, which are a part of all, `total`, where rows lie in blocks."""
    if isinstance(counts, SpreadCounts):
        return SpreadUsers(counts, strength, mean)
    total = counts.sum() if total is None else total
    total = total + (total == 0)                               # a view of weight 0 has no counts
    if not strength:
        return counts / total
    out = np.empty_like(counts) if isinstance(counts, np.ndarray) else counts.new_empty(counts.shape)
    for g, (start, stop) in enumerate(groups):
        rows = counts[start:stop]
        n = _row_sums(rows)[:, None]
        out[start:stop] = rows + strength * mean[g]
        out[start:stop] *= n / (n + strength) / total
    return out


def _conditional(counts: Array, strength: float, mean: Array) -> Array:
    if strength:
        counts = counts + strength * mean
    total = counts.sum(0)
    empty = total <= 0                                         # a cell nobody visits stays flat
    return (counts + empty) / (total + empty * len(counts))


def _no_interaction(counts: Array) -> Array:
    """P(r | k) P(r | c) / P(r), normalised over levels. (R, K, C)"""
    n = counts.sum()
    n = n + (n <= 0)
    floor = 1e-6 * n / len(counts)
    row = counts.sum(2)[:, :, None] + floor                    # (R, K, 1)
    column = counts.sum(1)[:, None, :] + floor                 # (R, 1, C)
    level = counts.sum(2).sum(1)[:, None, None] + floor        # (R, 1, 1)
    mean = (row / row.sum(0)) * (column / column.sum(0)) / (level / n)
    return mean / mean.sum(0)


def log_density(joint: Array, groups: Groups, means: Array) -> float:
    """sum over rows with ratings of <mean, log membership>."""
    if isinstance(joint, SpreadUsers):
        return joint.log_density
    total = 0.0
    for (start, stop), mean in zip(groups, means, strict=True):
        rows = joint[start:stop]
        mass = _row_sums(rows)
        total += float(((mass > 0) * (_log(rows) @ mean - mean.sum() * _log(mass))).sum())
    return total


def _log(x: Array) -> Array:
    x = x.clip(1e-30)
    return x.log() if hasattr(x, "log") else np.log(x)
