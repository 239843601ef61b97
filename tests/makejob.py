"""A recipe that makes rows, its weights in a store, and what is frozen with it: everything that a producer needs.

    job = GenJob(folder, "    def generate(self, model, inputs, rng): ...", rows=40, unit_rows=10)
    job.contract                    # as the real producer was probed
    job.make(3)                     # one unit
    job.producer(threads=2)         # a fresh one, under a contract that differs

The code is that of methods of a recipe whose model is `nn.Linear(4, 1)`; with `spec`, a whole module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from raykit.data import randomness
from raykit.data.inputs import CutInputs
from raykit.data.members import policy as policy_of
from raykit.data.members import split, write
from raykit.ids import sha256
from raykit.records import Column, GenerationContract, Manifest
from raykit.shards.contract import Draft, Probed, make_contract
from raykit.shards.units import unit_of
from raykit.store import open_store
from raykit.store.commit import Slot, write_file, write_manifest
from raykit.store.inputs import freeze_inputs
from raykit.train import frozen
from raykit.train.build import make_model
from raykit.train.find_recipe import load_recipe
from raykit.train.inputs import dataset_of, describe_dataset
from raykit.train.params import check_params
from raykit.train.state import Live, hold
from raykit.work.gen_probe import Probe, Real, probe
from raykit.work.gen_unit import Producer, Teacher
from raykit.work.generated import Made

NAME = "job"
ZERO = "0" * 64
SHARES = {"train": 0.70, "development": 0.15, "report_only": 0.15}

MODULE = """
import numpy as np
import pyarrow as pa
import torch
from torch import nn


class Gen:
    def model(self, params):
        return nn.Linear(4, 1)

    def optimizer(self, model, params):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def dataset(self, source, params):
        return [torch.full((2,), float(n)) for n in range(40)]

    def losses(self, model, batch):
        return {}

"""


class GenJob:
    """A set of one recipe, probed and frozen; its folder holds the store and the code."""

    def __init__(
        self,
        folder: Path,
        code: str,
        *,
        spec: str = "recipe:Gen",
        inputs: CutInputs | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        quality: bool = False,
        role: str = "development",
        probe_first: bool = True,
        **traits: Any,
    ) -> None:
        """`traits` are those of the draft that differ: `rows`, `unit_rows`, `batch_rows`, `decode`, `bounds`, ..."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.store = open_store(str(folder / "store"))
        self._folders = 0
        self._producer: Producer | None = None
        whole = MODULE + code if spec == "recipe:Gen" else code
        (folder / "code").mkdir()
        (folder / "code" / "recipe.py").write_text(whole)
        self.recipe: Any = load_recipe(spec, folder / "code")
        dtype = traits.get("dtype", "float32")
        self.teacher, self.key = self._commit(dtype)
        self.draft = self._draft(spec, whole, inputs, traits)
        if inputs is not None:
            freeze_inputs(self.store, NAME, inputs.manifest, inputs.chunks)
        real = Real(data=self._members(), role=role) if quality else None
        self.contract: GenerationContract
        if probe_first:
            self.probe: Probe = probe(
                self.store, self.draft, self.key, self._fresh(), options=options, real=real
            )
            self.contract = make_contract(self.draft, self.probe.probed)
        else:
            teacher = Teacher(self.store, self.draft, self.key, self._fresh())
            columns = (Column(name="row", type="int64"), Column(name="x", type="float"))
            self.contract = make_contract(self.draft, Probed(columns=columns, facts=teacher.facts()))

    def _draft(self, spec: str, code: str, inputs: CutInputs | None, traits: Mapping[str, Any]) -> Draft:
        known = {
            "experiment": NAME,
            "name": "s",
            "teacher": self.teacher,
            "recipe": spec,
            "params": {},
            "code": frozen.write_code(self.store, NAME, frozen.pack({"recipe.py": code.encode()})),
            "decode": {},
            "seed": 0,
            "dtype": "float32",
            "autocast": "none",
            "deterministic": True,
            "threads": 1,
            "inputs": None if inputs is None else inputs.manifest.digest,
            "samples": 1,
            "bounds": {"nonfinite": 1.0},
            "exact": True,
        }
        given = {**known, **traits}
        given.setdefault("batch_rows", given["unit_rows"])
        return Draft(**given)

    def _commit(self, dtype: str) -> tuple[str, str]:
        """A checkpoint of the recipe's model: the digest and the key of its manifest."""
        params = check_params(self.recipe, {})
        model = make_model(self.recipe, params, seed=7, device=torch.device("cpu"), dtype=dtype)
        live = Live(model=model, optimizer=self.recipe.optimizer(model, params), recipe=self.recipe)
        slot = Slot(experiment=NAME, run="main", update=1, attempt=1)
        holds = {"model.safetensors": "model", "optimizer.safetensors": "optimizer", "state.json": "state"}
        files = [
            write_file(self.store, slot, name, data, holds=holds.get(name, "rng"), rank=0)
            for name, data in hold(live, rank=0).items()
        ]
        manifest = Manifest(
            update=1,
            samples=1,
            world_size=1,
            files=tuple(files),
            history_update=1,
            contract=ZERO,
            data=ZERO,
            code=sha256(b"code"),
        )
        key, digest = write_manifest(self.store, slot, manifest)
        return digest, key

    def _members(self) -> str:
        data = dataset_of(self.recipe, check_params(self.recipe, {}), None)
        tables = split(describe_dataset(data), SHARES, "none", 1)
        return write(self.store, NAME, tables, policy_of(SHARES, "none", 1))

    def _fresh(self) -> Path:
        self._folders += 1
        folder = self.folder / f"code-{self._folders}"
        folder.mkdir()
        return folder

    def producer(self, **differs: Any) -> Producer:
        """A fresh producer, under this contract or one that differs."""
        contract = self.contract.model_copy(update=differs)
        return Producer(self.store, contract, self.key, self._fresh())

    def make(self, number: int) -> Made:
        """One unit, by one producer that is kept."""
        self._producer = self._producer or self.producer()
        return self._producer(unit_of(self.contract, number))

    def recipe_class(self) -> Any:
        """The class that the newest producer has imported."""
        return sys.modules["recipe"].Gen

    def keys(self, rows: Iterable[int]) -> list[int]:
        """What the random numbers of rows are keyed by."""
        return [randomness.key("generate", self.contract.production, row) for row in rows]
