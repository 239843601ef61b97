"""A worker that writes down which accelerators it sees, for a pool's actor on a local Ray."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raykit.fleet.pool.actor import Orders
from raykit.store.base import ObjectStore

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS")
SEEN = "seen.json"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the worker is told: to write down what it sees, and to set a variable first, as a recipe might."""

    sets: str | None = None
    contract: str = "0" * 64

    def make(self, store: ObjectStore, orders: Orders) -> Any:
        (Path(orders.folder) / SEEN).write_text(
            json.dumps({name: os.environ.get(name) for name in VARIABLES})
        )
        if self.sets is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.sets
        return self
