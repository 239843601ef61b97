"""Batches in raykit's order: any map-style dataset, sliced by rank and micro-batch, each sample with its own seed.

The global generators are seeded by (seed, epoch, row) around every `__getitem__`, in whichever process it runs,
so random transforms do not depend on the number of loader workers or on where the run was resumed. A dataset
that never draws from them may say so with an attribute `deterministic = True` and saves about 20 us a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from raykit.data import randomness
from raykit.data.order import Order, Samples
from raykit.train import rng

BLOCK = 1024
"""Examples of an update whose order is worked out at once: a call costs as much as a few hundred of them."""

Place = tuple[int, int]
"""(epoch, row): a row of the split's members, and the epoch that its randomness belongs to."""


class Keyed(Dataset[Any]):
    """The members of one split, each seeded by its place. Indexed by `Place`."""

    def __init__(self, dataset: Any, members: np.ndarray[Any, Any], seed: int) -> None:
        self._dataset = dataset
        self._members = members
        self._seed = seed
        self._draws = not getattr(dataset, "deterministic", False)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, place: Place) -> Any:
        epoch, row = place
        if self._draws:
            rng.seed(randomness.sample(self._seed, epoch, row))
        return self._dataset[int(self._members[row])]


class _Slices:
    """This rank's micro-batches from the one after `update` to `last`, as lists of places."""

    def __init__(
        self, order: Order, *, batch: int, world: int, rank: int, accumulate: int, update: int, last: int
    ) -> None:
        self._order = order
        self._batch = batch
        self._world = world
        self._rank = rank
        self._accumulate = accumulate
        self._update = update
        self._last = last

    def __len__(self) -> int:
        return max(0, self._last - self._update) * self._accumulate

    def __iter__(self) -> Iterator[list[Place]]:
        block = max(1, BLOCK // self._batch)
        for first in range(self._update + 1, self._last + 1, block):
            updates = np.arange(first, min(first + block, self._last + 1))
            slices = [self._slices(updates, micro) for micro in range(self._accumulate)]
            for i in range(len(updates)):
                for epochs, rows in slices:
                    yield list(zip(epochs[i].tolist(), rows[i].tolist(), strict=True))

    def _slices(self, updates: np.ndarray[Any, Any], micro: int) -> Samples:
        return self._order.rank_slice(
            updates,
            self._batch,
            world=self._world,
            accumulate=self._accumulate,
            rank=self._rank,
            micro=micro,
        )


def train_loader(
    keyed: Keyed,
    order: Order,
    *,
    batch: int,
    world: int,
    rank: int,
    accumulate: int,
    after: int,
    last: int,
    loader_workers: int,
    collate: Callable[[Sequence[Any]], Any] | None = None,
    pin: bool = False,
) -> DataLoader[Any]:
    """This rank's micro-batches of updates `after` + 1 to `last`, in order.

    Raises:
        PlanError: the batch does not divide by ranks and accumulation.
    """
    slices = _Slices(
        order, batch=batch, world=world, rank=rank, accumulate=accumulate, update=after, last=last
    )
    return _loader(keyed, slices, loader_workers, collate, pin)


class _Scan:
    """This rank's share of one pass over a split, in row order."""

    def __init__(self, rows: int, *, batch: int, world: int, rank: int) -> None:
        self._rows, self._batch, self._world, self._rank = rows, batch, world, rank

    def __len__(self) -> int:
        return len(range(self._rank, math.ceil(self._rows / self._batch), self._world))

    def __iter__(self) -> Iterator[list[Place]]:
        for number in range(self._rank, math.ceil(self._rows / self._batch), self._world):
            first = number * self._batch
            yield [(0, row) for row in range(first, min(first + self._batch, self._rows))]


def scan_loader(
    keyed: Keyed,
    *,
    batch: int,
    world: int,
    rank: int,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> DataLoader[Any]:
    """This rank's batches of one pass over all members, in this process."""
    return _loader(keyed, _Scan(len(keyed), batch=batch, world=world, rank=rank), 0, collate, False)


def _loader(
    keyed: Keyed, batches: Any, workers: int, collate: Callable[[Sequence[Any]], Any] | None, pin: bool
) -> DataLoader[Any]:
    return DataLoader(
        keyed,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate or default_collate,
        pin_memory=pin,
        generator=torch.Generator(),  # its own, so that making an iterator draws nothing from the global one
    )


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on `device`; on the CPU it is passed on as it is."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
