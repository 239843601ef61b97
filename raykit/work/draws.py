"""Random numbers for rows, each from a stream of its own: a row's numbers never depend on which others are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Draws:
    """The random numbers of some rows.

    Every call gives each row the next numbers of its own stream, which is a Philox generator under that row's key. How
    many numbers a call takes changes nothing of the calls after it.
    """

    def __init__(self, keys: Sequence[int]) -> None:
        """`keys` names the stream of each row: at most 63 bits each."""
        self.seeds: NDArray[np.int64] = np.asarray(keys, dtype=np.int64)
        """One number for each row, for whatever takes a seed of its own. The streams do not depend on it being used."""
        self._calls = 0
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state
        self._at = self._state["state"]

    def __len__(self) -> int:
        return len(self.seeds)

    def normal(self, *shape: int) -> NDArray[np.float32]:
        """Standard normal numbers, [rows, *shape]."""
        return self._floats(self._generator.standard_normal, shape)

    def uniform(self, *shape: int) -> NDArray[np.float32]:
        """Numbers from 0 to 1, 1 left out, [rows, *shape]."""
        return self._floats(self._generator.random, shape)

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """Whole numbers from `low` to `high`, `high` left out, [rows, *shape]."""
        found = np.empty((len(self), math.prod(shape)), np.int64)
        self._each(found, lambda row: np.copyto(row, self._generator.integers(low, high, size=row.size)))
        return found.reshape(len(self), *shape)

    def _floats(self, draw: Callable[..., Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
        found = np.empty((len(self), math.prod(shape)), np.float32)
        self._each(found, lambda row: draw(dtype=np.float32, out=row))
        return found.reshape(len(self), *shape)

    def _each(self, rows: Array, fill: Callable[[Array], Any]) -> None:
        """Fill each row from the start of the stream that its key and the number of this call name."""
        counter, key = np.zeros(4, np.uint64), np.zeros(2, np.uint64)
        counter[3] = self._calls
        self._at["counter"], self._at["key"] = counter, key
        for seed, row in zip(self.seeds, rows, strict=True):
            key[0] = seed
            self._bits.state = self._state
            fill(row)
        self._calls += 1
