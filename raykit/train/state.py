"""What a checkpoint holds, captured from live objects and put back into them.

    file                    holds                                                          written by
    model.safetensors       the model's state_dict                                         rank 0
    optimizer.safetensors   the optimizer's state_dict, moments in their own dtype         rank 0
    state.json              scheduler, scaler, recipe, progress: counters and positions    rank 0
    state.safetensors       tensors of those, if there are any                             rank 0
    rng-00000.safetensors   every global generator of that rank                            each rank

Nothing in it depends on time, host or attempt: equal training states are equal bytes. After a restore the same
files are made once more from the live objects and their digests compared, so that "restored" is a fact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from raykit.errors import CorruptError, GateError
from raykit.history import Patience
from raykit.ids import canonical, parse_json
from raykit.records import FileRef, Manifest
from raykit.train import rng
from raykit.train.tensors import HostCopy, is_broken, join, read_tensors, split

STATE = "state.json"
FORMAT = 1
MAX_BROKEN = 8
"""How many tensors that are not finite a commit names."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where the run is, and the counters that its rules need."""

    update: int = 0
    samples: int = 0
    patience: Patience = field(default_factory=Patience)
    reference_spreads: dict[str, float] = field(default_factory=dict)
    """Spread of each monitored field at update 0."""
    skipped: int = 0
    """Updates whose step the loss scaler skipped."""


@dataclass(slots=True, kw_only=True)
class Live:
    """The objects that training changes. `model` is the bare module, not a wrapper around it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    scaler: Any = None
    recipe: Any = None
    progress: Progress = field(default_factory=Progress)


def rng_file(rank: int) -> str:
    return f"rng-{rank:05d}.safetensors"


class Capture:
    """Copies of the live state in host memory, kept between saves.

    Rank 0 copies everything, other ranks their generators; `whole` makes any rank copy everything (models and
    optimizers are replicas), for comparisons that touch no store.
    """

    def __init__(self, *, rank: int, pin: bool, whole: bool = False) -> None:
        self._rank = rank
        self._everything = whole or rank == 0
        self._model = HostCopy(pin=pin)
        self._optimizer = HostCopy(pin=pin)
        self._extra = HostCopy()
        self._rng = HostCopy()
        self._state = b""
        self._has_extra = False
        self._parameters: frozenset[str] = frozenset()

    def take(self, live: Live) -> None:
        """Copy everything; training may go on as soon as this returns.

        Raises:
            GateError: something in the state has no exact form.
        """
        structure, tensors = split(rng.capture(), "rng")
        self._rng.take(tensors, structure)
        if not self._everything:
            return
        self._model.take(_only_tensors(live.model.state_dict()))
        named = live.model.named_parameters(remove_duplicate=False)
        self._parameters = frozenset(name for name, _ in named)
        structure, tensors = split(live.optimizer.state_dict(), "optimizer")
        self._optimizer.take(tensors, structure)
        structure, tensors = split(_counters(live), "state")
        self._state = canonical({"format": FORMAT, "tree": structure})
        self._has_extra = bool(tensors)
        if tensors:
            self._extra.take(tensors)

    def files(self) -> Iterator[tuple[str, str, Iterator[memoryview] | bytes]]:
        """(name, what it holds, bytes) of every file that this rank writes."""
        if self._everything:
            yield "model.safetensors", "model", self._model.stream()
            yield "optimizer.safetensors", "optimizer", self._optimizer.stream()
            yield STATE, "state", self._state
            if self._has_extra:
                yield "state.safetensors", "state", self._extra.stream()
        yield rng_file(self._rank), "rng", self._rng.stream()

    def broken(self) -> tuple[str, ...]:
        """The names of the model's tensors that are not finite, the first few; of a buffer only NaN counts."""
        return tuple(
            name
            for name, values in self._model.named()
            if is_broken(values, buffer=name not in self._parameters)
        )[:MAX_BROKEN]

    def digests(self) -> dict[str, str]:
        """The sha256 of each file, without writing any."""
        found: dict[str, str] = {}
        for name, _, data in self.files():
            digest = hashlib.sha256()
            for chunk in (data,) if isinstance(data, bytes) else data:
                digest.update(chunk)
            found[name] = digest.hexdigest()
        return found

    def held(self) -> dict[str, bytes]:
        """Every file's bytes, held in memory: a checkpoint that touches no store (for the launch gates)."""
        return {
            name: data if isinstance(data, bytes) else b"".join(bytes(chunk) for chunk in data)
            for name, _, data in self.files()
        }


def _only_tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise GateError(
                f"{name} in the model's state_dict is a {type(value).__qualname__}, not a tensor",
                rule="parameters and buffers",
                remedy="return a tensor from get_extra_state(), or keep it in the recipe's state_dict()",
            )
    return dict(state)


