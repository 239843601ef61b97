"""Batches in raykit's order, whatever is worked out at once; and rows that cannot be used, by their ids.

covers CONTRACT-12
FAULT-C09
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from raykit.data.order import Order
from raykit.errors import CorruptError, GateError, RaykitError
from raykit.train.blame import is_of_rows
from raykit.train.loader import BLOCK, Batches, Keyed, naming, scan_loader, train_loader

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


# --- rows that cannot be used -------------------------------------------------------------------------------

IDS = pa.chunked_array([[f"p{n:02}" for n in range(ROWS)]])


class Odd:
    """Rows of which one or another is not like the others."""

    deterministic = True

    def __init__(self, **odd: Any) -> None:
        self.odd = {int(name[1:]): value for name, value in odd.items()}

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        value = self.odd.get(index, torch.ones(4))
        if isinstance(value, Exception):
            raise value
        return value


def batches(dataset: Any, *, workers: int = 0, collate: Any = None) -> Iterator[Any]:
    order = Order(ROWS, 7)
    return iter(
        train_loader(
            Keyed(dataset, np.arange(ROWS), 7, IDS),
            order,
            batch=10,
            world=1,
            rank=0,
            accumulate=1,
            after=0,
            last=5,
            loader_workers=workers,
            collate=collate,
        )
    )


def refused(dataset: Any, **how: Any) -> RaykitError:
    with pytest.raises(RaykitError) as caught:
        list(batches(dataset, **how))
    return caught.value


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_cannot_be_read_is_named_in_whichever_process(workers: int) -> None:
    error = refused(Odd(p17=ValueError("a damaged file")), workers=workers)
    assert isinstance(error, GateError)
    assert error.message.startswith(
        "row 'p17' cannot be read: ValueError: a damaged file (test_loader.py, line "
    )
    assert (error.field, error.value) == ("dataset", "row 'p17'")
    assert error.rule is not None and "test_loader.py" in error.rule and "raise value" in error.rule


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_of_unequal_shapes_are_named_with_their_shapes(workers: int) -> None:
    error = refused(Odd(p17=torch.ones(3)), workers=workers)
    assert "is float32 [4]; row 'p17' is float32 [3]): RuntimeError: " in error.message
    assert error.field == "recipe.collate"


def test_a_collate_of_the_recipe_s_own_is_told_with_its_line() -> None:
    def collate(items: list[Any]) -> Any:
        raise KeyError("label")

    error = refused(Odd(), collate=collate)
    assert "cannot be put into one batch: KeyError: 'label' (test_loader.py, line " in error.message
    assert error.rule is not None and 'raise KeyError("label")' in error.rule
    assert error.message.startswith("rows 'p") and "and 2 more" in error.message


def test_what_raykit_itself_refuses_keeps_all_that_it_says() -> None:
    error = refused(Odd(p17=CorruptError("unit 3 is damaged", field="units")), workers=1)
    assert isinstance(error, CorruptError) and error.field == "units"


def test_what_may_pass_by_itself_is_no_fault_of_a_row() -> None:
    for odd in (OSError(errno.EIO, "input/output error"), ConnectionResetError("gone"), MemoryError()):
        with pytest.raises(type(odd)) as caught:
            list(batches(Odd(p17=odd)))
        assert caught.value.__notes__ == ["at row 'p17'"]
    assert is_of_rows(FileNotFoundError(errno.ENOENT, "no such file")) and is_of_rows(OSError("truncated"))
    for told in ("CUDA error: device-side assert", "[gloo] Connection closed by peer", "out of memory"):
        assert not is_of_rows(RuntimeError(told))


def test_what_a_recipe_raises_is_told_with_the_rows_of_its_batch() -> None:
    order, given = Order(ROWS, 7), batches(Odd())
    for update in (1, 2, 3):
        next(given)
        with pytest.raises(GateError) as caught, naming(given, "losses"):
            torch.nn.functional.cross_entropy(torch.ones(1, 3), torch.tensor([5]))
        ids = [f"p{n:02}" for n in order.batch(update, 10).indices.tolist()]
        spot = str(caught.value.rule).removeprefix("see ").partition(":")[0]
        assert caught.value.message == (
            f"the recipe raised IndexError: Target 5 is out of bounds ({spot}) for rows "
            f"{', '.join(map(repr, ids[:8]))} and 2 more"
        )
        assert caught.value.rule is not None and "torch.nn.functional.cross_entropy(" in caught.value.rule
    with pytest.raises(GateError, match="unusual"), naming(given, "losses"):
        raise GateError("unusual")


def test_a_scan_names_its_rows_too() -> None:
    found = iter(scan_loader(Keyed(Odd(), np.arange(5, 15), 7, IDS), batch=4, world=1, rank=0))
    assert isinstance(found, Batches)
    next(found), next(found)
    assert found.names() == "rows 'p09', 'p10', 'p11', 'p12'"
