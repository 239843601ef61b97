"""Everything that the page of one experiment shows, gathered from the store alone.

    page = page_of(raykit.open("./store"), "digits-vae")

Whatever is damaged is named in `damaged`, and hides nothing else: a store that is half there still has a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from raykit.candidates import Registry, read_registry
from raykit.errors import CorruptError, NotFoundError
from raykit.plan import Lock
from raykit.qc.backlog import Standing
from raykit.read.dossier import Dossier, Said, dossier_of
from raykit.read.generation import read_sets
from raykit.read.money import Money
from raykit.read.qc import QcRead
from raykit.read.root import Root
from raykit.read.search import SearchRead
from raykit.read.seen import selection
from raykit.read.setview import SetRead
from raykit.read.view import RunView
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    CanaryPassed,
    CandidatesEntry,
    Contracted,
    EvaluationRow,
    ExperimentEntry,
    GateResult,
    Generated,
    Pinned,
    Retried,
    Reviewed,
    Roster,
    Row,
    RunEntry,
    Suite,
)
from raykit.store import layout
from raykit.store.log import Log, RunLog
from raykit.store.qc import Examinations

T = TypeVar("T")

Lane = Literal["gates", "train", "trials", "pause", "qc", "generate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time."""

    lane: Lane
    start: float
    end: float | None
    """None while it goes on, or where nobody has said when it ended."""
    what: str
    outcome: Literal["done", "failed", "open"]
    held_s: float | None = None
    """How much of it somebody was at work, where that is not all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where an attempt took over."""

    after: int
    """The update that it went on from."""
    attempt: int
    why: str
    """How the one before it had ended."""
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """The rows of a run as lines. Undefined is None."""

    updates: tuple[int, ...] = ()
    ratios: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """By term that has a scale."""
    unscaled: tuple[str, ...] = ()
    """Terms that have none."""
    development: tuple[EvaluationRow, ...] = ()
    decay: float | None = None
    """The declared smoothing."""
    resumed: tuple[Resumed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One experiment, whole."""

    experiment: str
    run: str | None
    """None if nothing was launched."""
    store: str
    made_at: float
    view: RunView | None
    dossier: Dossier | None
    """None if it cannot be read."""
    qc: QcRead | None
    """None if the plan has no `[qc]`, or it cannot be read."""
    roster: Roster | None
    sets: tuple[SetRead, ...]
    """The synthetic sets of its plan, and all that have a contract."""
    registry: Registry
    learning: Learning
    spans: tuple[Span, ...]
    reviews: tuple[Said, ...]
    """What people have said of receipts, requests and checkpoints, oldest first."""
    damaged: tuple[str, ...]
    """What could not be read, in words."""
    search: SearchRead | None = None
    """Its table of trials, where it is a search."""

    @property
    def money(self) -> Money | None:
        """What it may cost, has cost and is going to cost."""
        if self.search is not None:
            return self.search.money
        return None if self.view is None else self.view.money

    @property
    def lock(self) -> Lock | None:
        """The lock that it runs, or else the newest one."""
        if self.view is not None and self.view.lock is not None:
            return self.view.lock
        return self.dossier.frozen.lock if self.dossier is not None else None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The plan with every default; empty where no lock can be read."""
        return self.lock.settings if self.lock is not None else {}

    @property
    def standings(self) -> Sequence[Standing]:
        """Every checkpoint that has to be examined."""
        return self.qc.backlog.standings if self.qc is not None else ()

    def scores(self) -> dict[int, float | None]:
        """By update: what the plan selects by, on the development split."""
        chosen = selection(self.lock)
        if chosen is None:
            return {}
        return {row.update: row.metrics.get(chosen[1]) for row in self.learning.development}

    def plain(self) -> dict[str, Any]:
        """What the page is made from, as JSON values; rows are counted and not repeated."""
        return {
            "experiment": self.experiment,
            "store": self.store,
            "run": self.view and self.view.plain(),
            "qc": self.qc and self.qc.plain(),
            "search": self.search and self.search.plain(),
            "sets": [each.plain() for each in self.sets],
            "ledger": self.dossier and self.dossier.plain(),
            "updates": len(self.learning.updates),
            "evaluations": len(self.learning.development),
            "damaged": list(self.damaged),
        }


def page_of(root: Root, name: str) -> Page:
    """Everything about an experiment, by its name or that of its run.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such experiment.
        InvalidInput: the experiment has several runs.
        StoreUnavailableError: the store did not answer.
    """
    return _Gatherer(root, name).gather()


class _Gatherer:
    """Reads one part after the other; what cannot be read is noted."""

    def __init__(self, root: Root, name: str) -> None:
        self._root = root
        self._store = root.store
        self._damaged: list[str] = []
        self._experiment, self._run = self._resolve(name)

    def gather(self) -> Page:
        run, name = self._run, self._experiment
        view = self._try("the run", lambda: self._root.run(f"{name}/{run}")) if run is not None else None
        if view is None and run is not None:
            view = self._corrupt(run)
        dossier = self._try("the ledger of the experiment", lambda: dossier_of(self._root, name))
        entries = self._run_entries()
        said = self._log(layout.experiment_log(name), ExperimentEntry, "its own log")
        qc = view.qc if view is not None else None
        search = self._search() if run is None else None
        if view is not None and view.health == "corrupt" and view.figures.health_detail is not None:
            self._damaged.append(view.figures.health_detail)
        return Page(
            experiment=name,
            run=run,
            store=self._store.url,
            made_at=self._root.now(),
            view=view,
            dossier=dossier,
            qc=qc,
            roster=None if qc is None else self._roster(qc.suite),
            sets=self._sets(view, said),
            registry=read_registry(
                self._log(layout.candidates_log(), CandidatesEntry, "the registry of candidates")
            ),
            learning=self._learning(view, entries),
            search=search,
            spans=(*spans_of(entries, view, qc), *trial_spans(search), *sets_spans(said)),
            reviews=tuple(
                Said(at=entry.at, event=event)
                for entry in said
                for event in entry.events
                if isinstance(event, Reviewed | Retried | Pinned)
            ),
            damaged=tuple(dict.fromkeys(self._damaged)),
        )

    def _resolve(self, name: str) -> tuple[str, str | None]:
        if "/" not in name and self._root.has_search(name):
            return name, None  # its runs are trials: the table has all of them
        try:
            return self._root.resolve(name)
        except NotFoundError:
            if "/" in name or name not in self._root.experiments():
                raise
            return name, None  # planned or judged, and never launched

    def _search(self) -> SearchRead | None:
        name = self._experiment
        if not self._root.has_search(name):
            return None
        return self._try("the search", lambda: self._root.search(name))

    def _try(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (CorruptError, NotFoundError) as error:
            self._damaged.append(f"{what}: {error.message}")
            return None

    def _corrupt(self, run: str) -> RunView:
        """The run as something that is there and cannot be read."""
        return next(view for view in self._root.runs(self._experiment) if view.run == run)

    def _log(self, key: str, entry: type[Any], what: str) -> list[Any]:
        log: Log[Any] = Log(self._store, key, entry, by="reader")
        return self._try(what, log.refresh) or []

    def _run_entries(self) -> list[RunEntry]:
        if self._run is None:
            return []
        log = RunLog(self._store, self._experiment, self._run, by="reader")
        return self._try("the log of the run", log.refresh) or []

    def _roster(self, suite: Suite) -> Roster | None:
        examinations = Examinations(self._store, self._experiment)
        return self._try("the roster", lambda: examinations.roster(suite.roster))

    def _sets(self, view: RunView | None, said: Sequence[ExperimentEntry]) -> tuple[SetRead, ...]:
        """The synthetic sets, whole."""
        contracted = any(isinstance(event, Contracted) for entry in said for event in entry.events)
        if not contracted and (view is None or not view.sets):
            return ()
        now = self._root.now()
        found = self._try("the synthetic sets", lambda: read_sets(self._store, self._experiment, now=now))
        return found or ()

    # --- rows -----------------------------------------------------------------------------------------------

    def _learning(self, view: RunView | None, entries: Sequence[RunEntry]) -> Learning:
        if view is None or view.state == "corrupt":
            return Learning()
        rows = list(self._rows(lambda: self._root.history(view).rows()))
        development = self._rows(lambda: self._root.history(view, "development").rows())
        ratios, unscaled = _ratios(rows)
        return Learning(
            updates=tuple(row.update for row in rows),
            ratios=ratios,
            unscaled=unscaled,
            development=tuple(development),
            decay=_decay(view.lock),
            resumed=tuple(resumed_of(entries)),
        )

    def _rows(self, read: Callable[[], Iterator[T]]) -> Iterator[T]:
        """The rows as far as they can be read."""
        try:
            yield from read()
        except (CorruptError, NotFoundError) as error:
            self._damaged.append(f"the history: {error.message}")


def _ratios(rows: Sequence[Row]) -> tuple[dict[str, tuple[float | None, ...]], tuple[str, ...]]:
    terms = dict.fromkeys(name for row in rows for name in row.terms)
    scaled = [
        name
        for name in terms
        if any(
            (term := row.terms.get(name)) is not None
            and (term.target_ms is not None or term.reference is not None)
            for row in rows
        )
    ]

    def ratio(row: Row, name: str) -> float | None:
        return row.terms[name].ratio if name in row.terms else None

    ratios = {name: tuple(ratio(row, name) for row in rows) for name in scaled}
    return ratios, tuple(name for name in terms if name not in ratios)


def _decay(lock: Lock | None) -> float | None:
    run = lock.settings.get("run") if lock is not None else None
    curves = run.get("curves") if isinstance(run, Mapping) else None
    words = str(curves.get("smooth", "")).split() if isinstance(curves, Mapping) else []
    return float(words[1]) if len(words) == 2 and words[0] == "ema" else None


# --- what took time -----------------------------------------------------------------------------------------


def resumed_of(entries: Sequence[RunEntry]) -> Iterator[Resumed]:
    """Every attempt but the first: where it took over, and from what."""
    ends: dict[int, AttemptEnded] = {}
    for entry in entries:
        for event in entry.events:
            if isinstance(event, AttemptEnded):
                ends[event.attempt] = event
            elif isinstance(event, AttemptStarted) and event.resume is not None:
                ended = ends.get(event.attempt - 1)
                reason = "no end is known" if ended is None else ended.reason
                yield Resumed(
                    after=event.resume.update,
                    attempt=event.attempt,
                    why=reason,
                    paused=reason == "paused",
                )


def spans_of(entries: Sequence[RunEntry], view: RunView | None, qc: QcRead | None) -> Iterator[Span]:
    """Gates, attempts, pauses and examinations, each with its time."""
    yield from _gates_and_attempts(entries, view)
    for past in view.fleet.pauses if view is not None else ():
        said = f"{past.pause.scope} paused by {past.pause.person}: {past.pause.reason}"
        end = past.resumed_at
        yield Span(lane="pause", start=past.at, end=end, what=said, outcome="open" if end is None else "done")
    for standing in qc.backlog.standings if qc is not None else ():
        yield from _examinations(standing)


def _gates_and_attempts(entries: Sequence[RunEntry], view: RunView | None) -> Iterator[Span]:
    started: dict[int, float] = {}
    for entry in entries:
        for event in entry.events:
            if isinstance(event, GateResult):
                found = f"gate {event.gate} {'passed' if event.passed else 'failed'}: {event.found}"
                outcome: Literal["done", "failed"] = "done" if event.passed else "failed"
                start = entry.at - event.took_s
                yield Span(lane="gates", start=start, end=entry.at, what=found, outcome=outcome)
            elif isinstance(event, AttemptStarted):
                started[event.attempt] = entry.at
            elif isinstance(event, AttemptEnded) and event.attempt in started:
                reason = event.reason if view is None else view.end_word(event)
                what = f"attempt {event.attempt}: {reason} at update {event.update:,}"
                outcome = "failed" if event.reason in ("failed", "killed") else "done"
                start = started.pop(event.attempt)
                yield Span(lane="train", start=start, end=entry.at, what=what, outcome=outcome)
    for attempt, at in started.items():
        yield Span(lane="train", start=at, end=None, what=f"attempt {attempt}", outcome="open")


def trial_spans(search: SearchRead | None) -> Iterator[Span]:
    """The rows of a search, each from its first begin to its end."""
    for row in () if search is None else search.rows:
        if row.begun_at is None:
            continue
        end = "open" if row.ended_at is None else "failed" if row.status == "failed" else "done"
        what = f"row {row.row}: {row.status} at update {row.update:,}"
        yield Span(
            lane="trials",
            start=row.begun_at,
            end=row.ended_at,
            what=what,
            outcome=end,  # type: ignore[arg-type]
            held_s=row.took_s,
        )


def sets_spans(entries: Sequence[ExperimentEntry]) -> Iterator[Span]:
    """Synthetic sets: from the contract to the end of the canary, and from there to the manifest."""
    began: dict[str, tuple[float, str]] = {}
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Contracted):
                began[event.contract] = entry.at, f"canary of {event.name}, contract {event.contract[:8]}"
            elif isinstance(event, CanaryPassed | Generated) and event.contract in began:
                start, what = began.pop(event.contract)
                yield Span(lane="generate", start=start, end=entry.at, what=what, outcome="done")
                if isinstance(event, CanaryPassed):
                    whole = f"the other units of {event.name}, contract {event.contract[:8]}"
                    began[event.contract] = entry.at, whole
    for start, what in began.values():
        yield Span(lane="generate", start=start, end=None, what=what, outcome="open")


def _examinations(standing: Standing) -> Iterator[Span]:
    """Every attempt at one request."""
    said = standing.said
    took = {each.n: each.at for each in said.took}
    failures = {each.n: each for each in said.failures}
    for claim in said.claims:
        what = f"QC of update {standing.update:,}, attempt {claim.n} by {claim.worker}"
        failure = failures.get(claim.n)
        if claim.n in took:
            verdict = f": {standing.receipt.verdict}" if standing.receipt is not None else ""
            yield Span(lane="qc", start=claim.at, end=took[claim.n], what=f"{what}{verdict}", outcome="done")
        elif failure is not None:
            what = f"{what}: {failure.kind}, {failure.message}"
            yield Span(lane="qc", start=claim.at, end=failure.at, what=what, outcome="failed")
        else:
            yield Span(lane="qc", start=claim.at, end=None, what=what, outcome="open")


__all__ = ["Learning", "Page", "Resumed", "Span", "page_of"]
