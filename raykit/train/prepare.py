"""Before a launch: everything that the plan's lock binds, worked out and nothing written.

The split members are divided here from the data as they are now, unless the experiment already has members: those
are kept, and the data are compared with them later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from raykit.data.members import (
    Membership,
    Policy,
    Role,
    Source,
    divide,
    policy,
    split_files,
    write,
)
from raykit.errors import PlanError
from raykit.ids import sha256
from raykit.plan import Lock, LockedBase, Plan, make_lock
from raykit.plan.tables import Qc
from raykit.qc.roster import draw, require_strata
from raykit.qc.suite import make_suite
from raykit.records import Roster, RosterUnit, Suite
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.qc import Examinations
from raykit.train import frozen
from raykit.train.find_recipe import load_recipe, loaded_for
from raykit.train.glance import Glance, require_together
from raykit.train.inputs import describe_dataset, open_dataset
from raykit.train.owncode import own_files
from raykit.train.params import check_fields, check_params
from raykit.train.recipe import Recipe, asking
from raykit.train.revision import Git
from raykit.train.searched import check_settings
from raykit.train.surroundings import code_outside

SPLIT_SEED = 0
"""Members do not depend on the training seed: repeats over seeds train on the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a launch is about to freeze."""

    plan: Plan
    plan_bytes: bytes
    folder: Path
    recipe: Recipe
    files: Mapping[str, bytes]
    """The recipe's own code, by its name relative to `folder`."""
    code: bytes
    """The same as one tar."""
    code_sha256: str
    source: Source
    glance: Glance
    """What was seen of the rows as they were read."""
    tables: Mapping[Role, pa.Table]
    policy: Policy
    data_sha256: str
    rows: Mapping[str, int]
    lock: Lock
    outside: Mapping[str, str]
    """The code that the recipe imports and that is neither its own nor installed, as facts."""
    roster: Roster | None = None
    """The examples that every checkpoint is scored on; None without `[qc]`."""
    suite: Suite | None = None
    """What every checkpoint is asked; None without `[qc]`."""

    @property
    def lock_sha256(self) -> str:
        return sha256(self.lock.to_bytes())


def prepare(
    plan: Plan,
    plan_bytes: bytes,
    folder: Path,
    *,
    kept: Membership | None = None,
    base: LockedBase | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Prepared:
    """Open the recipe beside the plan, check its params and what is searched, divide the data, and compute the lock.

    `kept` are the members that the experiment already has. Under the same policy they stay, whatever the data look
    like today: the difference is found, member by member, when an attempt starts. `files` are those of code that is
    frozen already, and stays as it is.

    Raises:
        PlanError: the recipe, its params, its data or the splits are not usable.
        UnsafeNameError: a name could leave the store.
    """
    recipe = load_recipe(plan.recipe, folder)
    params: Any = check_params(recipe, plan.run.params)
    check_settings(recipe, plan)
    check_fields(recipe, plan.qc.fields if plan.qc is not None else {})
    glance = Glance()
    with asking("recipe.dataset"):
        source = describe_dataset(open_dataset(recipe, params, plan), glance)
    require_together(glance, source.table["id"], getattr(recipe, "collate", None), plan.run.micro_batch)
    if plan.splits is None:
        raise PlanError(
            "the plan has no splits", field="splits", rule="a table: group, and the share of each role"
        )
    chosen = policy(plan.splits.shares(), plan.splits.group, SPLIT_SEED)
    if kept is not None and kept.manifest.policy == chosen:
        tables, data_sha256 = kept.tables, kept.digest
    else:
        tables = divide(source, chosen)
        data_sha256 = split_files(tables, chosen).digest
    files = own_files(plan.recipe, folder) if files is None else files
    outside = code_outside(folder, files, loaded_for(folder))
    code = frozen.pack(files)
    rows = {str(role): table.num_rows for role, table in tables.items()}
    roster = None if plan.qc is None else _roster(plan.qc, tables, data_sha256)
    suite = None
    if plan.qc is not None and roster is not None:
        suite = make_suite(plan, plan.qc, roster, code=sha256(code), root=layout.qc(plan.name))
    lock = make_lock(
        plan,
        code=sha256(code),
        data=data_sha256,
        rows=rows,
        base=base,
        suite=None if suite is None else suite.digest,
    )
    return Prepared(
        plan=plan,
        plan_bytes=plan_bytes,
        folder=folder,
        recipe=recipe,
        files=files,
        code=code,
        code_sha256=sha256(code),
        source=source,
        glance=glance,
        tables=tables,
        policy=chosen,
        data_sha256=data_sha256,
        rows=rows,
        lock=lock,
        outside=outside,
        roster=roster,
        suite=suite,
    )


def _roster(qc: Qc, tables: Mapping[Role, pa.Table], data: str) -> Roster:
    """The roster, drawn from the members of its split."""
    require_strata(qc, {role: Counter(table["stratum"].to_pylist()) for role, table in tables.items()})
    table = tables.get(qc.roster.from_)
    columns = () if table is None else (table[name].to_pylist() for name in ("id", "stratum", "sha256"))
    members = (
        RosterUnit(id=id, stratum=stratum, sha256=digest)
        for id, stratum, digest in zip(*columns, strict=True)
    )
    return draw(qc, members, data=data)


def freeze(store: ObjectStore, prepared: Prepared, git: Git) -> str:
    """Write plan, lock, code, environment, members, roster and suite; returns the environment's digest. Safe to repeat.

    `git` is what is known of the revision that the code is from.

    Raises:
        ConflictError: a key holds other bytes.
        UnknownOutcomeError: a reply was lost and could not be read back.
        StoreUnavailableError: the store did not take it.
    """
    name = prepared.plan.name
    frozen.write_code(store, name, prepared.code)
    if store.head(layout.membership(name, prepared.data_sha256, "manifest.json")) is None:
        write(store, name, prepared.tables, prepared.policy)
    environment = frozen.write_environment(store, name, frozen.environment(git))
    if prepared.suite is not None and prepared.roster is not None:
        Examinations(store, name).freeze(prepared.suite, prepared.roster)
    shared = prepared.plan.shared
    if shared is not None:
        store.put_new(layout.plan(name, prepared.lock_sha256, "shared.toml"), shared.data)
    store.put_new(layout.plan(name, prepared.lock_sha256, "plan.toml"), prepared.plan_bytes)
    store.put_new(layout.plan(name, prepared.lock_sha256, "plan.lock"), prepared.lock.to_bytes())
    return environment
