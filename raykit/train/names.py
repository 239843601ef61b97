"""Tensors of a model by name: what is tied has several, and its first one stands for it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from raykit.errors import GateError


def parameters_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter once, by its first name, in the model's order."""
    return dict(model.named_parameters())


def names_of(model: nn.Module) -> dict[int, str]:
    """The first name of each parameter, by its identity."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def tied(model: nn.Module) -> list[list[str]]:
    """The names in the model's state_dict that stand for one tensor together."""
    names: dict[int, list[str]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor):
            names.setdefault(id(value), []).append(name)
    return [each for each in names.values() if len(each) > 1]


def with_tied(model: nn.Module, tensors: Mapping[str, torch.Tensor], what: str) -> dict[str, torch.Tensor]:
    """`tensors`, with every name of what is tied: one of them is enough.

    Raises:
        GateError: two names of one tensor have different values; the model has room for one.
    """
    found = dict(tensors)
    for names in tied(model):
        there = [name for name in names if name in tensors]
        for name in there[1:]:
            if not same_bits(tensors[there[0]], tensors[name]):
                raise GateError(
                    f"{there[0]} and {name} have different values in {what}, and are one tensor in the model",
                    field=name,
                    rule="tied names have one value",
                    remedy="take out the one that is not meant, or do not tie them in model()",
                )
        if there:
            found |= {name: tensors[there[0]] for name in names if name not in tensors}
    return found


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are of one shape and dtype, and equal to the bit: NaN is NaN, and minus zero is not zero."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)
