"""A plan where it lies, and the store it runs in: everything a launch reads before it decides anything."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from raykit.data.members import Membership, compare
from raykit.data.members import load as load_members
from raykit.errors import CorruptError, NotFoundError
from raykit.ids import digest_of
from raykit.plan import (
    Lock,
    LockedBase,
    Plan,
    contract,
    plan_with,
    require_supported,
)
from raykit.read.bases import resolve_base
from raykit.read.planfile import read_plan_file
from raykit.records import Difference, Locked, Setting
from raykit.store import layout, open_store
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.plans import newest_lock, newest_stored_lock, read_lock, read_locks, read_plan
from raykit.store.scratch import scratch
from raykit.train import frozen
from raykit.train.find_recipe import recipe_folder
from raykit.train.inputs import Task
from raykit.train.owncode import own_files, scope_of
from raykit.train.params import check_thresholds
from raykit.train.prepare import Prepared, prepare
from raykit.train.revision import Git, git_of

SENT_GIT = "RAYKIT_GIT"
"""Set by the entry of a Ray job: the file in which the client has written what git knew of the code that it sent."""

RUN = "main"
"""The run of a plan that is not a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Code that was frozen before, and what git knew of it then."""

    files: Mapping[str, bytes]
    git: Git


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A plan where it lies, and the store it runs in."""

    root: str
    store: ObjectStore
    plan: Plan
    plan_bytes: bytes
    folder: Path
    """The folder that the recipe's module is in."""
    locked: Lock | None = None
    """The newest lock that the store has of this experiment."""
    base: LockedBase | None = None
    """The weights that the plan starts from or weighs, by their bytes."""
    run: str = RUN
    plan_path: Path | None = None
    """The plan's file, if it is not from the store."""
    stored: Stored | None = None
    """The recipe's code, if it is from the store."""

    @property
    def name(self) -> str:
        return self.plan.name

    def run_log(self, by: str) -> RunLog:
        """The run's log, read to its end.

        Raises:
            CorruptError: the log is damaged.
            StoreUnavailableError: the store did not answer.
        """
        log = RunLog(self.store, self.name, self.run, by=by)
        log.refresh()
        return log

    def of_trial(self, run: str, setting: Setting) -> Site:
        """The same, for one trial of the search: its own run, and its setting laid over the plan."""
        return replace(self, run=run, plan=plan_with(self.plan, setting))


def site_of(plan_path: Path, root: str) -> Site:
    """Read a plan file that is to be launched.

    Raises:
        PlanError: it cannot be read, or its fields are wrong, or it needs what this version does not have.
        NotFoundError: its base is not in the store.
        CorruptError: its base, or what was locked of it, does not match its digests.
        UnusableRootError: the root is not a path or an s3 URL.
        StoreUnavailableError: the store did not answer.
    """
    data, plan = read_plan_file(plan_path)
    require_supported(plan)
    site = replace(place(plan, data, recipe_folder(plan.recipe, plan_path), root), plan_path=plan_path)
    git = _sent_git()
    return site if git is None else replace(site, stored=Stored(files=code_files(site), git=git))


def _sent_git() -> Git | None:
    """What git knew of the code where it was sent from; None unless it came with a Ray job."""
    sent = os.environ.get(SENT_GIT)
    return None if sent is None else Git(**json.loads(Path(sent).read_bytes()))


def place(plan: Plan, data: bytes, folder: Path, root: str) -> Site:
    """A plan in its store, with what the store has of it already.

    Raises:
        NotFoundError: its base is not in the store.
        CorruptError: its base, or what was locked of it, does not match its digests.
        UnusableRootError: the root is not a path or an s3 URL.
        StoreUnavailableError: the store did not answer.
    """
    store = open_store(root)
    locked = newest_stored_lock(store, plan.name)
    return Site(
        root=root,
        store=store,
        plan=plan,
        plan_bytes=data,
        folder=folder,
        locked=locked,
        base=_base(store, plan, locked),
    )


def _base(store: ObjectStore, plan: Plan, locked: Lock | None) -> LockedBase | None:
    """The base that was locked once stays, whatever its name means today."""
    if plan.base is None:
        return None
    if locked is not None and locked.base is not None and locked.base.candidate == plan.base.candidate:
        return locked.base
    return resolve_base(store, plan.base.candidate)


