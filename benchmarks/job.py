"""The byte-level transformer as a job: its plan, and the folder with its recipe beside the plan."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "bytelm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A size of the model, and how long it trains."""

    params: Mapping[str, int]
    batch: int
    updates: int
    checkpoint_every: int
    clip: float = 1.0

    def plan(self) -> str:
        """The plan file. The development split is scored at update 0 and at the end."""
        text = (SOURCE / "plan.toml").read_text()
        for name in ("params", "batch", "updates", "checkpoint_every", "clip"):
            text = text.replace(f"<{name}>", _toml(getattr(self, name)))
        return text

    def write(self, folder: Path) -> Path:
        """A folder as somebody would have it; returns the plan's path."""
        folder.mkdir()
        shutil.copy(SOURCE / "recipe.py", folder)
        path = folder / "plan.toml"
        path.write_text(self.plan())
        return path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + " }"
    return str(value)
