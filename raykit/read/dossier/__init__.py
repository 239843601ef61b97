"""The ledger of an experiment, from its store alone: source to comparison, each step with its digests.

    dossier = dossier_of(raykit.open("./store"), "digits-vae")
    dossier.active.answer, dossier.frozen.lock, dossier.jobs, dossier.plain()

Reads only. Whatever ran is there, however it ended; what cannot be known is in `unknown`, and what a listing does
not show is never taken for proof that it is not there.

`frozen` is what it was made of, `sources` where the rows are from, `jobs` what ran, `judgement` what people said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from raykit.errors import CorruptError, NotFoundError
from raykit.plan import Judged
from raykit.read.dossier.frozen import Freezer, Frozen, Input
from raykit.read.dossier.jobs import (
    Active,
    Charge,
    Checkpoint,
    Gate,
    Gone,
    Job,
    active_of,
    charges_of,
    checkpoints_of,
    gates_of,
    jobs_of,
    superseded_of,
)
from raykit.read.dossier.judgement import (
    Act,
    Diagnosed,
    Learned,
    Said,
    acts_of,
    diagnosed_of,
    learned_of,
    registered_of,
)
from raykit.read.dossier.outlay import Outlay, outlay_of
from raykit.read.dossier.revisions import Revision
from raykit.read.dossier.sources import SourceRows, sources_of
from raykit.read.money import Ledgers, Money
from raykit.read.root import Root
from raykit.read.view import MAIN, RunView, row_end_of
from raykit.reconcile import RunState
from raykit.records import CandidatesEntry, Commit, End, ExperimentEntry, Record, RunEntry
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.folders import folders
from raykit.store.ledger import Ledger
from raykit.store.log import Log, RunLog
from raykit.store.place import alive

if TYPE_CHECKING:
    from raykit.read.search import SearchRead

NO_COMPARISON = "none yet: nothing has been compared, and no conclusion here is a comparison"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """Everything that the store holds about one experiment."""

    experiment: str
    store: str
    view: RunView | None
    """Its run as people look at it; None if there is none."""
    active: Active
    sources: tuple[SourceRows, ...]
    frozen: Frozen
    base: Input | None
    """The manifest of the weights that it starts from, and whether the store has it."""
    candidates: tuple[Said, ...]
    """Registered weights that it made, and those that it starts from."""
    jobs: tuple[Job, ...]
    charges: tuple[Charge, ...]
    gates: tuple[Gate, ...]
    superseded: tuple[Gone, ...]
    checkpoints: tuple[Checkpoint, ...]
    diagnosed: Diagnosed | None
    learned: Learned
    acts: tuple[Act, ...]
    damaged: tuple[str, ...]
    """What could not be read, in words."""
    money: Money | None = None
    """What it was projected to cost, has cost and is going to cost."""

    @property
    def outlay(self) -> Outlay | None:
        """What was projected when it was planned, beside what it came to; None if it has no budget here."""
        return None if self.money is None else outlay_of(self.money, self.frozen.lock)

    @property
    def of_search(self) -> bool:
        """Whether its runs are the trials of a search."""
        return any(job.run != MAIN for job in self.jobs)

    @property
    def judged(self) -> Judged | None:
        """What the review of its newest plan saw and came to."""
        return self.frozen.lock.judged if self.frozen.lock is not None else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """What this store cannot say. That it is not here does not show that it is nowhere."""
        return (*self.damaged, *_unknown(self), f"runs outside {self.store}: they were not looked at")

    def plain(self) -> dict[str, Any]:
        """All of it as JSON values."""
        money, judged = self.money, self.judged
        own = {
            each.name: _plain(getattr(self, each.name))
            for each in fields(self)
            if each.name not in ("view", "damaged", "money")
        }
        return {
            **own,
            "comparison": {"made": False, "says": NO_COMPARISON, "arms": _arms(self)},
            "money": None if money is None else money.plain(),
            "outlay": _plain(self.outlay),
            "review": None if judged is None else {**judged.plain(), "scope": judged.looked.words},
            "unknown": list(self.unknown),
        }


def dossier_of(root: Root, name: str) -> Dossier:
    """The ledger of an experiment, by its name or that of its run.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such experiment.
        InvalidInput: the experiment has several runs.
        CorruptError: the log of its run, or its history, cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    return _Reader(root, name).read()


