"""Sample order: a permutation per epoch, reached at any position, the same for every world size."""

import itertools
import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raykit.data.order import MAX_ROWS, Order, micro_batch_size
from raykit.errors import PlanError

fixed = settings(deadline=None, derandomize=True, max_examples=60)
seeds = st.integers(0, 2**63 - 1)


def epoch_of(order, epoch):
    return order.index_at(np.arange(epoch * order.rows, (epoch + 1) * order.rows)).indices


@given(st.integers(1, 400), seeds, st.integers(0, 10**6))
@fixed
def test_each_epoch_is_a_permutation(rows, seed, epoch):
    assert sorted(epoch_of(Order(rows, seed), epoch)) == list(range(rows))


@given(st.integers(1, 400), seeds, st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
@fixed
def test_seeking_to_a_position_finds_what_walking_there_finds(rows, seed, positions):
    order = Order(rows, seed)
    together = order.index_at(np.array(positions))
    assert [order.index_at(position) for position in positions] == list(zip(*together, strict=True))
    for position, epoch, index in zip(positions, *together, strict=True):
        assert epoch == position // rows
        assert epoch_of(order, epoch)[position % rows] == index


@given(
    st.integers(1, 300), seeds, st.integers(1, 50), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5)
)
@fixed
def test_ranks_and_micro_batches_only_slice_the_batch(rows, seed, update, world, accumulate, micro_size):
    # covers GOLD-30, CONTRACT-30: effective batch = micro-batch x accumulation x replicas.
    order, batch_size = Order(rows, seed), micro_size * world * accumulate
    parts = [
        order.rank_slice(update, batch_size, world=world, accumulate=accumulate, rank=rank, micro=micro)
        for rank in range(world)
        for micro in range(accumulate)
    ]
    whole = order.batch(update, batch_size)
    assert {part.indices.size for part in parts} == {micro_size}
    for field in ("epochs", "indices"):
        assert np.array_equal(np.concatenate([getattr(part, field) for part in parts]), getattr(whole, field))


@given(st.integers(1, 40), seeds, st.integers(1, 90))
@fixed
def test_batches_run_on_across_epochs_and_count_every_sample_once_in_each(rows, seed, batch_size):
    # covers CONTRACT-31: examples per update are counted, never short at the end of an epoch.
    updates = math.lcm(rows, batch_size) // batch_size
    assume(updates <= 400)
    batches = [Order(rows, seed).batch(update, batch_size) for update in range(1, updates + 1)]
    assert all(batch.indices.size == batch.epochs.size == batch_size for batch in batches)
    seen = Counter((int(epoch), int(index)) for batch in batches for epoch, index in zip(*batch, strict=True))
    epochs = updates * batch_size // rows
    assert seen == Counter({(epoch, index): 1 for epoch in range(epochs) for index in range(rows)})


def test_sixty_four_examples_in_eight_by_four_by_two():
    # covers GOLD-30
    assert micro_batch_size(64, world=2, accumulate=4) == 8
    slices = [
        Order(1797, 1).rank_slice(3, 64, world=2, accumulate=4, rank=rank, micro=micro)
        for rank in range(2)
        for micro in range(4)
    ]
    assert sum(part.indices.size for part in slices) == 64


def test_the_order_never_changes_between_releases():
    # covers I5: a resume under a newer raykit sees the samples the run would have seen.
    assert Order(10, 1).index_at(np.arange(20)).indices.tolist() == [
        *[3, 1, 8, 5, 4, 2, 0, 6, 7, 9],
        *[9, 3, 5, 4, 8, 0, 6, 7, 1, 2],
    ]
    assert Order(10**12, 7).index_at(10**15) == (1000, 206872030954)
    across = Order(1797, 1).batch(29, 64)
    assert across.epochs.tolist() == [0] * 5 + [1] * 59
    assert across.indices[:6].tolist() == [356, 1775, 1124, 1302, 1390, 34]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7])
def test_small_data_meets_every_order_about_equally_often(rows):
    orders = math.factorial(rows)
    tries = max(1000, 10 * orders)
    epochs = Order(rows, 1).index_at(np.arange(tries * rows)).indices.reshape(tries, rows)
    counts = Counter(map(tuple, epochs.tolist()))
    expected = tries / orders
    chi_square = sum((counts[o] - expected) ** 2 / expected for o in itertools.permutations(range(rows)))
    freedom = orders - 1
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


def neighbours(rows):
    """Orders that a weak mix would make alike: seeds one apart, epochs one apart."""
    for seed in range(40):
        yield epoch_of(Order(rows, seed), 0), epoch_of(Order(rows, seed + 1), 0)
        yield epoch_of(Order(rows, seed), seed), epoch_of(Order(rows, seed), seed + 1)