@contextmanager
def stored_site(name: str, root: str) -> Iterator[Site]:
    """The newest locked plan of an experiment with its frozen code, unpacked for the time of the block.

    Raises:
        NotFoundError: no such experiment.
        CorruptError: what was frozen does not match its digests.
    """
    store = open_store(root)
    locks = read_locks(store, name)
    if not locks:
        raise NotFoundError(f"there is no experiment {name} in {store.url}", field="NAME", value=name)
    locked = locks[-1]
    plan = read_plan(store, name, locked.plan)
    lock = read_lock(store, name, locked.plan)
    data = store.get(layout.plan(name, locked.plan, "plan.toml"))
    files = frozen.read_code(store, name, locked.code)
    with scratch("resume") as folder:
        frozen.unpack(files, folder)
        yield Site(
            root=root,
            store=store,
            plan=plan,
            plan_bytes=data,
            folder=folder,
            locked=lock,
            base=lock.base,
            stored=Stored(files=files, git=_git_then(store, name, locks)),
        )


def _git_then(store: ObjectStore, name: str, locks: Sequence[Locked]) -> Git:
    """What git knew of the newest code, when it was locked last from where git was."""
    for locked in reversed(locks):
        if locked.code == locks[-1].code:
            record = frozen.read_environment(store, name, locked.environment)
            if record.git_revision is not None:
                return Git(revision=record.git_revision, dirty=record.git_dirty, diff=record.git_diff)
    return Git()


def code_files(site: Site) -> Mapping[str, bytes]:
    """The recipe's own code, by its name relative to the folder; that of the store stays as it was frozen.

    Raises:
        PlanError: the recipe cannot be imported, or something that may be its code cannot be had.
    """
    return site.stored.files if site.stored is not None else own_files(site.plan.recipe, site.folder)


def git_facts(site: Site, ready: Prepared) -> Git:
    """What git knows of the code and the plan; of stored code, what it knew when that was locked."""
    if site.stored is not None:
        return site.stored.git
    scope = scope_of(site.plan.recipe, ready.files)
    return git_of(site.folder, ready.files, scope=scope, plan=site.plan_path)


def make_ready(site: Site) -> Prepared:
    """Prepare with the members that the experiment already has; a lock that still says the same stays as it was.

    Raises:
        PlanError: the recipe, its params, its data or the splits are not usable.
        CorruptError: what was locked is gone, or does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    ready = prepare(
        site.plan,
        site.plan_bytes,
        site.folder,
        kept=kept_members(site),
        base=site.base,
        files=None if site.stored is None else site.stored.files,
    )
    if site.locked is not None and site.locked.bare == ready.lock:
        return replace(ready, lock=site.locked)
    if site.stored is None:  # what was frozen goes on as it is
        check_thresholds(ready.recipe, site.plan)
    return ready


def kept_members(site: Site) -> Membership | None:
    """The members of the experiment's newest lock.

    Raises:
        CorruptError: they are gone, or do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    locked = newest_lock(site.store, site.name)
    if locked is None:
        return None
    try:
        return load_members(site.store, site.name, locked.data)
    except NotFoundError as error:
        raise CorruptError(f"the members that {site.name} was locked with are gone: {error}") from error


def changed_members(site: Site, ready: Prepared) -> Difference | None:
    """How the data of today differ from the members that are kept, member by member."""
    kept = kept_members(site)
    if kept is None or kept.digest != ready.data_sha256:
        return None
    found = compare(kept, ready.source)
    return (
        None
        if found is None
        else Difference(what="split members", was="as stored", now=str(found), allows="inexact")
    )


def task_of(site: Site, ready: Prepared, launch: str | None = None) -> Task:
    """What the workers of a new launch are told. `launch` is its name, where that was chosen before."""
    return Task(
        root=site.root if "://" in site.root else str(Path(site.root).resolve()),
        experiment=site.name,
        run=site.run,
        launch=launch or secrets.token_hex(6),
        plan=ready.lock_sha256,
        contract=digest_of(contract(site.plan)),
        code=ready.code_sha256,
        data=ready.data_sha256,
        hold_s=site.plan.run.hold_s,
    )
