"""What a worker's process does to itself: it gives way to training, and it is made to lose first."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

NICE: Final = 5
OOM_SCORE: Final = 1000
"""Of all processes of the machine, this one is ended first."""


def lose_first() -> None:
    """Come last for the processor, and first for the kernel that is out of memory."""
    os.nice(NICE)
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    except OSError:
        pass  # a machine without it has its own ways


def hold_at_most(memory_bytes: int, *, gpus: float = 0.0) -> None:
    """Let every allocation fail that would make this process hold more. To be called once all code is imported.

    Of a process that has some of an accelerator it is the memory of that which is bounded, and not the machine's.
    """
    if gpus:
        from raykit.work.subject import hold_on_accelerator

        if hold_on_accelerator(memory_bytes):
            return
    data, held = _status_bytes("VmData"), _status_bytes("RssAnon")
    # what is set aside and not used, stacks of threads above all, is not what is meant
    limit = memory_bytes + max(0, data - held)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def peak_bytes() -> int:
    """The most memory that this process has held."""
    # what `getrusage` tells may be the peak of the process that this one was forked from
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status_bytes(field: str) -> int:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = next((line for line in text.splitlines() if line.startswith(f"{field}:")), "")
    words = found.split()
    return int(words[1]) * 1024 if len(words) > 1 else 0