@pytest.mark.parametrize("rows", [1000, 1024, 1797])
def test_orders_of_neighbouring_seeds_and_epochs_look_independent(rows):
    pairs = list(neighbours(rows))
    same_place = [int(np.count_nonzero(first == second)) for first, second in pairs]
    correlation = [abs(np.corrcoef(first, second)[0, 1]) for first, second in pairs]
    in_sequence = [int(np.count_nonzero(np.diff(first) == 1)) for first, _ in pairs]
    # Independent orders share Poisson(1) places, and follow each other Poisson(1) times.
    assert abs(np.mean(same_place) - 1) < 5 / math.sqrt(len(pairs))
    assert abs(np.mean(in_sequence) - 1) < 5 / math.sqrt(len(pairs))
    assert max(correlation) < 5 / math.sqrt(rows)


def test_neighbouring_positions_land_anywhere():
    rows, cells = 2**20 + 7, 32
    indices = epoch_of(Order(rows, 3), 0)
    pairs = np.histogram2d(indices[:-1], indices[1:], bins=cells)[0]
    expected = (rows - 1) / cells**2
    chi_square = float(((pairs - expected) ** 2 / expected).sum())
    assert abs(chi_square - cells**2) < 6 * math.sqrt(2 * cells**2)


def test_huge_data_costs_no_memory_and_loses_no_position():
    order = Order(MAX_ROWS, 1)
    last = 2**63 - 1
    assert order.index_at(last)[0] == last // MAX_ROWS == 1
    sample = Order(10**12, 1).index_at(np.arange(10**12 - 500, 10**12 + 500))
    assert sample.epochs.tolist() == [0] * 500 + [1] * 500
    assert len(set(sample.indices.tolist())) == 1000
    assert sample.indices.min() >= 0
    assert sample.indices.max() < 10**12


def test_the_shape_of_the_positions_is_kept():
    order = Order(10, 1)
    square = order.index_at(np.arange(6).reshape(2, 3))
    assert square.indices.shape == square.epochs.shape == (2, 3)
    assert order.index_at(np.arange(0)).indices.size == 0


def best_of(times, act):
    def once():
        start = time.perf_counter()
        act()
        return time.perf_counter() - start

    return min(once() for _ in range(times))


def test_a_batch_takes_microseconds_and_a_million_less_than_a_second():
    order = Order(10**12, 1)
    positions = np.arange(10**15, 10**15 + 10**6)
    # 0.1 ms and 0.1 s where it was measured; the bounds leave room for a busy machine.
    assert best_of(50, lambda: order.batch(10**9, 64)) < 1e-3
    assert best_of(3, lambda: order.index_at(positions)) < 1.0


@pytest.mark.parametrize("rows", [0, -1, MAX_ROWS + 1])
def test_no_rows_cannot_be_ordered(rows):
    with pytest.raises(PlanError) as caught:
        Order(rows, 1)
    assert caught.value.field == "dataset"


def test_a_batch_that_does_not_divide_is_refused_with_the_nearest_that_does():
    # covers CONTRACT-30
    with pytest.raises(PlanError) as caught:
        Order(100, 1).rank_slice(1, 64, world=3, accumulate=2, rank=0, micro=0)
    error = caught.value
    assert (error.field, error.value) == ("run.batch", 64)
    assert error.rule == "a multiple of workers x accumulate = 6"
    assert error.remedy == "set run.batch to 60 or 66, or change run.workers or run.accumulate"


def test_a_batch_smaller_than_its_shares_is_not_told_to_become_zero():
    with pytest.raises(PlanError) as caught:
        micro_batch_size(2, world=4, accumulate=1)
    assert caught.value.remedy == "set run.batch to 4, or change run.workers or run.accumulate"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"update": 0}, "update"),
        ({"rank": 2}, "rank"),
        ({"rank": -1}, "rank"),
        ({"micro": 4}, "micro"),
        ({"batch_size": 0}, "run.batch"),
        ({"world": 0}, "run.workers"),
        ({"accumulate": 0}, "run.accumulate"),
    ],
)
def test_a_place_outside_the_batch_is_refused_by_name(change, field):
    place = {"update": 1, "batch_size": 64, "world": 2, "accumulate": 4, "rank": 0, "micro": 0} | change
    with pytest.raises(PlanError) as caught:
        Order(100, 1).rank_slice(**place)
    assert caught.value.field == field


def test_a_negative_position_is_refused():
    with pytest.raises(PlanError):
        Order(10, 1).index_at(-1)
