"""A run in this process, update by update, of whatever recipe a test makes: no store, no log, no second process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from raykit import LossTerm
from raykit.train.build import Built, build
from raykit.train.gang import alone
from raykit.train.rows import Figures
from raykit.train.state import hold, restore
from raykit.train.step import Asked, Stepper


class Net(nn.Module):
    """A body with batch statistics and dropout, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Tanh())
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Small:
    """The recipe that tests change: a method at a time."""

    def __init__(self) -> None:
        self.update = 0

    def model(self, params: Any) -> nn.Module:
        return Net()

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)

    def dataset(self, source: Any, params: Any) -> Any:
        raise NotImplementedError

    def losses(self, model: nn.Module, batch: Any) -> dict[str, LossTerm]:
        self.update += 1
        self.at(self.update, model)
        out = model(batch)
        return {"fit": LossTerm(value=(out - 1).square().mean(), target=torch.ones_like(out))}

    def at(self, update: int, model: Any) -> None:
        """What happens in this update."""

    def state_dict(self) -> dict[str, Any]:
        return {"update": self.update}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update = state["update"]


def plan_of(**run: Any) -> Any:
    """A plan as far as building and stepping look at it."""
    usual: dict[str, Any] = {
        "seed": 3,
        "batch": 6,
        "accumulate": 1,
        "clip": 1.0,
        "updates": 20,
        "evaluating": None,
        "dtype": SimpleNamespace(params="float32", optimizer="float32", autocast="none"),
    }
    return SimpleNamespace(run=SimpleNamespace(**{**usual, **run}))


class Run:
    """Live objects, and updates of them. `optimizer` says nothing of where it was made."""

    def __init__(self, recipe: Any = None, **run: Any) -> None:
        self.recipe = recipe or Small()
        self.plan = plan_of(**run)
        self.built: Built = build(self.plan, self.recipe, None, alone())
        self.live = self.built.live
        self.stepper = Stepper(self.plan, self.recipe, self.built, alone())

    def to(self, update: int) -> list[Figures]:
        """Train to this update; the figures of each on the way."""
        done = self.live.progress.update
        return [self.stepper.update(n, batches(n), Asked(), 0.0)[0] for n in range(done + 1, update + 1)]

    def saved(self) -> dict[str, bytes]:
        return hold(self.live, rank=0)


def batches(update: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(update)
    while True:
        yield torch.randn(6, 4, generator=generator)


def resumed(make: Callable[[], Any], files: dict[str, bytes], **run: Any) -> Run:
    """What another process makes of a checkpoint: everything is built anew."""
    after = Run(make(), **run)
    restore(after.live, files, rank=0)
    after.stepper = Stepper(after.plan, after.recipe, after.built, alone())
    return after


def is_exact(make: Callable[[], Any], *, stop: int, end: int, **run: Any) -> bool:
    """Whether a run that is resumed after update `stop` has the same rows and state as one that is not."""
    whole = Run(make(), **run)
    whole.to(stop)
    again = resumed(make, whole.saved(), **run)
    rows = [figures(each) for each in whole.to(end)]
    return rows == [figures(each) for each in again.to(end)] and whole.saved() == again.saved()


def figures(row: Figures) -> Any:
    return row.update, row.terms, row.lr, row.grad_norm, row.clipped
