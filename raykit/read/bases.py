"""Weights that a plan can start from: found by name, pinned by their bytes, and what is known of them.

    a registered candidate      the weights of that name
    EXPERIMENT                  its checkpoint that the plan's rule selects; without one its newest that verifies
    EXPERIMENT@UPDATE           that checkpoint
    EXPERIMENT/RUN              of one trial of a search: the same, and with @UPDATE

Nothing is ever taken in place of what was asked for: a checkpoint that does not verify is not passed over for another.
"""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from typing import Literal

from raykit.errors import CorruptError, NotFoundError, UnsafeNameError
from raykit.ids import safe_name
from raykit.plan import TRAINS_FROM, Lock, LockedBase
from raykit.read.dossier.frozen import read_manifest
from raykit.read.money import money_of
from raykit.read.root import Root
from raykit.read.view import RunView
from raykit.records import AdoptedFile, CandidateRole, Commit, FileRef, Manifest, Registered, Unit
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_adopted, read_candidates, read_statements, verify_adopted
from raykit.store.commit import newest_good, verify
from raykit.store.plans import newest_stored_lock

MAX_NAMES = 8
"""How many names an error lists."""


# --- which weights ------------------------------------------------------------------------------------------


def resolve_base(store: ObjectStore, text: str, *, read_data: bool = True) -> LockedBase:
    """The weights that `text` names, pinned by the digest of their manifest, and verified.

    `read_data` reads every byte; without it files are held against their manifest by name and size.

    Raises:
        NotFoundError: there is no such candidate, experiment or checkpoint.
        CorruptError: they do not verify, or a log is damaged.
        InvalidInput: the experiment has several runs.
        StoreUnavailableError: the store did not answer.
    """
    known = read_candidates(store)
    named = next((found for found in known if found.candidate == text), None)
    if named is not None:
        return _of_candidate(store, named, text, read_data=read_data)
    name, at, update = text.partition("@")
    root = Root(store, time.time)
    view = _run_of(root, name, known)
    if not at:
        commit = _best(root, view, read_data=read_data)
    else:
        commit = _at_update(view, update)
        verify(store, commit, read_data=read_data)
    return locked_commit(text, view.experiment, commit)


def _of_candidate(store: ObjectStore, named: Registered, text: str, *, read_data: bool) -> LockedBase:
    attempt = 0
    if named.origin == "adopted":
        verify_adopted(store, named.manifest, read_data=read_data)
    else:
        commit = _commit_of(Root(store, time.time), named.experiment, named.manifest, named.candidate)
        verify(store, commit, read_data=read_data)
        attempt = commit.attempt
    return LockedBase(
        candidate=text,
        origin=named.origin,
        experiment=named.experiment or named.candidate,
        update=named.update,
        attempt=attempt,
        manifest=named.manifest,
        key=named.key,
    )


def _run_of(root: Root, name: str, known: tuple[Registered, ...]) -> RunView:
    """The one run of an experiment.

    Raises:
        NotFoundError: there is no such experiment; the names that come close are given.
    """
    try:
        view = root.run("/".join(map(safe_name, name.split("/", 1))))
    except (NotFoundError, UnsafeNameError):
        raise _unknown(root, name, known) from None
    if not any(item.counts for item in view.commits):
        raise NotFoundError(
            f"{view.experiment} has no checkpoint yet",
            field="base.candidate",
            value=name,
            remedy="raykit status",
        )
    return view


def _unknown(root: Root, name: str, known: tuple[Registered, ...]) -> NotFoundError:
    candidates = [found.candidate for found in known]
    names = [*candidates, *(each for each in root.experiments() if each not in candidates)]
    close = difflib.get_close_matches(name, names, n=3)
    there = close or names[:MAX_NAMES]
    more = f" and {len(names) - MAX_NAMES} more" if not close and len(names) > MAX_NAMES else ""
    return NotFoundError(
        f"there is no candidate or experiment {name!r} in {root.store.url}",
        field="base.candidate",
        value=name,
        rule=(
            f"a registered candidate, an experiment, or EXPERIMENT@UPDATE; "
            f"{'close' if close else 'there is'}: {', '.join(there) or 'nothing yet'}{more}"
        ),
        remedy="raykit ls" if names else "raykit adopt SOURCE --as NAME --rows N --updates N --by PERSON",
    )


def _best(root: Root, view: RunView, *, read_data: bool) -> Commit:
    """The selected checkpoint, as `raykit show` marks it; without one, the newest that verifies."""
    selected = root.selected(view)
    if selected is not None:
        verify(root.store, selected, read_data=read_data)
        return selected
    good = newest_good(root.store, _counting(view))
    assert good is not None  # there is a commit, and none that verifies raises
    return good.commit


