"""A recipe that uses everything an exact resume can lose: dropout, random transforms, batch statistics, a schedule,
state of its own, and every generator."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from raykit.train.recipe import Field, Image, LossTerm

ROWS = 60


class Points:
    """Sixty noisy points; every sample draws from all three global generators.

    TINY_MEMBERS makes the data another than they were: `added`, `removed` or `changed`.
    """

    def __init__(self):
        self.other = os.environ.get("TINY_MEMBERS", "")
        rows = range(ROWS + {"added": 1, "removed": -1}.get(self.other, 0))
        self.ids = [f"p{i:03d}" for i in rows]
        self.strata = [str(i % 3) for i in rows]
        self.sources = [i % 2 for i in rows]

    def __len__(self):
        return len(self.ids)

    def content(self, index):
        return index if self.other != "changed" or index != 7 else "other"

    def __getitem__(self, index):
        angle = 2 * np.pi * index / ROWS
        x = torch.tensor([np.cos(angle), np.sin(angle), index / ROWS, 1.0], dtype=torch.float32)
        noise = 0.01 * torch.randn(4) + 0.01 * random.random() + 0.01 * float(np.random.rand())
        return x + noise, torch.tensor([np.sin(3 * angle), 0.5], dtype=torch.float32)


class Net(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 2)
        )
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.body(x) * self.scale


class Tiny:
    @dataclass
    class Params:
        width: int = 16
        dropout: float = 0.2
        lr: float = 0.02
        poison_at: int = 0

    def __init__(self):
        self.seen = 0

    def model(self, params):
        self.params = params
        return Net(params.width, params.dropout)

    def optimizer(self, model, params):
        return torch.optim.AdamW(model.parameters(), lr=params.lr)

    def scheduler(self, optimizer, params):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)

    def dataset(self, source, params):
        return Points()

    def losses(self, model, batch):
        x, y = batch
        self.seen += model.training
        time.sleep(float(os.environ.get("TINY_SLOW_S", "0")) * model.training)  # long enough to be killed in
        die_at = os.environ.get("TINY_DIE_AT")
        if die_at and model.training:
            # in this process, over all recipes that the gates make: kept where nothing is made anew
            signal.passes = getattr(signal, "passes", 0) + 1
            if signal.passes == int(die_at):
                os.kill(os.getpid(), signal.SIGKILL)
        out = model(x)
        loss = (out - y).square().mean()
        if self.params.poison_at and self.seen == self.params.poison_at:
            loss = loss * float("nan")
        penalty = sum(p.square().mean() for p in model.parameters())
        return {
            "fit": LossTerm(value=loss, target=y),
            "decay": LossTerm(value=penalty, weight=1e-3, no_reference="a penalty has no target", elements=1),
        }

    def fields(self, model, batch):
        return {"out": Field(value=model(batch[0]).abs() + 1e-3, space="log")}

    def evaluate(self, model, batch):
        x, y = batch
        return {"error": (model(x) - y).square().mean(1)}

    def panels(self, model, batch):
        """Only QC asks for these: TINY_QC makes its worker `raise`, `loop`, `hog` memory, or take its time."""
        match os.environ.get("TINY_QC", ""):
            case "raise":
                raise ValueError(f"panels of {batch[0].sum()} cannot be drawn")
            case "loop":
                while True:
                    time.sleep(0.01)
            case "hog":
                self.hoard = [torch.ones(2**26) for _ in range(64)]
            case "slow":
                time.sleep(0.5)
        return {"point": Image(value=batch[0].reshape(2, 2), low=-1.0, high=1.0)}

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]
