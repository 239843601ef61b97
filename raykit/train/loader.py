"""Batches in raykit's order: any map-style dataset, sliced by rank and micro-batch, each sample with its own seed.

The global generators are seeded by (seed, epoch, row) around every `__getitem__`, in whichever process it runs,
so random transforms do not depend on the number of loader workers or on where the run was resumed. A dataset
that never draws from them may say so with an attribute `deterministic = True` and saves about 20 us a sample.

A row that cannot be read, rows that cannot be put into one batch, and rows that the recipe cannot work with are
refused by their ids, in whichever process that is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from raykit.data import randomness
from raykit.data.order import Order, Samples
from raykit.errors import GateError, RaykitError
from raykit.train import blame, rng
from raykit.train.glance import signature

BLOCK = 1024
"""Examples of an update whose order is worked out at once: a call costs as much as a few hundred of them."""

Place = tuple[int, int]
"""(epoch, row): a row of the split's members, and the epoch that its randomness belongs to."""


NAMED = 8
"""So many rows of a batch are named."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """What a loader's process gives in place of a batch: an error that keeps all that it says."""

    error: RaykitError


class Fetched(list[Any]):
    """The items of one batch, and where they are from."""

    def __init__(self, items: Sequence[Any], places: Sequence[Place]) -> None:
        super().__init__(items)
        self.places = places


class Keyed(Dataset[Any]):
    """The members of one split, each seeded by its place. Indexed by `Place`."""

    def __init__(
        self, dataset: Any, members: np.ndarray[Any, Any], seed: int, ids: pa.ChunkedArray | None = None
    ) -> None:
        """`ids` are those of all rows of the dataset, in its order."""
        self._dataset = dataset
        self._members = members
        self._seed = seed
        self._ids = ids
        self._draws = not getattr(dataset, "deterministic", False)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, place: Place) -> Any:
        epoch, row = place
        if self._draws:
            rng.seed(randomness.sample(self._seed, epoch, row))
        return self._dataset[int(self._members[row])]

    def __getitems__(self, places: Sequence[Place]) -> Fetched | Unusable:
        """The items of one batch. What a row raises is told with its id, but for what may pass by itself."""
        items: list[Any] = []
        try:
            for place in places:
                items.append(self[place])
        except RaykitError as error:
            return Unusable(error)
        except Exception as error:
            name = self.names([places[len(items)]])
            if blame.is_of_rows(error):
                return Unusable(_unreadable(name, error))
            error.add_note(f"at {name}")
            raise
        return Fetched(items, places)

    def names(self, places: Sequence[Place]) -> str:
        """`rows 'a', 'b' and 'c'`, by their ids."""
        members = [int(self._members[row]) for _, row in places]
        ids = [repr(str(each) if self._ids is None else self._ids[each].as_py()) for each in members[:NAMED]]
        more = f" and {len(members) - NAMED:,} more" if len(members) > NAMED else ""
        return f"row{'s' if len(members) > 1 else ''} {', '.join(ids)}{more}"


def _unreadable(name: str, error: Exception) -> GateError:
    return GateError(
        f"{name} cannot be read: {blame.words(error)}",
        field="dataset",
        value=name,
        rule=f"see {blame.place(error)}",
        remedy="mend the row, or leave it out of the data in an experiment of its own",
    )


class _Collating:
    """Puts the items of a batch together. Where that raises, the rows are named, with what differs between them."""

    def __init__(self, keyed: Keyed, collate: Callable[[Sequence[Any]], Any] | None) -> None:
        self._keyed = keyed
        self._own = collate is not None
        self._collate = collate or default_collate

    def __call__(self, fetched: Fetched | Unusable) -> Any:
        if isinstance(fetched, Unusable):
            return fetched
        try:
            return self._collate(list(fetched))
        except RaykitError as error:
            return Unusable(error)
        except Exception as error:
            if not blame.is_of_rows(error):
                raise
            return Unusable(self._refused(fetched, error))

    def _refused(self, fetched: Fetched, error: Exception) -> GateError:
        names = self._keyed.names(fetched.places)
        kinds: dict[str, Place] = {}
        for item, place in zip(fetched, fetched.places, strict=True):
            kinds.setdefault(signature(item), place)
        first = [f"{self._keyed.names([place])} is {kind}" for kind, place in list(kinds.items())[:NAMED]]
        differ = f" ({'; '.join(first)})" if len(first) > 1 else ""
        return GateError(
            f"{names} cannot be put into one batch{differ}: {blame.words(error)}",
            field="recipe.collate",
            value=names,
            rule=f"see {blame.place(error)}"
            if self._own
            else "rows of one shape, or a collate() of the recipe's own",
        )


class Batches(Iterator[Any]):
    """The batches of a loader in their order."""

    def __init__(self, loader: DataLoader[Any], keyed: Keyed, given: Iterator[Any]) -> None:
        self._loader = loader
        self._keyed = keyed
        self._given = given
        self._count = 0

    def __next__(self) -> Any:
        batch = next(self._given)
        self._count += 1
        if isinstance(batch, Unusable):
            raise batch.error
        return batch

    def names(self) -> str:
        """The rows of the batch that was given last. Worked out anew: nobody asks unless something is wrong."""
        sampler = self._loader.batch_sampler
        assert sampler is not None
        places = next(islice(iter(sampler), self._count - 1, None))
        return self._keyed.names(places)


def names_of(batches: Iterator[Any]) -> str:
    """The rows of the batch that was given last, where that is known."""
    names = getattr(batches, "names", None)
    return "the rows of a batch" if names is None else str(names())


@contextmanager
def naming(batches: Iterator[Any], method: str) -> Iterator[None]:
    """Around a method of the recipe that works on the batch that was given last: what it raises is told with the rows.

    Raises:
        GateError: the method raised something that the machine has no part in.
    """
    try:
        yield
    except Exception as error:
        if not blame.is_of_rows(error):
            raise
        names = names_of(batches)
        raise GateError(
            f"the recipe raised {blame.words(error)} for {names}",
            field=f"recipe.{method}",
            value=names,
            rule=f"see {blame.place(error)}",
        ) from error


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
    return _Loader(
        keyed,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=_Collating(keyed, collate),  # type: ignore[arg-type]  # of what Keyed.__getitems__ gives
        pin_memory=pin,
        generator=torch.Generator(),  # its own, so that making an iterator draws nothing from the global one
    )


class _Loader(DataLoader[Any]):
    """A loader whose iterator raises what its processes have found, and can name rows."""

    def __iter__(self) -> Batches:  # type: ignore[override]
        assert isinstance(self.dataset, Keyed)
        return Batches(self, self.dataset, super().__iter__())


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
