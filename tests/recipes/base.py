"""What the recipes of the corpus begin with: three small kinds of data, models for them, and a recipe for each.

It lies beside `recipe.py` in the folder of every job, as a module that people share between their recipes would.
"""

# ruff: noqa: F401 - it is there to be imported from

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import io
import math
import os
import random
import tempfile
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from raykit.train.recipe import Classes, Field, Image, LossTerm, Text

ROWS, CLASSES, WORDS, LENGTH = 40, 4, 12, 8


class Points:
    """Places on a circle, and two numbers for each."""

    def __init__(self):
        self.ids = [f"p{i:03d}" for i in range(ROWS)]
        self.strata = [str(i % 2) for i in range(ROWS)]

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        angle = 2 * math.pi * index / ROWS
        x = torch.tensor([math.cos(angle), math.sin(angle), index / ROWS, 1.0])
        return x, torch.tensor([math.sin(3 * angle), 0.5])


class Pictures:
    """Grey pictures of 8 by 8 with a bar whose place is the label."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        label = index % CLASSES
        picture = torch.full((1, 8, 8), index / ROWS)
        picture[0, 2 * label : 2 * label + 2] += 1.0
        return picture, label


class Tokens:
    """Sequences in which every word says what follows it."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        words = [(index * 5 + 3 * place + place * place) % WORDS for place in range(LENGTH + 1)]
        return torch.tensor(words)


class Mlp(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.body(x))


class ConvNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(width * 16, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class TinyLm(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.place = nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        places = torch.arange(words.shape[1], device=words.device)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.head(self.layer(self.embed(words) + self.place(places), src_mask=mask, is_causal=True))


class Regression:
    """A squared error."""

    @dataclass
    class Params:
        width: int = 8
        lr: float = 0.01

    def model(self, params):
        return Mlp(params.width)

    def optimizer(self, model, params):
        return torch.optim.AdamW(model.parameters(), lr=params.lr)

    def dataset(self, source, params):
        return Points()

    def losses(self, model, batch):
        x, y = batch
        return {"fit": LossTerm(value=(model(x) - y).square().mean(), target=y)}

    def evaluate(self, model, batch):
        x, y = batch
        return {"error": (model(x) - y).square().mean(1)}


class Classifier(Regression):
    """A cross-entropy over pictures."""

    def model(self, params):
        return ConvNet()

    def dataset(self, source, params):
        return Pictures()

    def losses(self, model, batch):
        x, label = batch
        value = F.cross_entropy(model(x), label)
        return {"label": LossTerm(value=value, reference=math.log(CLASSES), elements=len(label))}

    def evaluate(self, model, batch):
        x, label = batch
        return {"hit": (model(x).argmax(1) == label).float()}


class Language(Regression):
    """The next word."""

    def model(self, params):
        return TinyLm(params.width)

    def dataset(self, source, params):
        return Tokens()

    def losses(self, model, words):
        logits = model(words[:, :-1])
        value = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        return {"next": LossTerm(value=value, reference=math.log(WORDS), elements=words[:, 1:].numel())}

    def evaluate(self, model, words):
        logits = model(words[:, :-1])
        return {"hit": (logits.argmax(2) == words[:, 1:]).float().mean(1)}
