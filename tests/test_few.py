"""Few: people who told little are offered what goes with it, and not what nobody picks."""

import numpy as np
import pytest

from pclf.choice import learn
from pclf.choice.few import Together
from pclf.choice.rows import Setting, as_rows, evened


def choices(n_people=400, n_items=60, each=15, seed=0):
    """People of four tastes, each for a quarter of the items. -> rows, tastes"""
    rng = np.random.default_rng(seed)
    taste = rng.integers(4, size=n_people)
    scores = rng.normal(0, 1, n_items) + 1.5 * (taste[:, None] == np.arange(n_items) % 4)
    picked = np.argsort(-scores - rng.gumbel(size=scores.shape), axis=1)[:, :each]
    rows = as_rows(np.repeat(np.arange(n_people), each), picked.ravel(), rng.choice([0.4, 1.0], picked.size),
                   (n_people, n_items))
    return rows, taste


def reference(rows, setting, told, means):
    """What the kernel must compute, with whole matrices."""
    x = evened(rows, setting.even).toarray().astype(np.float64)
    mean = x.mean(axis=0)
    square = x.T @ x - len(x) * np.outer(mean, mean)
    out = np.empty(told.shape)
    for i, row in enumerate(told.toarray()):
        c = np.flatnonzero(row)
        gap = row[c] - means[i, c]
        inner = square[np.ix_(c, c)] + setting.few_penalty * np.eye(len(c))
        out[i] = means[i] + square[:, c] @ np.linalg.solve(inner, gap)
    return out


@pytest.mark.parametrize("n_threads", [1, 3])
def test_kernel_computes_what_the_formula_says(n_threads):
    rows, _ = choices()
    setting, rng = Setting(few_penalty=20.0, even=0.4), np.random.default_rng(1)
    told = as_rows(np.repeat(np.arange(50), 3), np.concatenate([rng.permutation(60)[:3] for _ in range(50)]),
                   np.ones(150), (50, 60))
    means = rng.random((50, 60)).astype(np.float32)
    found = Together.of(rows, setting).expected(told, means, n_threads)
    np.testing.assert_allclose(found, reference(rows, setting, told, means), atol=2e-5)


def test_nothing_told_is_the_mean():
    rows, _ = choices()
    together = Together.of(rows, Setting())
    found = together.expected(as_rows([], [], [], (2, 60)), np.arange(60, dtype=np.float32))
    np.testing.assert_array_equal(found, np.tile(np.arange(60, dtype=np.float32), (2, 1)))


def test_the_whole_row_counts_half_with_few_choices_and_all_with_many():
    together = Together.of(choices()[0], Setting(few=10.0))
    np.testing.assert_allclose(together.whole([0, 10, 1000]), [0, 0.5, 1], atol=1e-3)
    assert together.asked(np.array([0, 1, 10, 40, 60])).tolist() == [False, True, True, True, False]


def test_one_choice_finds_more_of_the_others_than_popularity_and_than_the_whole_row():
    rows, _ = choices(800)
    train, test = rows[:600], rows[600:]
    choice = learn([train])
    assert choice.settings[0].few > 0
    first = test.indptr[:-1]
    one = as_rows(np.arange(200), test.indices[first], test.data[first], test.shape)
    found = {"popular": np.tile(np.asarray(train.sum(axis=0)).ravel(), (200, 1)), "whole row": choice.scores(0, [one]),
             "few": choice.scores(0, [one], together=Together.of(train, choice.settings[0]))}
    hits = {}
    for name, scores in found.items():
        scores[one.toarray() > 0] = -np.inf
        best = np.argsort(-scores, axis=1)[:, :10]
        hits[name] = np.take_along_axis(test.toarray() > 0, best, 1).mean()
    assert hits["few"] > hits["popular"] + 0.01
    assert hits["few"] > hits["whole row"] + 0.01


def test_few_of_ease_is_none():
    assert Setting.ease(100.0).few == 0
    assert not Together.of(choices()[0], Setting.ease(100.0)).asked(np.array([1, 5])).any()
