"""Stores, faults and clocks for tests, of raykit and of what is built on it.

`StoreTests` needs pytest; nothing else here does, so it is imported only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raykit.testing.clock import FakeClock
from raykit.testing.fault import (
    Fault,
    FaultDisk,
    FaultStore,
    delay,
    disk_error,
    kill,
    reply_lost,
    unavailable,
)
from raykit.testing.memory import MemoryStore
from raykit.testing.powercut import PowerCut, RecordingDisk

if TYPE_CHECKING:
    from raykit.testing.stores import StoreTests

__all__ = [
    "FakeClock",
    "Fault",
    "FaultDisk",
    "FaultStore",
    "MemoryStore",
    "PowerCut",
    "RecordingDisk",
    "StoreTests",
    "delay",
    "disk_error",
    "kill",
    "reply_lost",
    "unavailable",
]


def __getattr__(name: str) -> Any:
    if name == "StoreTests":
        from raykit.testing.stores import StoreTests

        return StoreTests
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
