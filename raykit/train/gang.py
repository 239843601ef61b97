"""The ranks of one attempt, and the few things that they say to each other.

JSON travels as bytes, never as pickles. With one rank nothing is sent and torch.distributed is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raykit.errors import GateError, RaykitError
from raykit.ids import canonical
from raykit.store.scratch import make_scratch


class RankAloneError(RuntimeError):
    """One rank refuses while others go on, and wait for it in an operation that they do together.

    Not a `RaykitError`, on purpose: whoever started the gang has to take it for a crash, and end the other ranks. Why
    the rank refuses is its cause, and in the run's log.
    """


def meet_on_this_node() -> str:
    """Where ranks of one node meet: a private file, since a meeting point of TCP listens on every address."""
    return f"file://{make_scratch('gang')}/store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """This process among `world` ranks, on `device`."""

    rank: int
    world: int
    device: torch.device
    meet: Callable[[], str] = field(default=meet_on_this_node, compare=False, repr=False)
    """Makes a place where processes of these ranks can meet as a gang of their own; asked on rank 0."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, value: Any = None, *, by: int = 0) -> Any:
        """What rank `by` passes, on every rank. `value` is JSON; what other ranks pass is not looked at."""
        if self.world == 1:
            return value
        data = bytearray(canonical(value)) if self.rank == by else bytearray()
        size = torch.tensor([len(data)], dtype=torch.int64, device=self.device)
        dist.broadcast(size, by)
        body = torch.empty(int(size.item()), dtype=torch.uint8, device=self.device)
        if self.rank == by:
            body.copy_(torch.frombuffer(data, dtype=torch.uint8))
        dist.broadcast(body, by)
        return json.loads(bytes(body.cpu().numpy()))

    def sum(self, values: list[float]) -> list[float]:
        """Each number summed over the ranks, in float64."""
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        found: list[float] = tensor.tolist()
        return found

    def any(self, flag: bool) -> bool:
        """True on every rank if it is on one."""
        return self.sum([float(flag)])[0] > 0

    @contextmanager
    def with_buffers_of_leader(self, model: nn.Module) -> Iterator[None]:
        """Every rank has the buffers of rank 0, which are what a commit holds, for as long as a block runs."""
        buffers = [] if self.world == 1 else [each.detach() for each in model.buffers() if each.numel()]
        own = [each.clone() for each in buffers]
        for each in buffers:
            data = each.contiguous().reshape(-1).view(torch.uint8)
            dist.broadcast(data, 0)
            each.copy_(data.view(each.dtype).reshape(each.shape))
        yield
        for each, was in zip(buffers, own, strict=True):
            each.copy_(was)

    def leave(self, *, wait_s: float) -> bool:
        """Say that this rank ends here; whether every other one says so too before `wait_s` have passed."""
        if self.world == 1:
            return True
        left = [f"raykit/left/{rank}" for rank in range(self.world)]
        try:
            store = dist.distributed_c10d._get_default_store()
            store.set(left[self.rank], "")
            store.wait(left, timedelta(seconds=wait_s))
        except RuntimeError:  # not in time, or the rank that holds the store is gone
            return False
        return True

    def call_off(self, what: str) -> None:
        """Tell every rank that `what` they do together, each by itself, is over."""
        if self.world > 1:
            dist.distributed_c10d._get_default_store().set(f"raykit/off/{what}", "")

    def called_off(self, what: str) -> bool:
        """Whether some rank has said so."""
        if self.world == 1:
            return False
        off: bool = dist.distributed_c10d._get_default_store().check([f"raykit/off/{what}"])
        return off

    def leader_does(self, action: Callable[[], Any]) -> Any:
        """Rank 0 acts and shares the JSON it returns; if it raises, so does every rank.

        Raises:
            GateError: on the other ranks, where rank 0 raised a deliberate error.
        """
        outcome: dict[str, Any] = {}
        failed: RaykitError | None = None
        if self.leads:
            try:
                outcome = {"value": action()}
            except RaykitError as error:
                failed, outcome = error, {"error": str(error)}
        outcome = self.share(outcome)
        if failed is not None:
            raise failed
        if "error" in outcome:
            raise GateError(f"rank 0 stopped: {outcome['error']}")
        return outcome["value"]

    def all_agree(self, action: Callable[[], None]) -> None:
        """Every rank acts; if one raises a deliberate error, none goes on.

        Raises:
            GateError: on the ranks whose own action was fine.
        """
        failed: RaykitError | None = None
        try:
            action()
        except RaykitError as error:
            failed = error
        someone = self.any(failed is not None)
        if failed is not None:
            raise failed
        if someone:
            raise GateError("another rank stopped; its log says why")


def alone(device: str = "cpu") -> Gang:
    """A gang of one."""
    return Gang(rank=0, world=1, device=torch.device(device))
