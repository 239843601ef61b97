"""Toy producers in worker processes: what those import stays small, so that they are there soon."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from makegen import ToyMake

from raykit.records import GenerationContract
from raykit.shards.contract import Probed
from raykit.store.base import ObjectStore


@dataclass(frozen=True)
class Toys:
    """Makes producers without torch, which misbehave as the rules beside the root say: see `makegen.ToyMake`."""

    root: str

    @property
    def probed(self) -> Probed:
        raise AssertionError("its contracts are frozen already")

    def __call__(
        self, store: ObjectStore, contract: GenerationContract, teacher: str, folder: Path
    ) -> ToyMake:
        path = rules_of(Path(self.root))
        rules = json.loads(path.read_text()) if path.exists() else {}
        return ToyMake(contract, **{**rules, "seed": os.getpid()})


def rules_of(root: Path) -> Path:
    """Where the rules of what lies at a root are."""
    return Path(f"{root}.rules.json")
