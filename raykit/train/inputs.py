"""What a rank trains on and with, read from the store and proved: plan, code, recipe, members.

The stored copies are what counts. Members are compared one by one with the data of today, on every rank, at every
start: a split that would come out differently is refused, never silently replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raykit.data import randomness
from raykit.data.content import content_digest
from raykit.data.members import Membership, Source, describe
from raykit.data.members import load as load_members
from raykit.errors import PlanError
from raykit.plan import Lock, Plan, plan_with
from raykit.records import Difference, Setting
from raykit.store.base import ObjectStore
from raykit.store.plans import read_lock, read_plan, read_setting
from raykit.train import frozen, rng
from raykit.train.base import Base, base_of
from raykit.train.find_recipe import load_recipe, loaded_for
from raykit.train.glance import Glance
from raykit.train.loader import Keyed
from raykit.train.params import check_params
from raykit.train.recipe import Recipe
from raykit.train.surroundings import code_outside, unbound

SAMPLED = 32
"""So many rows are read at each start where a dataset says of itself what its content is."""

SHOWN = 16
"""Digits of their digests that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one launch trains. JSON all through: it travels to workers as it is."""

    root: str
    experiment: str
    run: str
    launch: str
    plan: str
    """Digest of the plan's lock: the name of its folder in the store."""
    contract: str
    code: str
    data: str
    lease_s: float = 60.0
    hold_s: float = 300.0

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Task:
        return Task(**plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that a rank needs to build and train."""

    plan: Plan
    lock: Lock
    setting: Setting | None
    """Of a trial: what its plan has instead of what the lock says."""
    base: Base | None
    """The weights that a new run starts from; None if they are the recipe's own."""
    recipe: Recipe
    params: Any
    dataset: Any
    source: Source
    membership: Membership
    outside: Mapping[str, str]
    """The code that the recipe imports and that is neither frozen nor installed, as facts."""
    folder: Path
    """Where the frozen code lies, as long as the process works."""

    def unbound(self) -> list[str]:
        """Code outside that was imported since, and that no fact binds."""
        return unbound(self.folder, loaded_for(self.folder), self.outside)

    def made_again(self) -> Inputs:
        """The same with a recipe and a dataset that were made anew.

        Raises:
            PlanError: the recipe or its data cannot be opened.
        """
        recipe = load_recipe(self.plan.recipe, self.folder)
        params = check_params(recipe, self.plan.run.params)
        dataset = open_dataset(recipe, params, self.plan)
        return replace(self, recipe=recipe, params=params, dataset=dataset)

    def keyed(self, role: Any, first: int | None = None) -> Keyed:
        """One split, or the `first` rows of it, each sample seeded by its place."""
        members = self.members(role)[:first]
        return Keyed(self.dataset, members, self.plan.run.seed, self.source.table["id"])

    def members(self, role: Any) -> np.ndarray[Any, Any]:
        return self.membership.indices(role, self.source)

    def roles(self) -> frozenset[str]:
        return frozenset(self.membership.manifest.roles)


def open_dataset(recipe: Recipe, params: Any, plan: Plan) -> Any:
    """The recipe's dataset.

    Raises:
        PlanError: it is not a map-style dataset, or it is empty.
    """
    return dataset_of(recipe, params, None if plan.data is None else plan.data.sources())


def dataset_of(recipe: Recipe, params: Any, source: Mapping[str, tuple[str, ...]] | None) -> Any:
    """The recipe's dataset from the sources of each role; None where the plan has no `[data]`.

    Raises:
        PlanError: it is not a map-style dataset.
    """
    dataset = recipe.dataset(source, params)
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise PlanError(
            "the recipe's dataset() did not return a map-style dataset",
            field="recipe.dataset",
            rule="an object with __len__ and __getitem__",
        )
    return dataset


def describe_dataset(dataset: Any, glance: Glance | None = None) -> Source:
    """One row of identity per item: id, group, stratum, and the digest of its content.

    The content is what `dataset[i]` gives under one fixed seed, or what the dataset's own `content(i)` gives. `glance`
    sees every item that is read.

    Raises:
        PlanError: duplicate ids, an empty dataset, an item that cannot be read, or one without a stable content.
    """
    return describe(
        len(dataset),
        getattr(dataset, "ids", None),
        getattr(dataset, "groups", None),
        getattr(dataset, "strata", None),
        lambda index: content_of(dataset, index, glance),
    )


def content_of(dataset: Any, index: int, glance: Glance | None = None) -> str:
    """The digest of one item's content, as `describe_dataset` has it.

    Raises:
        PlanError: the item has no stable content.
    """
    own = getattr(dataset, "content", None)
    if own is not None:
        return content_digest(own(index))
    item = item_of(dataset, index)
    if glance is not None:
        glance.see(index, item)
    return content_digest(item)


def item_of(dataset: Any, index: int) -> Any:
    """One item under the seed that is its own whenever it is looked at."""
    rng.seed(randomness.key("content", index))
    return dataset[index]


def sample_of(dataset: Any, source: Source) -> dict[str, str] | None:
    """By id, the beginning of the digest of what some rows are, where a dataset says of itself what its content is.

    The members bind no more than what it says. Which rows: those with the least content digests, wherever they lie.
    None where every row was read for its content, or none of these has stable bytes.
    """
    if getattr(dataset, "content", None) is None:
        return None
    least = source.table.sort_by("sha256").slice(0, SAMPLED)
    found = {}
    for id, index in zip(least["id"].to_pylist(), least["index"].to_pylist(), strict=True):
        with contextlib.suppress(PlanError):  # of no stable bytes
            found[id] = content_digest(item_of(dataset, index))[:SHOWN]
    return found or None


def changed_rows(was: Mapping[str, str] | None, now: Mapping[str, str] | None) -> Difference | None:
    """The sampled rows that are not what they were, though their dataset says that their content is the same."""
    if was is None or now is None:
        return None
    other = [id for id in was if id in now and was[id] != now[id]]
    if not other:
        return None
    named = ", ".join(map(repr, other[:3])) + (", ..." if len(other) > 3 else "")
    return Difference(
        what="sampled rows, whose content() is what it was",
        was=f"{named} as they were read",
        now=f"{len(other)} of {len(now)} differ",
        allows="inexact",
    )


def read_inputs(store: ObjectStore, task: Task, folder: Path) -> Inputs:
    """Read, prove and open everything. `folder` is private and empty: the frozen code is unpacked there.

    Whether the members are still what they were is for the caller to compare.

    Raises:
        CorruptError: stored bytes do not match their digests.
        PlanError: the recipe or its data cannot be opened.
        NotFoundError: the plan is not in the store.
        StoreUnavailableError: the store did not answer.
    """
    setting = read_setting(store, task.experiment, task.run)
    plan = plan_with(read_plan(store, task.experiment, task.plan), setting)
    lock = read_lock(store, task.experiment, task.plan)
    files = frozen.read_code(store, task.experiment, task.code)
    frozen.unpack(files, folder)
    recipe = load_recipe(plan.recipe, folder)
    params = check_params(recipe, plan.run.params)
    dataset = open_dataset(recipe, params, plan)
    return Inputs(
        plan=plan,
        lock=lock,
        setting=setting,
        base=base_of(plan, lock),
        recipe=recipe,
        params=params,
        dataset=dataset,
        source=describe_dataset(dataset),
        membership=load_members(store, task.experiment, task.data),
        outside=code_outside(folder, files, loaded_for(folder)),
        folder=folder,
    )