def _at_update(view: RunView, update: str) -> Commit:
    commits = _counting(view)
    wanted = [commit for commit in commits if str(commit.update) == update]
    if wanted:
        return wanted[-1]
    there = [str(commit.update) for commit in commits]
    shown = there if len(there) <= MAX_NAMES else [*there[:3], "...", *there[-3:]]
    raise NotFoundError(
        f"{view.experiment} has no checkpoint at update {update!r}",
        field="base.candidate",
        value=f"{view.experiment}@{update}",
        rule=f"one of {', '.join(shown)}",
        remedy=f"raykit checkpoints list {view.experiment}",
    )


def _counting(view: RunView) -> list[Commit]:
    return [item.commit for item in view.commits if item.counts]


def locked_commit(text: str, experiment: str, commit: Commit) -> LockedBase:
    """A checkpoint of a run, pinned by its bytes; `text` is what it is called."""
    return LockedBase(
        candidate=text,
        origin="run",
        experiment=experiment,
        update=commit.update,
        attempt=commit.attempt,
        manifest=commit.sha256,
        key=commit.key,
    )


def _commit_of(root: Root, experiment: str | None, manifest: str, what: str) -> Commit:
    """The commit that made these weights, whether or not its run has gone on from an earlier one since.

    Raises:
        CorruptError: no run of the experiment has such a commit.
    """
    for view in root.runs() if experiment is None else _runs(root, experiment):
        for item in view.commits:
            if item.commit.sha256 == manifest:
                return item.commit
    raise CorruptError(
        f"{what} is registered as a checkpoint of {experiment}, which has none with these bytes",
        field="base.candidate",
        value=what,
        rule="I1",
    )


def _runs(root: Root, experiment: str) -> list[RunView]:
    try:
        return root.runs(experiment)
    except NotFoundError:
        return []


# --- what is known of them ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFacts:
    """What the store knows of some weights, or what people have said of them. None stands for: nobody knows."""

    base: LockedBase
    names: tuple[str, ...]
    """The candidates that stand for these very weights."""
    role: CandidateRole
    """As registered; a checkpoint that nobody has registered is one of a search for the best update."""
    registered: bool
    verifies: bool
    broken: str | None
    """Why it does not verify."""
    history: Literal["kept", "absent"]
    said_by: str | None
    """The person whose word the figures are; None where they were measured here."""
    source: str | None
    """Where adopted weights came from."""
    updates: int | None
    """Updates of its own run that are trained into it."""
    from_base: LockedBase | None
    """What its own run had started from."""
    rows: int | None
    accelerators: int
    accelerator_ms: int | None
    cost: int | None
    """Micro-units of `unit` that its experiment has come to, the updates after it included."""
    unit: Unit
    size_bytes: int | None
    has_optimizer: bool
    dependents: tuple[str, ...]
    """Experiments whose newest plan trains on from these very weights."""
    unread: tuple[str, ...]
    """Experiments whose plans could not be read, and which may depend on it, too."""


def base_facts(store: ObjectStore, locked: LockedBase, *, read_data: bool = False) -> BaseFacts:
    """What is known of the weights of `locked`. What does not verify is told, not raised.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    root = Root(store, time.time)
    registered = [each for each in read_candidates(store) if each.manifest == locked.manifest]
    names = tuple(each.candidate for each in registered)
    dependents, unread = _dependents(root, locked.manifest)
    about = next((each for each in registered if each.candidate == locked.candidate), None)
    about = about or next(iter(registered), None)
    if locked.origin == "adopted":
        return _adopted_facts(store, locked, about, names, dependents, unread, read_data=read_data)
    return _run_facts(root, locked, about, names, dependents, unread, read_data=read_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A registered candidate: all that was said of it, what of that is so, and its files."""

    statements: tuple[tuple[float, Registered], ...]
    """When each was said; the last counts."""
    facts: BaseFacts
    files: tuple[AdoptedFile | FileRef, ...] | None
    """None if they cannot be read."""

    @property
    def said(self) -> Registered:
        """What counts of it."""
        return self.statements[-1][1]


