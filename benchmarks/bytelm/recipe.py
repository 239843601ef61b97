"""A byte-level transformer on the sources of Python's own standard library: the model that step times are of."""

from __future__ import annotations

import math
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from raykit.train.recipe import LossTerm

BYTES = 256
ROWS = 4096
TICKS: list[float] = []
"""When each forward pass of training began: one more entry an update, whoever runs the loop."""


class Windows:
    """`ROWS` windows of text, one after another: a context and the bytes that follow each place in it."""

    def __init__(self, context: int) -> None:
        size = ROWS * context + 1
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(file.read_bytes() for file in files)[:size]
        assert len(text) == size, f"the standard library has only {len(text)} bytes"
        self._text = np.frombuffer(text, dtype=np.uint8)
        self._context = context

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        first = index * self._context
        window = torch.from_numpy(self._text[first : first + self._context + 1].astype(np.int64))
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.norm_in = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        batch, time_, width = x_BTD.shape
        qkv = self.qkv(self.norm_in(x_BTD)).view(batch, time_, 3, self._heads, width // self._heads)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHTK = scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        x_BTD = x_BTD + self.out(mixed_BHTK.transpose(1, 2).reshape(batch, time_, width))
        return x_BTD + self.mlp(self.norm_mlp(x_BTD))


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES)

    def forward(self, x_BT: torch.Tensor) -> torch.Tensor:
        if self.training:
            TICKS.append(time.perf_counter())
        x_BTD = self.bytes(x_BT) + self.places.weight[: x_BT.shape[1]]
        return self.head(self.norm(self.blocks(x_BTD)))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy of the next byte."""
    x_BT, y_BT = batch
    return cross_entropy(model(x_BT).flatten(0, 1), y_BT.flatten())


class ByteLm:
    @dataclass
    class Params:
        width: int
        layers: int
        heads: int
        context: int
        lr: float = 1e-3

    def model(self, params: Params) -> nn.Module:
        return Transformer(params.width, params.layers, params.heads, params.context)

    def optimizer(self, model: nn.Module, params: Params) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=params.lr)

    def dataset(self, source: object, params: Params) -> Windows:
        return Windows(params.context)

    def losses(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, LossTerm]:
        return {
            "bytes": LossTerm(
                value=loss_of(model, batch), reference=math.log(BYTES), elements=batch[1].numel()
            )
        }
