"""Random number generators: keyed at every update and sample, and captured and restored whole.

Keys are pure functions of names and positions (`raykit.data.randomness`), so that the stream at update 4,000
does not depend on how the run got there. The states are saved all the same, restored last, after iterators
exist, and compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed(key: int) -> None:
    """Seed Python, NumPy and torch (CPU and, where one is in use, the accelerator) from one 63-bit key."""
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)
    torch.default_generator.manual_seed(key)
    if _on_accelerator():
        torch.cuda.manual_seed_all(key)


def capture() -> dict[str, Any]:
    """The state of every global generator, as tensors and plain values on the CPU."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    state: dict[str, Any] = {
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.default_generator.get_state(),
    }
    if _on_accelerator():
        state["cuda"] = [
            torch.cuda.get_rng_state(device).cpu() for device in range(torch.cuda.device_count())
        ]
    return state


def restore(state: dict[str, Any]) -> None:
    """Put every generator back. States live on the CPU, whatever device the tensors of the model are on."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = state["numpy"]
    words = keys["keys"].numpy().astype(np.uint32)
    np.random.set_state((keys["name"], words, keys["position"], keys["has_gauss"], keys["cached"]))
    torch.default_generator.set_state(state["torch"].cpu())
    if _on_accelerator():
        for device, cuda in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(cuda.cpu(), device)


@contextmanager
def aside(key: int) -> Iterator[None]:
    """Run the block on generators seeded with `key`, and leave the caller's untouched."""
    before = capture()
    seed(key)
    try:
        yield
    finally:
        restore(before)


def _on_accelerator() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
