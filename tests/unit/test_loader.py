"""Batches in raykit's order, whatever is worked out at once.

covers CONTRACT-12
"""

from __future__ import annotations

import numpy as np
import pytest

from raykit.data.order import Order
from raykit.train.loader import BLOCK, Keyed, train_loader

ROWS = 50


class Rows:
    deterministic = True

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("batch", [12, BLOCK - BLOCK % 6, 3 * BLOCK])
@pytest.mark.parametrize(("world", "rank", "accumulate"), [(1, 0, 1), (2, 1, 3)])
def test_micro_batches_are_the_slices_of_the_order_one_by_one(
    batch: int, world: int, rank: int, accumulate: int
) -> None:
    order = Order(ROWS, 7)
    after, last = 3, 3 + max(4, 2 * BLOCK // batch + 1)  # into a third block where blocks hold many updates
    loader = train_loader(
        Keyed(Rows(), np.arange(ROWS), 7),
        order,
        batch=batch,
        world=world,
        rank=rank,
        accumulate=accumulate,
        after=after,
        last=last,
        loader_workers=0,
    )
    expected = [
        order.rank_slice(
            update, batch, world=world, accumulate=accumulate, rank=rank, micro=micro
        ).indices.tolist()
        for update in range(after + 1, last + 1)
        for micro in range(accumulate)
    ]
    assert [rows.tolist() for rows in loader] == expected
    assert len(loader) == len(expected)