def known_candidate(store: ObjectStore, name: str) -> Known | None:
    """What is known of the candidate of this name; None if there is none.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    statements = tuple((at, said) for at, said in read_statements(store) if said.candidate == name)
    if not statements:
        return None
    said = statements[-1][1]
    locked = LockedBase(
        candidate=name,
        origin=said.origin,
        experiment=said.experiment or name,
        update=said.update,
        attempt=0,  # of no use here, and not known before the run is read
        manifest=said.manifest,
        key=said.key,
    )
    return Known(statements=statements, facts=base_facts(store, locked), files=_files(store, said))


def _files(store: ObjectStore, said: Registered) -> tuple[AdoptedFile | FileRef, ...] | None:
    if said.origin == "run":
        manifest = read_manifest(store, said.key, said.manifest)
        return None if manifest is None else manifest.files
    try:
        return read_adopted(store, said.manifest).files
    except CorruptError:
        return None


def _adopted_facts(
    store: ObjectStore,
    locked: LockedBase,
    about: Registered | None,
    names: tuple[str, ...],
    dependents: tuple[str, ...],
    unread: tuple[str, ...],
    *,
    read_data: bool,
) -> BaseFacts:
    size_bytes, broken = None, None
    try:
        manifest = verify_adopted(store, locked.manifest, read_data=read_data)
        size_bytes = sum(file.size_bytes for file in manifest.files)
    except CorruptError as error:
        broken = error.message
    return BaseFacts(
        base=locked,
        names=names,
        role="base" if about is None else about.role,
        registered=about is not None,
        verifies=broken is None,
        broken=broken,
        history="absent",
        said_by=None if about is None else about.person,
        source=None if about is None else about.source,
        updates=(about.update or None) if about is not None else None,
        from_base=None,
        rows=None if about is None else about.rows,
        accelerators=1,
        accelerator_ms=None if about is None else about.accelerator_ms,
        cost=None if about is None else about.cost,
        unit="usd",
        size_bytes=size_bytes,
        has_optimizer=False,
        dependents=dependents,
        unread=unread,
    )


def _run_facts(
    root: Root,
    locked: LockedBase,
    about: Registered | None,
    names: tuple[str, ...],
    dependents: tuple[str, ...],
    unread: tuple[str, ...],
    *,
    read_data: bool,
) -> BaseFacts:
    commit, manifest, broken = None, None, None
    try:
        commit = _commit_of(root, locked.experiment, locked.manifest, locked.candidate)
        manifest = verify(root.store, commit, read_data=read_data)
    except CorruptError as error:
        broken = error.message
    lock = _lock_of(root, locked)
    cost, unit = _cost(root.store, locked.experiment)
    return BaseFacts(
        base=locked,
        names=names,
        role="search-checkpoint" if about is None else about.role,
        registered=about is not None,
        verifies=broken is None,
        broken=broken,
        history="kept",
        said_by=None,
        source=None,
        updates=locked.update,
        from_base=None if lock is None else trained_from(lock),
        rows=None if lock is None else lock.rows.get("train"),
        accelerators=1 if manifest is None else manifest.world_size,
        accelerator_ms=_accelerator_ms(commit),
        cost=cost,
        unit=unit,
        size_bytes=None if commit is None else commit.size_bytes,
        has_optimizer=_has_optimizer(manifest),
        dependents=dependents,
        unread=unread,
    )


def _accelerator_ms(commit: Commit | None) -> int | None:
    return None if commit is None or commit.accelerator_s is None else round(commit.accelerator_s * 1000)


def _has_optimizer(manifest: Manifest | None) -> bool:
    return manifest is not None and any(file.holds == "optimizer" for file in manifest.files)


def _cost(store: ObjectStore, experiment: str) -> tuple[int | None, Unit]:
    try:
        money = money_of(store, experiment, time.time())
    except (CorruptError, NotFoundError):
        return None, "usd"
    return (None, "usd") if money is None else (money.actual, money.unit)


def _lock_of(root: Root, locked: LockedBase) -> Lock | None:
    """The lock of the run that made a checkpoint; None if it cannot be read."""
    for view in _runs(root, locked.experiment):
        if any(item.commit.sha256 == locked.manifest for item in view.commits):
            return view.lock
    return None


def trained_from(lock: Lock) -> LockedBase | None:
    """The weights that runs of this lock train on from; None if they start from scratch, or train nothing."""
    base = lock.settings.get("base")
    start = base.get("start") if isinstance(base, dict) else None
    return lock.base if start in TRAINS_FROM else None


def dependents_of(store: ObjectStore, manifest: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The experiments whose newest plan trains on from these weights, and those of which nobody can tell.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return _dependents(Root(store, time.time), manifest)


def _dependents(root: Root, manifest: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    dependents, unread = [], []
    for name in root.experiments():
        try:
            lock = newest_stored_lock(root.store, name)
        except (CorruptError, NotFoundError):
            unread.append(name)
            continue
        base = None if lock is None else trained_from(lock)
        if base is not None and base.manifest == manifest:
            dependents.append(name)
    return tuple(dependents), tuple(unread)
