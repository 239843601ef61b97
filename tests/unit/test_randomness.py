"""Keys of random streams: pure, told apart by every part, and the same in every release."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raykit.data import randomness

parts = st.lists(st.integers(-(2**70), 2**70) | st.text(max_size=8), max_size=4)
fixed = settings(deadline=None, derandomize=True)


def test_keys_never_change_between_releases():
    # covers I5: a resume under a newer raykit draws what the run would have drawn.
    assert randomness.init(1) == 4035387509036210005
    assert randomness.update(1, 2, 0, 0) == 6981734729369284918
    assert randomness.sample(1, 0, 5) == 5656687478625214357
    assert randomness.evaluate(1, 100) == 646999892345692110


@given(parts, parts)
@fixed
def test_other_parts_give_another_key(first, second):
    assert (randomness.key(*first) == randomness.key(*second)) == (first == second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1, 2), (12,)),
        ((1,), ("1",)),
        ((1, 256), (257,)),
        ((-1,), (255,)),
        ((), ("",)),
    ],
)
def test_parts_do_not_run_into_each_other(first, second):
    assert randomness.key(*first) != randomness.key(*second)


def test_every_generator_can_hold_a_key():
    keys = [randomness.sample(1, 0, index) for index in range(2000)]
    assert all(0 <= key < 2**63 for key in keys)
    assert any(key >= 2**62 for key in keys)


def test_streams_share_no_key():
    small = range(6)
    keys = [randomness.init(seed) for seed in small]
    keys += [randomness.evaluate(seed, update) for seed, update in itertools.product(small, small)]
    keys += [randomness.sample(*place) for place in itertools.product(small, small, small)]
    keys += [randomness.update(*place) for place in itertools.product(small, small, small, small)]
    assert len(set(keys)) == len(keys)


def test_each_bit_of_the_keys_of_neighbours_is_fair():
    keys = [randomness.sample(1, 0, index) for index in range(4000)]
    ones = [sum(key >> bit & 1 for key in keys) for bit in range(randomness.KEY_BITS)]
    assert all(abs(count - 2000) < 5 * 1000**0.5 for count in ones)
