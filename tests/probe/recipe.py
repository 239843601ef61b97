"""A recipe that offers everything an examination can ask for, on data and weights that a test can break.

PROBE_DATA makes the data another than they were: `gone`, `changed`, `odd`, `damaged`, `unreadable`, `reversed` or
`offline`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from raykit import Classes, Field, Image, LossTerm, Text

ROWS, WIDE, CODES, KINDS = 60, 6, 4, 3


class Points:
    """Points near a space of three dimensions, in three classes; every item draws a little noise."""

    def __init__(self, seed):
        self.how = os.environ.get("PROBE_DATA", "")
        rng = torch.Generator().manual_seed(seed)
        hidden = torch.randn(ROWS, KINDS, generator=rng)
        self.x = hidden @ torch.randn(KINDS, WIDE, generator=rng)
        self.kind = hidden.argmax(1)
        self.rows = list(range(ROWS))
        if self.how == "reversed":
            self.rows.reverse()
        if self.how == "gone":
            self.rows.remove(self.rows[7])
        self.ids = [f"p{row:02d}" for row in self.rows]
        self.strata = ["abc"[int(self.kind[row])] for row in self.rows]

    def __len__(self):
        return len(self.rows)

    def content(self, index):
        row = self.rows[index]
        if row == 7 and self.how == "damaged":
            raise OSError("not a picture file")
        if row == 7 and self.how == "odd":
            return object()
        return [row, "changed"] if self.how == "changed" and row in (5, 9) else row

    def __getitem__(self, index):
        row = self.rows[index]
        if row == 7 and self.how == "unreadable":
            raise ValueError("a damaged file")
        if row == 7 and self.how == "offline":
            raise ConnectionResetError("the server is away")
        noise = 0.01 * torch.randn(WIDE) + 0.01 * random.random()
        return {"x": self.x[row] + noise, "kind": self.kind[row], "text": "ab" * (row % 5 + 2)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.code = nn.Linear(WIDE, CODES)
        self.scale = nn.Linear(WIDE, CODES)
        self.decode = nn.Linear(CODES, WIDE)
        self.classes = nn.Linear(WIDE, KINDS)
        self.hurt = nn.Parameter(torch.zeros(KINDS))
        self.per_byte = nn.Parameter(torch.tensor(3.0))

    def forward(self, batch, given: Mapping = {}):
        code = given.get("code", self.code(batch["x"]))
        scale = given.get("scale", (0.3 * self.scale(batch["x"])).exp())
        drawn = self.decode(code + 0.02 * scale * torch.randn_like(scale)) + self.hurt[batch["kind"]][:, None]
        return drawn, code, scale, self.classes(batch["x"])


class Probe:
    @dataclass
    class Params:
        data: int = 1

    def __init__(self):
        self.updates = 0

    def model(self, params):
        return Net()

    def optimizer(self, model, params):
        return torch.optim.Adam(model.parameters(), lr=0.02)

    def dataset(self, source, params):
        return Points(params.data)

    def losses(self, model, batch):
        self.updates += model.training
        return self.losses_given(model, batch, {})

    def losses_given(self, model, batch, fields):
        drawn, _, _, logits = model(batch, fields)
        right = nn.functional.cross_entropy(logits, batch["kind"])
        return {
            "recon": LossTerm(value=(drawn - batch["x"]).square().mean(), target=batch["x"]),
            "kind": LossTerm(value=right, weight=0.5, reference=1.0986, elements=len(logits)),
        }

    def fields(self, model, batch):
        _, code, scale, _ = model(batch)
        return {"code": Field(value=code), "scale": Field(value=scale, space="log")}

    def evaluate(self, model, batch):
        return {"error": (model(batch)[0] - batch["x"]).square().mean(1)}

    def embed(self, model, batch):
        return model(batch)[1]

    def classify(self, model, batch):
        return Classes(probabilities=model(batch)[3].softmax(1), label=batch["kind"])

    def text(self, model, batch):
        sizes = torch.tensor([float(len(text)) for text in batch["text"]])
        return Text(nats=sizes * model.per_byte, content=[text.encode() for text in batch["text"]])

    def panels(self, model, batch):
        drawn = model(batch)[0].reshape(-1, 2, 3)
        return {
            "input": Image(value=batch["x"].reshape(1, 2, 3, 1).expand(1, 2, 3, 3)),
            "drawn": Image(value=drawn[0]),
        }

    def state_dict(self):
        return {"updates": self.updates}

    def load_state_dict(self, state):
        self.updates = state["updates"]