class _RunLogged(NamedTuple):
    """The log of one run."""

    run: str
    entries: list[RunEntry]
    state: RunState


class _Reader:
    """Gathers one dossier; a part that is damaged is named, and hides no other."""

    def __init__(self, root: Root, name: str) -> None:
        self._root = root
        self._store: ObjectStore = root.store
        self._damaged: list[str] = []
        self._experiment, self._run = self._resolve(name)
        self._is_search = self._run is None and root.has_search(self._experiment)

    def read(self) -> Dossier:
        view = self._root.run(f"{self._experiment}/{self._run}") if self._run is not None else None
        logs = self._run_logs()
        search = self._root.search(self._experiment) if self._is_search else None
        money = search.money if search is not None else None if view is None else view.money
        selected = self._selected(view)
        own = self._entries(layout.experiment_log(self._experiment), ExperimentEntry, "its own log")
        registry = self._entries(layout.candidates_log(), CandidatesEntry, "the registry of candidates")
        ledger = self._ledger()
        freezer = Freezer(self._store, self._experiment)
        frozen, learned = freezer.read(own), learned_of(own)
        ends = self._row_ends(search)
        jobs = tuple(job for log in logs for job in jobs_of(log.run, log.entries, ends.get(log.run)))
        base = frozen.base
        manifest = base.manifest if base is not None else None
        return Dossier(
            experiment=self._experiment,
            store=self._store.url,
            view=view,
            active=_active(logs, self._root.now(), view, search),
            sources=tuple(sources_of(frozen, learned)),
            frozen=frozen,
            base=None if base is None else freezer.base_held(base),
            candidates=registered_of(registry, self._experiment, manifest),
            jobs=jobs,
            charges=() if ledger is None else tuple(charges_of(ledger, self._experiment, jobs, ends)),
            gates=tuple(gate for log in logs for gate in gates_of(log.run, log.entries)),
            superseded=tuple(gone for log in logs for gone in superseded_of(log.run, log.entries)),
            checkpoints=tuple(
                checkpoint
                for log in logs
                for checkpoint in checkpoints_of(
                    self._store,
                    log.run,
                    log.entries,
                    log.state,
                    selected if search is None else _scored(search, log),
                )
            ),
            diagnosed=diagnosed_of(own, frozen.lock),
            learned=learned,
            acts=acts_of(
                own,
                ledger.entries if ledger is not None else (),
                money,
                self._experiment,
            ),
            damaged=tuple(self._damaged),
            money=money,
        )

    def _resolve(self, name: str) -> tuple[str, str | None]:
        if "/" not in name and self._root.has_search(name):
            return name, None  # its runs are trials: all of them
        try:
            return self._root.resolve(name)
        except NotFoundError:
            if "/" in name or name not in self._root.experiments():
                raise
            return name, None  # planned or judged, and never launched

    def _run_logs(self) -> list[_RunLogged]:
        """The log of its run; of a search, those of all its trials; empty if nothing was launched."""
        names: list[str] = [] if self._run is None else [self._run]
        if self._is_search:
            names = list(folders(self._store, layout.runs(self._experiment)))
        found = []
        for name in names:
            log = RunLog(self._store, self._experiment, name, by="reader")
            log.refresh()
            found.append(_RunLogged(name, log.entries, log.state))
        return found

    def _row_ends(self, search: SearchRead | None) -> Mapping[str, End]:
        """By run: how its search has ended the row of a trial, of the other trials too."""
        try:
            if search is None and self._run != MAIN and self._root.has_search(self._experiment):
                search = self._root.search(self._experiment)
        except CorruptError as error:
            self._damaged.append(f"its search: {error.message}")
        found = {} if search is None else {row.run: row_end_of(row.status) for row in search.rows}
        return {run: end for run, end in found.items() if end is not None}

    def _entries(self, key: str, entry: type[Any], what: str) -> list[Any]:
        log: Log[Any] = Log(self._store, key, entry, by="reader")
        try:
            return log.refresh()
        except CorruptError as error:
            self._damaged.append(f"{what}: {error.message}")
            return []

    def _ledger(self) -> Ledger | None:
        try:
            return Ledgers(self._store).of(self._experiment)
        except CorruptError as error:
            self._damaged.append(f"its account: {error.message}")
            return None

    def _selected(self, view: RunView | None) -> Commit | None:
        try:
            return None if view is None else self._root.selected(view)
        except CorruptError as error:
            self._damaged.append(f"which checkpoint is selected: {error.message}")
            return None