def _counters(live: Live) -> dict[str, Any]:
    progress = live.progress
    return {
        "update": progress.update,
        "samples": progress.samples,
        "skipped": progress.skipped,
        "patience": dict(progress.patience.plain()),
        "reference_spreads": dict(sorted(progress.reference_spreads.items())),
        "scheduler": None if live.scheduler is None else live.scheduler.state_dict(),
        "scaler": None if live.scaler is None else live.scaler.state_dict(),
        "recipe": live.recipe.state_dict() if hasattr(live.recipe, "state_dict") else None,
    }


def hold(live: Live, *, rank: int) -> dict[str, bytes]:
    """The whole state as files in memory.

    Raises:
        GateError: something in the state has no exact form.
    """
    capture = Capture(rank=rank, pin=False, whole=True)
    capture.take(live)
    return capture.held()


def restore(live: Live, files: Mapping[str, bytes | bytearray], *, rank: int) -> None:
    """Put verified files back into the live objects, generators last.

    `files` holds `model.safetensors`, `optimizer.safetensors`, `state.json`, `state.safetensors` where there is
    one, and this rank's generator file. A rank that did not exist when the checkpoint was made has none, and
    keeps its generators.

    Raises:
        CorruptError: a file does not parse, or a tensor has another name, shape or dtype than the model's.
    """
    restore_model(live.model, files["model.safetensors"])
    structure, tensors = read_tensors(files["optimizer.safetensors"], "optimizer.safetensors")
    restore_optimizer(live.optimizer, join(structure, tensors))
    _restore_counters(live, files)
    if rng_file(rank) in files:
        structure, tensors = read_tensors(files[rng_file(rank)], rng_file(rank))
        rng.restore(join(structure, tensors))


def restore_model(model: nn.Module, data: bytes | bytearray) -> None:
    """Put the verified bytes of `model.safetensors` into a model.

    Raises:
        CorruptError: they do not parse, or a tensor has another name, shape or dtype than the model's.
    """
    _, tensors = read_tensors(data, "model.safetensors")
    _same_tensors(model.state_dict(), tensors)
    model.load_state_dict(tensors)


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """`load_state_dict`, and then every moment in its own dtype: torch casts them to that of their parameter."""
    optimizer.load_state_dict(saved)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    parameter_of = dict(zip(indices, parameters, strict=True))
    for index, moments in saved["state"].items():
        state = optimizer.state[parameter_of[index]]
        for name, was in moments.items():
            now = state.get(name)
            if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != was.dtype:
                state[name] = was.to(now.device)


def _same_tensors(expected: Mapping[str, Any], found: Mapping[str, torch.Tensor]) -> None:
    want = {name: value for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in sorted(want.keys() ^ found.keys()):
        where = "the model" if name in found else "the checkpoint"
        raise CorruptError(f"{where} has no tensor {name}")
    for name, tensor in want.items():
        for what, now, was in (
            ("shape", tuple(tensor.shape), tuple(found[name].shape)),
            ("dtype", tensor.dtype, found[name].dtype),
        ):
            if now != was:
                raise CorruptError(f"tensor {name} has {what} {was} in the checkpoint and {now} in the model")


def read_state(files: Mapping[str, bytes | bytearray]) -> Any:
    """The tree of `state.json`, with the tensors of `state.safetensors` in it where there are any.

    Raises:
        CorruptError: a file does not parse, or is of another format.
    """
    document = parse_json(bytes(files[STATE]), STATE)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CorruptError(f"{STATE} is of a format this version does not know")
    tensors: dict[str, torch.Tensor] = {}
    if "state.safetensors" in files:
        _, tensors = read_tensors(files["state.safetensors"], "state.safetensors")
    return join(document["tree"], tensors)


def _restore_counters(live: Live, files: Mapping[str, bytes | bytearray]) -> None:
    tree = read_state(files)
    for name, target in (("scheduler", live.scheduler), ("scaler", live.scaler)):
        if (tree[name] is None) != (target is None):
            raise CorruptError(f"{STATE}: the checkpoint and the recipe do not both have a {name}")
        if target is not None:
            target.load_state_dict(tree[name])
    if tree["recipe"] is not None:
        live.recipe.load_state_dict(tree["recipe"])
    live.progress = Progress(
        update=tree["update"],
        samples=tree["samples"],
        skipped=tree["skipped"],
        patience=Patience(**tree["patience"]),
        reference_spreads=tree["reference_spreads"],
    )


def needed_files(manifest: Manifest, rank: int) -> list[FileRef]:
    """The files of a checkpoint that `rank` reads."""
    return [
        file
        for file in manifest.files
        if file.holds in ("model", "optimizer")
        or file.name in (STATE, "state.safetensors")
        or file.name == rng_file(rank)
    ]


def unequal(capture: Capture, manifest: Manifest) -> list[str]:
    """Names of this rank's files that, made anew from the live objects, differ from the checkpoint's."""
    stored = {file.name: file.sha256 for file in manifest.files}
    return sorted(name for name, digest in capture.digests().items() if stored.get(name) != digest)
