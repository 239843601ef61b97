"""What a checkpoint holds, captured from live objects and put back into them.

    file                    holds                                                          written by
    model.safetensors       the model's state_dict                                         rank 0
    optimizer.safetensors   the optimizer's state by the names of its parameters           rank 0
    state.json              scheduler, scaler, recipe, progress, what is frozen            rank 0
    state.safetensors       tensors of those, if there are any                             rank 0
    state-00001.json        the recipe's state, where that rank's is not that of rank 0    that rank
    rng-00000.safetensors   every global generator of that rank                            each rank

Nothing in it depends on time, host or attempt: equal training states are equal bytes. After a restore the same
files are made once more from the live objects and their digests compared, so that "restored" is a fact.

The first format numbered the optimizer's parameters and forgot the order of dicts. Its checkpoints are read, and
compared as they were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from raykit.errors import CorruptError, GateError
from raykit.history import Patience
from raykit.ids import canonical, parse_json, sha256
from raykit.records import FileRef, Manifest
from raykit.train import rng
from raykit.train.names import with_tied
from raykit.train.optimizer_state import in_order, is_by_name, named_state, restore_named, restore_numbered
from raykit.train.tensors import HostCopy, is_broken, join, read_tensors, split

STATE = "state.json"
FORMAT = 2
FIRST = 1
"""The format of older checkpoints."""

EXTRA_STATE = "_extra_state"
"""What torch calls what a module saves beside its tensors: it may have another shape each time."""

MAX_BROKEN = 8
"""How many tensors that are not finite a commit names."""

File = tuple[str, str, Iterator[memoryview] | bytes]
"""Its name, what it holds, its bytes."""


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


def state_file(rank: int) -> str:
    """Where a rank's own state of the recipe is, if it is not that of rank 0."""
    return f"state-{rank:05d}.json"


class _Tree:
    """A tree as JSON, and its tensors in host memory."""

    def __init__(self) -> None:
        self._tensors = HostCopy()
        self._has_tensors = False
        self._json = b""

    def take(self, tree: Any, format: int = FORMAT) -> None:
        structure, tensors = split(tree, "state", ordered=format != FIRST)
        self._json = canonical({"format": format, "tree": structure})
        self._has_tensors = bool(tensors)
        if tensors:
            self._tensors.take(tensors)

    def files(self, name: str) -> Iterator[File]:
        yield name, "state", self._json
        if self._has_tensors:
            yield tensors_beside(name), "state", self._tensors.stream()


def tensors_beside(name: str) -> str:
    """The file with the tensors of a tree."""
    return name.replace(".json", ".safetensors")


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
        self._state = _Tree()
        self._recipe = _Tree()
        self._rng = HostCopy()
        self._parameters: frozenset[str] = frozenset()
        self.parted = False
        """Whether the recipe's state on this rank is its own, and a file as well."""

    def take(self, live: Live, *, format: int = FORMAT) -> None:
        """Copy everything; training may go on as soon as this returns.

        Raises:
            GateError: something in the state has no exact form.
        """
        structure, tensors = split(rng.capture(), "rng", ordered=False)
        self._rng.take(tensors, structure)
        if not self._everything:
            if self.parted:
                self._recipe.take(_of_recipe(live))
            return
        self._model.take(_only_tensors(live.model.state_dict()))
        named = live.model.named_parameters(remove_duplicate=False)
        self._parameters = frozenset(name for name, _ in named)
        kept = live.optimizer.state_dict() if format == FIRST else named_state(live.model, live.optimizer)
        structure, tensors = split(kept, "optimizer", ordered=format != FIRST)
        self._optimizer.take(tensors, structure)
        self._state.take(_counters(live, format), format)

    def files(self) -> Iterator[File]:
        """(name, what it holds, bytes) of every file that this rank writes."""
        if self._everything:
            yield "model.safetensors", "model", self._model.stream()
            yield "optimizer.safetensors", "optimizer", self._optimizer.stream()
            yield from self._state.files(STATE)
        elif self.parted:
            yield from self._recipe.files(state_file(self._rank))
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
        return {name: _digest(data) for name, _, data in self.files()}

    def held(self) -> dict[str, bytes]:
        """Every file's bytes, held in memory: a checkpoint that touches no store (for the launch gates)."""
        return {
            name: data if isinstance(data, bytes) else b"".join(bytes(chunk) for chunk in data)
            for name, _, data in self.files()
        }


