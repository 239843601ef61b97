"""The recipe that the language-model plans name: enough of it for them to be checked, shown and locked."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raykit import LossTerm


class DecoderLM:
    @dataclass
    class Params:
        context: int = 2048
        size: str = "1b"
        lr: float = 6e-5
        warmup: int = 200
        decay: str = "cosine"
        clip: float = 1.0

    def model(self, params: Params) -> nn.Module:
        return nn.Embedding(8, 8 if params.size == "1b" else 4)

    def optimizer(self, model: nn.Module, params: Params) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=params.lr)

    def dataset(self, source: object, params: Params) -> list[Tensor]:
        raise NotImplementedError("its documents lie in a bucket")

    def losses(self, model: nn.Module, batch: Tensor) -> dict[str, LossTerm]:
        raise NotImplementedError("its documents lie in a bucket")
