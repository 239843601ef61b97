"""Sample order: which row of the data is at which position of the run.

The order is a pure function of (seed, epoch, position). There is no list of indices to store and no sampler
to fast-forward: any position of any epoch costs the same, and a resume only needs the update it resumes at.

    position   0 1 2 3 4 | 5 6 7 8 9 | ...     one number line over the whole run
    epoch      0         | 1         |         position // rows
    index      3 0 4 1 2 | 1 4 2 0 3 |         a keyed permutation of range(rows), another one each epoch

Batches run on across epochs: update u (from 1) takes positions (u-1)*batch to u*batch, so every sample is
seen exactly once per epoch and every update has exactly the declared number of examples. Ranks and
micro-batches only slice that range, which is why the world size cannot change what an update sees.

The permutation is a Feistel network over a grid of width * height cells, the smallest near-square one that
holds the rows; the few cells past the last row are walked over. It mixes for training, not for secrecy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from raykit.data import randomness
from raykit.errors import PlanError

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

MAX_ROWS = 2**62
ROUNDS = 16
# One word per round and one for the swap: 136 bytes, which is one block of the hash.
KEY_WORDS = ROUNDS + 1


class Samples(NamedTuple):
    """The samples of a batch or a slice of one, in order: row `indices[i]` in its epoch `epochs[i]`."""

    epochs: Integers
    indices: Integers


@dataclass(frozen=True, slots=True)
class Order:
    """The order of `rows` samples under `seed`.

    Raises:
        PlanError: there is no row, or there are more than 2**62.
    """

    rows: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise PlanError(
                f"there are {self.rows} rows to order",
                field="dataset",
                value=self.rows,
                rule=f"1 to {MAX_ROWS} rows",
                remedy="give the training split at least one row",
            )

    @overload
    def index_at(self, position: int) -> tuple[int, int]: ...
    @overload
    def index_at(self, position: Integers) -> Samples: ...
    def index_at(self, position: int | Integers) -> tuple[int, int] | Samples:
        """The epoch and the row index at one position, or at each of an array of positions.

        Raises:
            PlanError: a position is negative.
        """
        positions = np.atleast_1d(np.asarray(position, dtype=np.int64))
        if not positions.size:
            return Samples(positions, positions)
        if positions.min() < 0:
            raise PlanError("a position is negative", value=int(positions.min()), rule="0 or more")
        epochs, offsets = np.divmod(positions, self.rows)
        indices = self._shuffled(epochs.ravel(), offsets.ravel().astype(np.uint64)).reshape(positions.shape)
        if isinstance(position, int):
            return int(epochs[0]), int(indices[0])
        return Samples(epochs, indices)

    def batch(self, update: int, batch_size: int) -> Samples:
        """All samples of `update` (from 1).

        Raises:
            PlanError: `update` or `batch_size` is less than 1.
        """
        return self.rank_slice(update, batch_size, world=1, accumulate=1, rank=0, micro=0)

    def rank_slice(
        self, update: int | Integers, batch_size: int, *, world: int, accumulate: int, rank: int, micro: int
    ) -> Samples:
        """The samples of micro-batch `micro` (from 0) of `rank` in `update` (from 1).

        Ranks take contiguous parts of the batch, micro-batches contiguous parts of those: read in the order
        (rank, micro), the slices are the batch, at every world size. Many updates cost little more than one:
        `update` may be an array of them, and the samples then have a row for each.

        Raises:
            PlanError: the batch does not divide evenly, or a number is out of its range.
        """
        size = micro_batch_size(batch_size, world, accumulate)
        updates = np.asarray(update)
        for edge in (updates.min(), updates.max()):
            _within("update", int(edge), 1, MAX_ROWS // batch_size)
        _within("rank", rank, 0, world - 1)
        _within("micro", micro, 0, accumulate - 1)
        first = (updates - 1) * batch_size + (rank * accumulate + micro) * size
        return self.index_at(first[..., np.newaxis] + np.arange(size, dtype=np.int64))

    def _shuffled(self, epochs: Integers, offsets: Words) -> Integers:
        distinct, which = np.unique(epochs, return_inverse=True)
        keys = np.stack([self._keys(int(epoch)) for epoch in distinct], axis=1)
        out = _network(offsets, self.rows, keys, which)
        # Cells past the last row are in nobody's order: follow the permutation until it is back inside.
        while (outside := np.flatnonzero(out >= self.rows)).size:
            out[outside] = _network(out[outside], self.rows, keys, which[outside])
        return out.astype(np.int64)

    def _keys(self, epoch: int) -> Words:
        return np.frombuffer(randomness.material(8 * KEY_WORDS, "order", self.seed, epoch), dtype="<u8")


def micro_batch_size(batch_size: int, world: int, accumulate: int) -> int:
    """How many examples one forward pass of one worker sees: batch / (workers x accumulation).

    Raises:
        PlanError: a number is less than 1, or the batch does not divide evenly.
    """
    _within("run.batch", batch_size, 1, MAX_ROWS)
    _within("run.workers", world, 1, MAX_ROWS)
    _within("run.accumulate", accumulate, 1, MAX_ROWS)
    shares = world * accumulate
    if batch_size % shares:
        above = -(-batch_size // shares) * shares
        nearest = f"{above - shares} or {above}" if above > shares else f"{above}"
        raise PlanError(
            f"a batch of {batch_size} does not divide into {world} workers x {accumulate} micro-batches",
            field="run.batch",
            value=batch_size,
            rule=f"a multiple of workers x accumulate = {shares}",
            remedy=f"set run.batch to {nearest}, or change run.workers or run.accumulate",
        )
    return batch_size // shares


def _within(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise PlanError(f"{field} is {value}", field=field, value=value, rule=f"{low} to {high}")


def _network(cells: Words, rows: int, keys: Words, which: Integers) -> Words:
    """One pass over the grid; element i is keyed by column `which[i]` of `keys`. A bijection per column."""
    keys = (
        keys[:, which] if keys.shape[1] > 1 else keys
    )  # one epoch, the usual case, needs no copy per element
    width = math.isqrt(rows - 1) + 1
    height = -(-rows // width)
    # Rounds alone reach only the even permutations of some grids (3 x 3); a keyed swap reaches the rest.
    swap = keys[ROUNDS] & np.uint64(1)
    left, right = np.divmod(cells ^ (swap & (cells < 2)), np.uint64(height))
    for i in range(0, ROUNDS, 2):
        left = (left + _mixed(right ^ keys[i])) % np.uint64(width)
        right = (right + _mixed(left ^ keys[i + 1])) % np.uint64(height)
    out: Words = left * np.uint64(height) + right
    return out


def _mixed(words: Words) -> Words:
    """56 well-mixed bits of each word, so that adding a grid coordinate cannot overflow 64."""
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    return (words * np.uint64(0x94D049BB133111EB)) >> np.uint64(8)