def _digest(data: Iterator[memoryview] | bytes) -> str:
    digest = hashlib.sha256()
    for chunk in (data,) if isinstance(data, bytes) else data:
        digest.update(chunk)
    return digest.hexdigest()


def _of_recipe(live: Live) -> dict[str, Any]:
    return {"recipe": live.recipe.state_dict() if hasattr(live.recipe, "state_dict") else None}


def recipe_digest(live: Live) -> str:
    """The digest of the recipe's own state, by which ranks find that theirs are not the same.

    Raises:
        GateError: something in it has no exact form.
    """
    tree = _Tree()
    tree.take(_of_recipe(live))
    return sha256("".join(_digest(data) for _, _, data in tree.files(STATE)).encode())


def _only_tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise GateError(
                f"{name} in the model's state_dict is a {type(value).__qualname__}, not a tensor",
                rule="parameters and buffers",
                remedy="return a tensor from get_extra_state(), or keep it in the recipe's state_dict()",
            )
    return dict(state)


def _counters(live: Live, format: int) -> dict[str, Any]:
    progress = live.progress
    counters: dict[str, Any] = {
        "update": progress.update,
        "samples": progress.samples,
        "skipped": progress.skipped,
        "patience": dict(sorted(progress.patience.plain().items())),
        "reference_spreads": dict(sorted(progress.reference_spreads.items())),
        "scheduler": None if live.scheduler is None else _of_schedule(live.scheduler),
        "scaler": None if live.scaler is None else dict(sorted(live.scaler.state_dict().items())),
        **_of_recipe(live),
    }
    if format != FIRST:
        named = live.model.named_parameters()
        counters["frozen"] = [name for name, parameter in named if not parameter.requires_grad]
    return dict(sorted(counters.items()))


def _of_schedule(scheduler: Any) -> Any:
    """A schedule's state. Those of torch give their attributes, whose order means nothing."""
    state = scheduler.state_dict()
    return dict(sorted(state.items())) if isinstance(scheduler, LRScheduler) else state


def same_on_every_rank(live: Live) -> dict[str, Any]:
    """What `state.json` says that each rank comes to by itself, and all to the same."""
    counters = _counters(live, FORMAT)
    return {name: counters[name] for name in ("scheduler", "scaler", "frozen")}


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
        GateError: the optimizer's groups, or what is tied, are not as they were.
    """
    restore_model(live.model, files["model.safetensors"], format=format_of(files))
    structure, tensors = read_tensors(files["optimizer.safetensors"], "optimizer.safetensors")
    restore_optimizer(live, join(structure, tensors))
    _restore_counters(live, files, rank)
    if rng_file(rank) in files:
        structure, tensors = read_tensors(files[rng_file(rank)], rng_file(rank))
        rng.restore(join(structure, tensors))


def restore_model(model: nn.Module, data: bytes | bytearray, *, format: int = FORMAT) -> None:
    """Put the verified bytes of `model.safetensors` into a model.

    Raises:
        CorruptError: they do not parse, or a tensor has another name, shape or dtype than the model's.
        GateError: two names of one tensor have different values.
    """
    _, tensors = read_tensors(data, "model.safetensors")
    tensors = with_tied(model, tensors, "model.safetensors")
    if format == FIRST:
        _cast_as_then(model)
    _same_tensors(model.state_dict(), tensors)
    model.load_state_dict(tensors)


def _cast_as_then(model: nn.Module) -> None:
    """Buffers took the plan's dtype, too, when the first format was written: such a run goes on as it is."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    for buffer in model.buffers():
        if dtype is not None and buffer.is_floating_point():
            buffer.data = buffer.data.to(dtype)


