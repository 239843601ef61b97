"""The store side of a QC pool: what is required, what is open, what was measured, and what became of lost attempts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from raykit.fleet.metrics import Dashboard, QcFacts
from raykit.fleet.pool.desk import Found, Lost, cause_of
from raykit.fleet.qc.task import QC, Maker, QcTask
from raykit.pauses import pause_of
from raykit.qc.backlog import Standing, shared_defect, takable
from raykit.read.qc import QcRead, QcReader, wanted_of
from raykit.read.qc_runs import RunsRead, RunsReader, Whose
from raykit.records import Claim, ExperimentEntry, Measured, Record, Request, Suite, Took
from raykit.steer import Unit
from raykit.store.base import ObjectStore
from raykit.store.people import People, pause
from raykit.work.ending import failure_of
from raykit.work.failing import Cause
from raykit.work.qc_worker import Rules


class QcDesk:
    """What one pool reads and writes. Used by one thread. A `Desk`."""

    def __init__(
        self, store: ObjectStore, experiment: str, whose: Whose, launch: str, *, bench: Maker | None = None
    ) -> None:
        self.read: RunsRead | None = None
        """As of the newest look."""
        self.found: Found | None = None
        """What the pool has to know of it."""
        self._store = store
        self._experiment = experiment
        self._bench = bench
        self._by = f"QC pool of {launch}"
        self._mine = f"qc-{launch}-"
        self._whose = whose
        self._people = People(store, experiment, by=self._by)
        self._reader = RunsReader(store, experiment, whose)
        self._asked: set[str] = set()
        self._entries: dict[str, int] = {}
        """By run: how many entries its log had when it was asked about."""
        self._measured = False
        self._counted: set[tuple[str, int]] = set()

    def look(self) -> None:
        """Read how far everything is, and ask for what nobody has asked for yet.

        Raises:
            CorruptError: a log or a record is damaged.
            UnknownOutcomeError: a reply was lost.
            StoreUnavailableError: the store did not answer.
        """
        self.read = self._reader.look(now=time.time(), acts=self._people.refresh())
        self.found = None if self.read is None else self._found(self.read)
        self._entries = {name: len(each.log.entries) for name, each in self._reader.readers.items()}
        if self.read is not None:
            standings = self.read.standings
            self._asked |= {each.request.id for each in standings if each.said.asked}
            self._ask(each.request for each in standings)

    def _found(self, read: RunsRead) -> Found:
        unit = self.unit
        return Found(
            contract=read.suite.digest,
            looked_at=read.now,
            takable=sum(len(takable(each.backlog)) for each in read.reads),
            open=read.workable,
            most=1 if unit is None else None,  # one alone, until one check is measured
            unit=unit,
            stop=self._stop(read),
            cause=None if read.pause is None else read.pause.pause.cause,
            counts=read.counts(),
            oldest_s=read.oldest_s,
            failed=tuple(each.update for run in read.reads for each in run.backlog.failed),
        )

    def _stop(self, read: RunsRead) -> str | None:
        """Why nobody may go on, as far as people's acts are read."""
        acts = self._people.acts
        if acts.cancelled is not None:
            return acts.cancelled.words
        held = pause_of(acts, self._experiment, QC.role, read.suite.digest)
        return None if held is None else held.words

    def task(self, *, limit_s: float, lease: str) -> QcTask:
        """What a new worker does: it examines under the suite of the newest look."""
        assert self.read is not None
        rules = Rules(tries=self.read.tries, deadline_s=limit_s, lease=lease)
        return QcTask(contract=self.read.suite.digest, rules=rules, whose=self._whose, bench=self._bench)

    def follow(self) -> bool:
        """Ask for what was committed since the last look; whether there was anything, or people have paused it or let
        it go on.

        Raises:
            CorruptError: the log is damaged.
            UnknownOutcomeError: a reply was lost.
            StoreUnavailableError: the store did not answer.
        """
        read = self.read
        if read is None:
            return False
        self._people.refresh()
        if self._reader.follow() or (self.found is not None and self._stop(read) != self.found.stop):
            return True  # a trial has begun, or a pause
        found = [self._follow(reader, read.suite) for reader in self._reader.readers.values()]
        return any(found)

    def _follow(self, reader: QcReader, suite: Suite) -> bool:
        log = reader.log
        log.refresh()
        if len(log.entries) == self._entries.get(reader.run):
            return False
        self._entries[reader.run] = len(log.entries)
        wanted = wanted_of(log.entries, log.state, suite.every)
        return self._ask(
            Request(
                experiment=self._experiment,
                run=reader.run,
                update=each.update,
                checkpoint=each.checkpoint,
                suite=suite.digest,
            )
            for each in wanted
        )

    def _ask(self, requests: Iterable[Request]) -> bool:
        new = [request for request in requests if request.id not in self._asked]
        for request in new:
            self._reader.examinations.ask(request)
            self._asked.add(request.id)
        return bool(new)

    # --- attempts that nobody is at any more ----------------------------------------------------------------

    def bury(self, lost: Mapping[str, Lost], working: Collection[str]) -> tuple[str, ...]:
        """Say of every attempt that came to nothing that it has: of the workers in `lost`, of processes that are gone,
        and of those that are past their time. `working` are this pool's own. What was said, in words.

        Raises:
            UnknownOutcomeError: a reply was lost; say it again.
            StoreUnavailableError: the store did not take it.
        """
        said = []
        for standing in () if self.read is None else self.read.standings:
            claim = _unended(standing)
            if claim is None or claim.worker in working:
                continue
            cause = cause_of(claim, lost)
            if cause is not None and self._fail(claim, cause):
                said.append(f"{self._what(standing)}, attempt {claim.n}: {cause.message}")
        return tuple(said)

    def _what(self, standing: Standing) -> str:
        where = "" if isinstance(self._whose, str) else f"{standing.request.run}, "
        return f"{where}update {standing.update:,}"

    def claimants(self) -> frozenset[str]:
        """Workers that have ever had something in hand."""
        standings = () if self.read is None else self.read.standings
        return frozenset(claim.worker for each in standings for claim in each.said.claims)

    def _fail(self, claim: Claim, cause: Cause) -> bool:
        examinations = self._reader.examinations
        if examinations.receipt(claim.request) is not None:
            return False
        return examinations.fail(failure_of(claim, cause, said_by=self._by, at=time.time()))

    def write(self) -> Iterator[str]:
        """Pause for a defect, and keep what one check takes; a line for people after each.

        Raises:
            CorruptError: a log is damaged.
            UnknownOutcomeError: a reply was lost; say it again.
            StoreUnavailableError: the store did not answer.
        """
        met = self.pause_for_defect()
        if met is not None:
            yield f"QC pauses: two workers have met the same: {met}"
        if self.record_unit() and (unit := self.unit) is not None:
            yield f"QC: one check takes {unit.took_s:.1f} s and {unit.peak_bytes / 1e6:,.0f} MB"

    def pause_for_defect(self) -> str | None:
        """Pause everyone on this suite if two workers have met the same; what was met, if it was said now.

        The worker that met it second says so itself; this is for one that could not any more.

        Raises:
            CorruptError: a log is damaged.
            UnknownOutcomeError: the reply was lost; say it again.
            StoreUnavailableError: the store did not answer.
        """
        read = self.read
        if read is None or read.pause is not None:
            return None
        met = shared_defect([each for each in read.standings if each.open], trials=read.trials)
        if met is None:
            return None
        why = f"{self._what(met)}: {met.counted[-1].message}"
        scope = f"contract:{read.suite.digest}"
        made = pause(self._store, scope, cause="defect", reason=why[:2000], person=self._by, at=time.time())
        return why if made.new else None

    # --- what was measured ----------------------------------------------------------------------------------

    @property
    def unit(self) -> Unit | None:
        """One check as it was measured: the first one of each run, by whoever examined it; of trials, the most."""
        firsts = [took for each in (() if self.read is None else self.read.reads) if (took := _first(each))]
        if not firsts:
            return None
        took_s = max(took.took_ms for took in firsts) / 1000
        return Unit(took_s=took_s, peak_bytes=max(took.peak_bytes for took in firsts))

    def record_unit(self) -> bool:
        """Keep what one check takes, once for each suite; whether it was written now.

        Raises:
            CorruptError: the experiment's log is damaged.
            UnknownOutcomeError: the reply was lost; say it again.
            StoreUnavailableError: the store did not answer.
        """
        read = self.read
        firsts = () if read is None else (each for each in read.standings if each.update == 0)
        took = next((took for each in firsts if (took := _decided(each)) is not None), None)
        if self._measured or read is None or took is None:
            return False
        of = f"suite {read.suite.digest[:12]}"
        measured = Measured(
            what="qc-unit",
            pool="qc",
            time_ms=max(1, took.took_ms),
            memory_bytes={"one check": took.peak_bytes},
            how=f"the check of update 0 by {took.worker}, {of}",
        )
        people = self._people

        def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
            known = (each for each in people.acts.learned if isinstance(each, Measured))
            return (
                [] if any(each.what == "qc-unit" and each.how.endswith(of) for each in known) else [measured]
            )

        written = people.log.append(decide, at=time.time()) is not None
        self._measured = True
        return written

    # --- what the dashboard hears -------------------------------------------------------------------------------

    def publish(self, dashboard: Dashboard, gained: Mapping[str, float], *, fresh: bool) -> None:
        """Say how far the backlog is, if the store has just answered."""
        if self.read is None or not fresh:
            return
        facts = QcFacts(
            experiment=self._experiment,
            counts=self.read.counts(),
            oldest_s=self.read.oldest_s,
            took_s=self.new_units(),
        )
        dashboard.publish(facts)

    def new_units(self) -> list[float]:
        """How long each check of this pool's workers took that was not told before, in seconds."""
        found = []
        for standing in () if self.read is None else self.read.standings:
            for took in standing.said.took:
                if took.worker.startswith(self._mine) and (took.request, took.n) not in self._counted:
                    self._counted.add((took.request, took.n))
                    found.append(took.took_ms / 1000)
        return found


def _unended(standing: Standing) -> Claim | None:
    """The newest attempt at a request without a receipt, if nobody has said what became of it."""
    claim = standing.claim
    if claim is None or standing.receipt is not None:
        return None
    return None if any(failure.n == claim.n for failure in standing.said.failures) else claim


def _first(read: QcRead) -> Took | None:
    """What the first check of a run took that has come to its receipt."""
    found = (_decided(each) for each in read.backlog.standings)
    return next((took for took in found if took is not None), None)


def _decided(standing: Standing) -> Took | None:
    """What the attempt took whose receipt decided."""
    receipt = standing.receipt
    if receipt is None:
        return None
    digest = receipt.digest
    return next((took for took in standing.said.took if took.receipt == digest), None)
