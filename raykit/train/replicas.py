"""Replicas that have parted: the trained state of every rank, compared at each save before anything is written.

Each rank reduces each tensor to one number on its own device, and the numbers of rank 0 go to all. Buffers are not
compared: those of rank 0 are everybody's from the next forward pass on, and between two of them each rank has its own.
"""

from __future__ import annotations

from typing import Any

import torch

from raykit.errors import GateError
from raykit.ids import canonical, sha256
from raykit.train.gang import Gang
from raykit.train.optimizer_state import named_state
from raykit.train.state import Live, recipe_digest, same_on_every_rank
from raykit.train.tensors import split

CHUNK = 2**18
"""How many eight bytes are weighed at once: what fits a CPU's cache."""

CHUNK_ON_ACCELERATOR = 2**24

_ODD = -7046029254386353131
"""An odd number with even digits (2^64 over the golden ratio), as a signed one."""


def require_one_replica(live: Live, gang: Gang) -> bool:
    """Let only ranks save whose parameters, optimizer, schedule and counters are equal to the bit.

    Returns whether the recipe's own state on this rank is not that of rank 0, and has to be saved by itself.

    Raises:
        GateError: they have parted; the first tensor that differs is named, with the ranks.
    """
    mine = {**_trained(live), "recipe": recipe_digest(live)}
    leaders = gang.share(mine)
    parted = next((name for name in mine if name != "recipe" and mine[name] != leaders.get(name)), None)
    if not gang.any(parted is not None):
        return bool(mine["recipe"] != leaders["recipe"])
    found = {rank: gang.share(parted, by=rank) for rank in range(gang.world)}
    ranks = [rank for rank, name in found.items() if name is not None]
    raise GateError(
        f"the replicas have parted by update {live.progress.update}: {found[ranks[0]]} of rank "
        f"{', '.join(map(str, ranks))} is not that of rank 0",
        field="recipe",
        rule="every rank trains the same weights, to the bit",
        remedy="take out what only one rank does: a hook, a branch on the rank, a generator of its own",
    )


def _trained(live: Live) -> dict[str, Any]:
    structure, moments = split(named_state(live.model, live.optimizer), "optimizer")
    counters, tensors = split(same_on_every_rank(live), "state")
    tensors = {**dict(live.model.named_parameters()), **moments, **tensors}
    return {
        **dict(zip(tensors, checksums(list(tensors.values())), strict=True)),
        "the optimizer's settings": sha256(canonical(structure)),
        "the schedule": sha256(canonical(counters)),
    }


def checksums(tensors: list[torch.Tensor]) -> list[int]:
    """One number for all bits of each tensor, whatever it holds. One transfer from each device."""
    weights: dict[torch.device, torch.Tensor] = {}
    found = [_checksum(_bytes(tensor), weights) for tensor in tensors]
    if len({each.device for each in found}) > 1:
        found = [each.cpu() for each in found]
    numbers: list[int] = torch.stack(found).tolist() if found else []
    return numbers


def _checksum(data: torch.Tensor, weights: dict[torch.device, torch.Tensor]) -> torch.Tensor:
    """The sum of its bits, eight bytes at a time, each times an odd number that its place gives; modulo 2^64."""
    whole = data.numel() // 8 * 8
    words, rest = data[:whole], data[whole:].to(torch.int64)
    if words.data_ptr() % 8:
        words = words.clone()
    chunk = CHUNK if data.device.type == "cpu" else CHUNK_ON_ACCELERATOR
    odd = weights.get(data.device)
    if odd is None or len(odd) < min(chunk, whole // 8):
        odd = weights[data.device] = _odd_numbers(max(8, min(chunk, 2 * whole // 8)), data.device)
    total = (rest * odd[: len(rest)]).sum()
    words = words.view(torch.int64)
    for start in range(0, len(words), chunk):
        part = words[start : start + chunk]
        total = total * _ODD + (part * odd[: len(part)]).sum()
    return total


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def _odd_numbers(count: int, device: torch.device) -> torch.Tensor:
    place = torch.arange(1, count + 1, dtype=torch.int64, device=device) * _ODD
    return ((place ^ (place >> 29)) * _ODD) | 1