def restore_optimizer(live: Live, saved: dict[str, Any]) -> None:
    """Put back what the optimizer kept, by name; of the first format, by number.

    Raises:
        GateError: its groups are not of the same parameters.
    """
    if is_by_name(saved):
        in_order(live.scheduler, restore_named(live.model, live.optimizer, saved))
    else:
        restore_numbered(live.optimizer, saved)


def _same_tensors(expected: Mapping[str, Any], found: Mapping[str, torch.Tensor]) -> None:
    want = {name: value for name, value in expected.items() if isinstance(value, torch.Tensor)}
    for name in sorted(want.keys() ^ found.keys()):
        where = "the model" if name in found else "the checkpoint"
        raise CorruptError(f"{where} has no tensor {name}")
    for name, tensor in want.items():
        if name.rpartition(".")[2] == EXTRA_STATE:
            continue
        for what, now, was in (
            ("shape", tuple(tensor.shape), tuple(found[name].shape)),
            ("dtype", tensor.dtype, found[name].dtype),
        ):
            if now != was:
                raise CorruptError(f"tensor {name} has {what} {was} in the checkpoint and {now} in the model")


def format_of(files: Mapping[str, bytes | bytearray]) -> int:
    """The format of a checkpoint; of weights that have no `state.json`, this one.

    Raises:
        CorruptError: it is one that this version does not know.
    """
    return FORMAT if STATE not in files else int(_document(files, STATE)["format"])


def read_state(files: Mapping[str, bytes | bytearray], name: str = STATE) -> Any:
    """The tree of `state.json`, with the tensors of `state.safetensors` in it where there are any.

    Raises:
        CorruptError: a file does not parse, or is of another format.
    """
    document, beside = _document(files, name), tensors_beside(name)
    tensors: dict[str, torch.Tensor] = {}
    if beside in files:
        _, tensors = read_tensors(files[beside], beside)
    return join(document["tree"], tensors)


def _document(files: Mapping[str, bytes | bytearray], name: str) -> dict[str, Any]:
    document = parse_json(bytes(files[name]), name)
    if not isinstance(document, dict) or document.get("format") not in (FIRST, FORMAT):
        raise CorruptError(f"{name} is of a format this version does not know")
    return document


def _restore_counters(live: Live, files: Mapping[str, bytes | bytearray], rank: int) -> None:
    tree = read_state(files)
    for name, target in (("scheduler", live.scheduler), ("scaler", live.scaler)):
        if (tree[name] is None) != (target is None):
            raise CorruptError(f"{STATE}: the checkpoint and the recipe do not both have a {name}")
        if target is not None:
            target.load_state_dict(tree[name])
    own = state_file(rank)
    kept = read_state(files, own)["recipe"] if own in files else tree["recipe"]
    if kept is not None:
        live.recipe.load_state_dict(kept)
    if "frozen" in tree:
        _restore_flags(live.model, frozenset(tree["frozen"]))
    live.progress = Progress(
        update=tree["update"],
        samples=tree["samples"],
        skipped=tree["skipped"],
        patience=Patience(**tree["patience"]),
        reference_spreads=tree["reference_spreads"],
    )


def _restore_flags(model: nn.Module, frozen: frozenset[str]) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad is (name in frozen):
            parameter.requires_grad_(name not in frozen)


def needed_files(manifest: Manifest, rank: int) -> list[FileRef]:
    """The files of a checkpoint that `rank` reads."""
    own = (STATE, state_file(rank))
    names = {rng_file(rank), *own, *map(tensors_beside, own)}
    return [file for file in manifest.files if file.holds in ("model", "optimizer") or file.name in names]


def unequal(
    capture: Capture, live: Live, manifest: Manifest, files: Mapping[str, bytes | bytearray], *, rank: int
) -> list[str]:
    """Names of this rank's files that, made anew from the live objects, differ from the checkpoint's."""
    capture.parted = state_file(rank) in files
    capture.take(live, format=format_of(files))
    stored = {file.name: file.sha256 for file in manifest.files}
    return sorted(name for name, digest in capture.digests().items() if stored.get(name) != digest)
