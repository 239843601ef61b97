"""What examining one checkpoint gives, and who does it: the seam between the worker and what it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from raykit.records import Receipt, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A receipt, and the bytes of its pictures by name."""

    receipt: Receipt
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    peak_bytes: int = 0
    """The most memory that was held; on an accelerator, of that."""


class Examine(Protocol):
    """Examines one checkpoint. The same request, suite and machine always give the same bytes."""

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        """`key` is that of the checkpoint's manifest; `reference` is the receipt at update 0, None at update 0.

        Raises:
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
            GateError: the recipe gives something of another shape; with a field `dataset...` its data are not what the
                roster was drawn from.
            Exception: whatever the recipe's own code raises.
        """
        ...
