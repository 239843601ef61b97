"""A model with the weights of a checkpoint, and the recipe that it is asked through: verified, and the same everywhere.

What examines a checkpoint and what generates with it both start here.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import nn

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.records import Manifest
from raykit.store.base import ObjectStore
from raykit.store.commit import MAX_MANIFEST_BYTES, read_verified
from raykit.train import facts, frozen, rng
from raykit.train.build import autocast_of, fix_bits, make_model
from raykit.train.find_recipe import load_recipe, loaded_for
from raykit.train.gang import Gang
from raykit.train.hanging import apart, ids_on, require_all_saved
from raykit.train.looking import Asked, Watch
from raykit.train.params import check_params
from raykit.train.state import STATE, format_of, read_state, restore_model
from raykit.train.surroundings import code_outside

MODEL = "model.safetensors"
OF_A_RECIPE = (STATE, "state.safetensors")
"""The files that hold what a recipe keeps for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model in evaluation mode, and how it is run."""

    recipe: Any
    """Whatever is asked of it changes nothing, or is void: see `looking`."""
    model: nn.Module
    autocast: Callable[[], AbstractContextManager[Any]]
    watch: Watch

    def has(self, method: str) -> bool:
        return callable(getattr(self.recipe, method, None))

    def ask(self, method: str, key: int, *arguments: Any, **named: Any) -> Any:
        """What a method of the recipe says, with all generators seeded by `key`."""
        rng.seed(key)
        with self.autocast():
            return getattr(self.recipe, method)(self.model, *arguments, **named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A process whose arithmetic is fixed, with a recipe from frozen code, its params, and the device it works on."""

    device: torch.device
    recipe: Any
    params: Any
    outside: Mapping[str, str] = field(default_factory=dict)
    """The code that the recipe imports and that is neither frozen nor installed, as facts."""

    _shown: list[bool] = field(default_factory=list, init=False, compare=False)
    """Whether a model of this recipe has shown that checkpoints hold all of it."""

    def facts(self, threads: int) -> dict[str, str]:
        """What bits depend on beside everything that is asked: versions, device model, threads, CPU capability."""
        here = facts.here(Gang(rank=0, world=1, device=self.device), threads)
        del here["world_size"]  # one unit is run at a time, whatever trained the weights
        del here["hash_seed"]  # contracts of before have none, and each worker is started with the same
        return {**here, **self.outside}

    def subject(
        self, files: Mapping[str, bytes | bytearray], *, seed: int, dtype: str, autocast: str
    ) -> Subject:
        """A model with the weights in `files`, and a recipe of its own with its state. `seed` builds the model.

        Raises:
            CorruptError: the files do not parse, or are not of this model.
            GateError: the recipe gives something that is not a module, or keeps a network or tensor that no checkpoint
                holds.
        """
        before = ids_on(self.recipe)
        recipe, model = self._made(seed, dtype)  # what it keeps of this model is gone with the next one
        state = read_state(files)["recipe"] if hasattr(recipe, "load_state_dict") else None
        if not self._shown:
            require_all_saved(
                recipe,
                model,
                before,
                lambda: self._made(seed + 1, dtype),
                named=tuple(state) if isinstance(state, dict) else (),
            )
            self._shown.append(True)
        restore_model(model, files[MODEL], format=format_of(files))
        if hasattr(recipe, "load_state_dict"):
            recipe.load_state_dict(state)
        model.eval()
        watch = Watch(recipe, model)
        return Subject(
            recipe=Asked(recipe, watch), model=model, autocast=autocast_of(self.device, autocast), watch=watch
        )

    def _made(self, seed: int, dtype: str) -> tuple[Any, nn.Module]:
        """A recipe of its own, and its model as it is built."""
        recipe = apart(self.recipe)
        return recipe, make_model(recipe, self.params, seed=seed, device=self.device, dtype=dtype)


def enter(
    store: ObjectStore,
    experiment: str,
    *,
    code: str,
    recipe: str,
    params: Mapping[str, Any],
    threads: int,
    deterministic: bool,
    folder: Path,
) -> Room:
    """Fix what bits depend on in this process, and open a recipe from its frozen code.

    `folder` is private and empty: the code is unpacked there.

    Raises:
        CorruptError: the code does not match its digest.
        PlanError: the recipe or its params cannot be opened.
        StoreUnavailableError: the store did not answer.
    """
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    fix_bits(device, threads=threads, deterministic=deterministic)
    files = frozen.read_code(store, experiment, code)
    frozen.unpack(files, folder)
    opened = load_recipe(recipe, folder)
    outside = code_outside(folder, files, loaded_for(folder))
    return Room(device=device, recipe=opened, params=check_params(opened, params), outside=outside)


def read_weights(store: ObjectStore, key: str, digest: str) -> tuple[int, dict[str, bytearray]]:
    """The update of a checkpoint, and its verified files: the model, and what holds the recipe's own state.

    `key` is that of its manifest.

    Raises:
        CorruptError: something is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    data = _manifest_bytes(store, key, digest)
    folder = key.rpartition("/")[0]
    manifest = Manifest.from_bytes(data, key)
    files = {
        file.name: read_verified(store, f"{folder}/{file.name}", file)
        for file in manifest.files
        if file.holds == "model" or file.name in OF_A_RECIPE
    }
    if MODEL not in files:
        raise CorruptError(f"{key} has no {MODEL}", rule="I1")
    return manifest.update, files


def _manifest_bytes(store: ObjectStore, key: str, digest: str) -> bytes:
    try:
        data = store.get(key, max_bytes=MAX_MANIFEST_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing", rule="I1") from error
    if sha256(data) != digest:
        raise CorruptError(f"{key} is not the checkpoint that was asked for", rule="I1")
    return data


def hold_on_accelerator(memory_bytes: int) -> bool:
    """Let every allocation fail that would make this process hold more of its accelerator; False if it has none."""
    if not torch.cuda.is_available():
        return False
    there = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / there), 0)
    return True


def peak_bytes(device: torch.device) -> int:
    """The most memory that this process has held; on an accelerator, of that since it was reset."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Blas:
    """NumPy's linear algebra gives other bits on other numbers of threads: this holds it to one number."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._modules = 0
        self._found = ThreadpoolController()

    def held(self) -> AbstractContextManager[Any]:
        """For as long as a block runs. Libraries that were imported since the last one are found, too."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._found = ThreadpoolController()  # takes milliseconds
        return cast(AbstractContextManager[Any], self._found.limit(limits=self._threads, user_api="blas"))
