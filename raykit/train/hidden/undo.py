"""What of this process a recipe can leave changed behind it: put back after what was only tried."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raykit.train import rng


@contextmanager
def put_back() -> Iterator[None]:
    """After the block, this process is set up as it was before, generators too."""
    generators, kept = rng.capture(), _settings()
    environment, path, folder = dict(os.environ), list(sys.path), _folder()
    printed, floats = torch._tensor_str.PRINT_OPTS, np.geterr()
    options = (printed.precision, printed.threshold, printed.edgeitems, printed.linewidth, printed.sci_mode)
    shown = np.get_printoptions()
    with warnings.catch_warnings():
        try:
            yield
        finally:
            _put_environment(environment)
            sys.path[:] = path
            if folder is not None and _folder() != folder:
                os.chdir(folder)
            _put_settings(kept)
            for name, value in zip(_PRINTED, options, strict=True):
                setattr(torch._tensor_str.PRINT_OPTS, name, value)
            np.seterr(**floats)
            np.set_printoptions(**shown)
            rng.restore(generators)


def settings() -> dict[str, Any]:
    """What a recipe can set of this process, by name: environment variables, and how torch computes."""
    found = {f"os.environ[{name!r}]": value for name, value in os.environ.items()}
    return {**found, **{f"torch.{name}": value for name, value in _settings().items()}}


_PRINTED = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")


def _settings() -> dict[str, Any]:
    return {
        "get_default_dtype()": torch.get_default_dtype(),
        "get_num_threads()": torch.get_num_threads(),
        "is_grad_enabled()": torch.is_grad_enabled(),
        "are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "is_anomaly_enabled()": torch.is_anomaly_enabled(),
        "get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
    }


def _put_settings(kept: dict[str, Any]) -> None:
    now = _settings()
    for name, put in (
        ("get_default_dtype()", torch.set_default_dtype),
        ("get_num_threads()", torch.set_num_threads),
        ("is_grad_enabled()", torch.set_grad_enabled),
        ("are_deterministic_algorithms_enabled()", torch.use_deterministic_algorithms),
        ("is_anomaly_enabled()", torch.autograd.set_detect_anomaly),
        ("get_float32_matmul_precision()", torch.set_float32_matmul_precision),
    ):
        if now[name] != kept[name]:
            put(kept[name])
    torch.backends.cudnn.benchmark = kept["backends.cudnn.benchmark"]


def _put_environment(kept: dict[str, str]) -> None:
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    for name, value in kept.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was deleted
        return None


__all__ = ["put_back", "settings"]
