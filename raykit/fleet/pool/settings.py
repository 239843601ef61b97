"""What holds for the workers of one pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raykit.errors import RaykitError
from raykit.fleet.pool.lease import PoolDoor, Price
from raykit.pauses import Role

Wants = Mapping[str, Any]
"""What a worker asks Ray for, beside CPUs and GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the workers of a pool do."""

    role: Role
    """What a pause may name. It is the line that pays, too, and a part of every worker's name."""
    word: str
    """What people read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What a plan says of its workers, and what there is for them."""

    deadline_s: float | None = None
    """What one unit may take; worked out from those that were measured if not said."""
    memory_bytes: int | None = None
    """What one worker may hold; a share of what is free if not said."""
    slots: int = 1
    """How many workers there may be at once."""
    gpus: float = 0.0
    """Of each worker. With one, the machine's memory says little about it, and bounds nothing."""
    wants: Wants = field(default_factory=dict)
    """Of each worker: see `RayHere.wants`."""
    price: Price = field(default_factory=Price)
    look_share: int = 4
    """Between two looks at the whole backlog: so many times what the last one took."""


RayLost = Callable[[], RaykitError | None]
"""What has become of the Ray that workers run in, if it has died. Asked at every turn of a pool."""


def not_watched() -> RaykitError | None:
    """Of a Ray that nobody watches nothing is known."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiring:
    """For what, where, and on whose account a pool hires."""

    kind: Kind
    root: str
    experiment: str
    run: str
    launch: str
    """Nobody else's, ever: it is a part of the name of every worker and of every lease."""
    settings: PoolSettings
    door: PoolDoor
    folder: Path
    """Private and on this machine: the pool makes one of its own in it, and removes it at its end."""
    say: Callable[[str], None]
    """Hears what people should read."""
    ray_lost: RayLost = not_watched

    @property
    def own_folder(self) -> Path:
        """The pool's."""
        return self.folder / f"{self.kind.role}-{self.launch}"

    def worker(self, n: int) -> str:
        """The name of the n-th worker."""
        return f"{self.kind.role}-{self.launch}-{n}"

    def lease(self, n: int) -> str:
        """The name of what the n-th worker is paid from."""
        return f"{self.launch}-{self.kind.role}-{n}"

    def actor(self, n: int) -> str:
        """The n-th worker's name in Ray."""
        return f"raykit-{self.kind.role}-{self.experiment}-{self.launch}-{n}"