def _scored(search: SearchRead, log: _RunLogged) -> Commit | None:
    """The checkpoint that the value of a row is from."""
    digest = next((row.checkpoint for row in search.rows if row.run == log.run), None)
    return next((commit for commit in log.state.commits if commit.sha256 == digest), None)


def _active(
    logs: Sequence[_RunLogged], now: float, view: RunView | None, search: SearchRead | None
) -> Active:
    """What of it is at work: of several runs the first that is, or else the first of which nobody can tell."""
    if view is not None and view.row is not None and view.over:
        why = f"row {view.row} of its search has ended: {view.state}"
        return Active(answer="nothing", launch=None, place=None, why=why)
    states = {log.run: log.state for log in logs} or {MAIN: RunState()}
    found = [(run, active_of(state, alive=_alive(state), now=now)) for run, state in states.items()]
    order = ("at work", "unknown", "nothing")
    run, active = min(found, key=lambda each: order.index(each[1].answer))
    if search is None:
        return active
    if active.answer == "nothing":
        why = f"no row is at work, and the search is {search.state}"
        return Active(answer="nothing", launch=None, place=None, why=why)
    return replace(active, why=f"{run}: {active.why}")


def _alive(state: RunState) -> bool | None:
    return None if state.launched is None or state.released is not None else alive(state.launched.place)


# --- what is not known --------------------------------------------------------------------------------------


def _unknown(dossier: Dossier) -> Iterator[str]:
    frozen = dossier.frozen
    yield from _unknown_inputs(frozen)
    if dossier.base is not None and dossier.base.held != "verified":
        yield f"the weights that it starts from: {dossier.base.key} is {dossier.base.held}"
    elif frozen.base is not None and frozen.base.origin == "adopted":
        yield f"how {frozen.base.candidate} was trained: it was adopted, and its history is absent"
    if frozen.newest is not None and dossier.judged is None:
        yield "what was reviewed before it was launched: its lock keeps no review"
    for source in dossier.sources:
        if source.digest is None:
            yield f"the checksum of {source.source}"
    for lease in () if dossier.money is None else dossier.money.unknown:
        until = "whoever goes on settles it" if lease.settled_by else "somebody knows"
        yield f"what became of lease {lease.lease}: it stays charged in full until {until}"
    if dossier.active.answer == "unknown":
        yield f"whether it is at work: {dossier.active.why}"
    if dossier.jobs and not dossier.charges:
        yield "what its attempts cost: no lease of theirs is in a ledger here"


def _unknown_inputs(frozen: Frozen) -> Iterator[str]:
    if not frozen.revisions:
        yield "its plan: nothing is locked here"
    for item in frozen.inputs:
        if item.held in ("missing", "changed"):
            yield f"{item.what}: {item.key} is {item.held}"
    for revision in frozen.revisions:
        if revision.kind == "unknown":
            yield f"what had been seen when lock {revision.locked.plan[:8]} was made"
    for members in frozen.members:
        if members.policy is None:
            yield f"how split {members.digest[:8]} was divided"
    for code in frozen.code:
        if code.files is None:
            yield f"the files of code {code.digest[:8]}"


def _arms(dossier: Dossier) -> list[str]:
    """The arms that the plan binds for the comparison to come."""
    lock = dossier.frozen.lock
    table = lock.settings.get("comparison") if lock is not None else None
    arms = table.get("arms") if isinstance(table, Mapping) else None
    return sorted(arms) if isinstance(arms, Mapping) else []


# --- as JSON ------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


__all__ = [
    "NO_COMPARISON",
    "Act",
    "Active",
    "Charge",
    "Checkpoint",
    "Dossier",
    "Frozen",
    "Gate",
    "Job",
    "Outlay",
    "Revision",
    "Said",
    "SourceRows",
    "dossier_of",
]
