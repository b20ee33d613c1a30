"""Scales: values on a scale, scales on common levels."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pclf.data import Scale

odd_inputs = settings(deadline=None, max_examples=100, derandomize=os.environ.get("TEST_SEED") != "any")


def test_ten_half_stars_fall_into_five_levels_two_by_two():
    halves = Scale.between(0.5, 5, 0.5)
    assert halves.to_levels(5).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert halves.level_values(5).tolist() == [0.75, 1.75, 2.75, 3.75, 4.75]


def test_eleven_values_fall_into_five_levels_by_the_middle_of_each():
    """floor((i + 0.5) * 5 / 11) for i = 0..10: 0.2, 0.7, 1.1, 1.6, 2.05, 2.5, 2.95, 3.4, 3.9, 4.3, 4.8."""
    scale = Scale.between(0, 10)
    assert scale.to_levels(5).tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    assert scale.level_values(5).tolist() == [0.5, 2.5, 5.0, 7.5, 9.5]


def test_levels_without_a_value_lie_between_their_neighbours():
    """Two values in five levels fall in levels 1 and 3."""
    assert Scale((0, 10)).to_levels(5).tolist() == [1, 3]
    assert Scale((0, 10)).level_values(5).tolist() == [0.0, 0.0, 5.0, 10.0, 10.0]


@odd_inputs
@given(st.lists(st.integers(-500, 500), min_size=1, max_size=60, unique=True), st.integers(1, 80))
def test_levels_follow_the_order_of_the_scale(values, n_levels):
    scale = Scale(tuple(sorted(values)))
    levels, worth = scale.to_levels(n_levels).astype(int), scale.level_values(n_levels)
    assert (np.diff(levels) >= 0).all()
    assert (np.diff(worth) >= 0).all()
    assert scale.low <= worth[0] <= worth[-1] <= scale.high
    if scale.n >= n_levels:
        assert set(levels) == set(range(n_levels))


@pytest.mark.parametrize(("values", "expected"), [
    ([1, 2, 4, 5], Scale.between(1, 5)),
    ([5, 1, 3], Scale.between(1, 5)),
    ([0.5, 3, 5], Scale.between(0.5, 5, 0.5)),
    ([0, 1], Scale((0, 1))),
    ([-1, 1], Scale((-1, 1))),
    ([20, 40, 100], Scale.between(20, 100, 20)),
    ([3, 3], Scale((3,))),
    ([0, 0.1, 0.3, 0.7], Scale.between(0, 0.7, 0.1)),
    (np.array([3.7, 3.8, 4.0], np.float32), Scale.between(3.7, 4, 0.1)),
    ([1, math.pi, 1000], Scale((1, 3.141593, 1000))),
])
def test_a_scale_is_inferred_with_its_gaps_filled(values, expected):
    assert Scale.infer(values) == expected


def test_nearest_moves_ratings_onto_the_scale_and_half_way_up():
    assert Scale.between(1, 5).nearest([0, 1.5, 2.4, 9]).tolist() == [1, 2, 2, 5]


def test_position_finds_float32_values():
    assert Scale.between(0, 1, 0.1).position(np.array([0.1, 0.7], np.float32)).tolist() == [1, 7]
