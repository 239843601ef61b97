"""One file of a log."""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from raykit.ids import Digest
from raykit.records.base import Positive, Versioned


class Entry(Versioned):
    """One file of a log: a batch of events, chained to the file before it."""

    n: Positive
    prev: Digest | None
    at: float
    by: str
    nonce: str
    """Random per writer: no two writers ever produce the same entry."""
    events: tuple[Any, ...]

    @model_validator(mode="after")
    def _chained(self) -> Self:
        if (self.prev is None) != (self.n == 1):
            raise ValueError("only the first entry has no `prev`")
        return self
