"""A training state that is the same on every machine: nothing in it was computed in floating point."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from raykit.history import Patience
from raykit.train import rng
from raykit.train.state import Live, Progress


class Recipe:
    """A recipe with state of its own, in the order of its keys."""

    def state_dict(self) -> dict[str, Any]:
        return {"ema": torch.arange(3.0), "seen": 12, "words": ["a", "b"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def numbers(*shape: int, start: int) -> torch.Tensor:
    """Small whole numbers, which every floating type holds."""
    return torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.float32).view(shape)


def fixed_live() -> Live:
    """Three tensors in two groups, with moments, a schedule, a scaler that is none, and seeded generators."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1, bias=False))
    decayed = [model[0].weight, model[2].weight]
    rest = [model[0].bias, *model[1].parameters()]
    groups = [{"params": rest, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.125}]
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    with torch.no_grad():
        for n, parameter in enumerate(model.parameters()):
            parameter.copy_(numbers(*parameter.shape, start=10 * n))
            kept = optimizer.state[parameter]
            kept["step"] = torch.tensor(6.0)
            kept["exp_avg"] = numbers(*parameter.shape, start=100 + 10 * n)
            kept["exp_avg_sq"] = numbers(*parameter.shape, start=200 + 10 * n)
    progress = Progress(update=6, samples=72, patience=Patience(best=0.25, best_update=5, waited=1))
    progress.reference_spreads = {"latent": 2.0}
    rng.seed(7)
    return Live(model=model, optimizer=optimizer, scheduler=scheduler, recipe=Recipe(), progress=progress)
