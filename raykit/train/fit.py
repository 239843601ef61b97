"""Whether weights that are there fit a recipe's model, told before anything starts: names and shapes, no numbers.

The model is built without memory; of the weights only the head of their file is read, whose bytes were verified when
the base was found.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from raykit.errors import CorruptError
from raykit.plan import LockedBase
from raykit.store.base import ObjectStore
from raykit.train.base import model_file
from raykit.train.params import check_params
from raykit.train.recipe import Recipe

MAX_HEAD_BYTES = 100_000_000

Shapes = Mapping[str, tuple[int, ...]]


def misfits(
    store: ObjectStore, base: LockedBase, recipe: Recipe, params: Mapping[str, Any]
) -> tuple[str, ...]:
    """What of the base's weights does not fit the recipe's model with these params, one line each; empty if all does.

    A model that cannot be built without memory is not judged here: the start of its run does that, tensor by tensor.

    Raises:
        PlanError: the recipe does not know these params.
        CorruptError: the base's file is gone, or is none.
        StoreUnavailableError: the store did not answer.
    """
    wanted = _model_shapes(recipe, check_params(recipe, params))
    return () if wanted is None else tuple(_differences(wanted, _file_shapes(store, model_file(store, base))))


def _model_shapes(recipe: Recipe, params: Any) -> Shapes | None:
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = recipe.model(params)
    except Exception:  # noqa: BLE001 - whatever a recipe does that needs real tensors: it is judged when it starts
        return None
    return {
        name: tuple(value.shape)
        for name, value in model.state_dict().items()
        if isinstance(value, torch.Tensor)
    }


def _file_shapes(store: ObjectStore, key: str) -> Shapes:
    with store.open(key) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MAX_HEAD_BYTES:
            raise CorruptError(f"{key} is not a safetensors file", rule="I1")
        head = json.loads(file.read(length))
    return {name: tuple(entry["shape"]) for name, entry in head.items() if name != "__metadata__"}


def _differences(wanted: Shapes, found: Shapes) -> list[str]:
    lines = [f"{name} is not in the base" for name in sorted(wanted.keys() - found.keys())]
    lines += [f"{name} is not in the model" for name in sorted(found.keys() - wanted.keys())]
    lines += [
        f"{name}: {_shape(found[name])} in the base, {_shape(wanted[name])} in the model"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape) or "a single number"
