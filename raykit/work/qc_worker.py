"""One process that examines checkpoints, one after the other: the oldest open request that nobody is at.

    worker = Worker(store, "digits", "main", suite, Rules(tries=3, deadline_s=900), worker="qc-1", examine=examine)
    while (turn := worker.turn()).kind != "nothing":
        ...

All that it knows is in the store, so any number of them may share a backlog, and each may be killed at any instant. To
take a request is to create the claim of its next attempt; what decides is the receipt, which all honest attempts make
with the same bytes. Before each unit it asks whether a pause holds. No Ray and no torch here: what is run is given.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from raykit import defects
from raykit.errors import GateError, Unknown
from raykit.pauses import Acts, pause_of
from raykit.qc.backlog import Said, Standing, Wanted, all_of, required, shared_defect, stand
from raykit.read.qc import commits_of
from raykit.read.qc_runs import Whose, names_of
from raykit.records import Claim, Failure, Receipt, Request, Suite, Took
from raykit.store.attempts import differing
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import People, pause
from raykit.store.place import this_place
from raykit.store.qc import Examinations, miscounted, unbound
from raykit.work.again import AGAIN, START_S, Elsewhere
from raykit.work.ending import failure_of, why_over
from raykit.work.examined import Examine
from raykit.work.failing import Cause, cause_of, words
from raykit.work.puller import Hand, Turn, surely

LOOK_AGAIN_S = 10.0
"""The backlog is listed again after so long, or once all of it that was open has been gone through."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What bounds the attempts of a worker. None of it changes a score."""

    tries: int
    deadline_s: float
    """An attempt that takes longer counts as lost."""
    lease: str | None = None
    """What pays for it; None where nothing is billed."""


class _Run:
    """One of the runs whose checkpoints are examined."""

    def __init__(self, store: ObjectStore, experiment: str, name: str, *, by: str) -> None:
        self.name = name
        self.log = RunLog(store, experiment, name, by=by)
        self.reference: Receipt | None = None
        """The receipt at update 0."""

    def checkpoints(self, every: int) -> Iterator[tuple[Wanted, bool]]:
        """All that count, oldest first, and whether the cadence asks for them."""
        commits, complete = commits_of(self.log.entries, self.log.state), self.log.state.completed
        wanted = {each.update for each in required(commits, every=every, complete=complete)}
        for each in all_of(commits):
            yield each, each.update in wanted

    def comes_first(self, open_: Sequence[Standing]) -> tuple[Standing | None, str | None]:
        """What of it has to be decided before anything else of it may be taken, and why."""
        if not open_ or self.reference is not None:
            return None, None
        first = open_[0]
        if first.update != 0:
            return None, "no checkpoint at update 0 counts, which the others are held against"
        return first, f"the checkpoint at update 0 comes first, and its QC is {first.status}"


class Worker:
    """Examines the checkpoints of one run, or of every trial of a search, under one suite: a `Puller` of requests."""

    def __init__(
        self,
        store: ObjectStore,
        experiment: str,
        whose: Whose,
        suite: Suite,
        rules: Rules,
        *,
        worker: str,
        examine: Examine,
        elsewhere: Elsewhere | None = None,
        clock: Callable[[], float] = time.time,
        acts: Callable[[], Acts] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`worker` names this process and no other one ever; `acts` reads what people have said. `elsewhere` is what
        `examine` asks another process with, if it does.
        """
        self.hand: Hand | None = None
        self.tally: Mapping[str, float] = {}
        self._elsewhere = elsewhere
        self._store = store
        self._experiment = experiment
        self._names = names_of(whose, store, experiment)
        self._trials = not isinstance(whose, str)
        self._suite = suite
        self._suite_digest = suite.digest
        self._scope = f"contract:{self._suite_digest}"
        self._rules = rules
        self._name = worker
        self._place = this_place()
        self._examine = examine
        self._clock = clock
        self._sleep = sleep
        self._refresh = acts or People(store, experiment, by=worker).refresh
        self._examinations = Examinations(store, experiment)
        self._runs: dict[str, _Run] = {}
        self._acts = Acts()
        self._looked_at = -math.inf
        self._queue: deque[Standing] = deque()
        """What it may take, oldest first, as it was when it was listed."""
        self._waits: str | None = None
        """Why nothing else may be taken."""
        self._settled: dict[str, int] = {}
        """By request: at how many records of its attempts nobody has to look again."""
        self._receipts: dict[str, Receipt] = {}

    def turn(self) -> Turn:
        """Examine at most one checkpoint, and say what came of it.

        Raises:
            CorruptError: a log or a record is damaged.
            UnknownOutcomeError: a write was not answered, and nothing is in hand: take another turn.
            StoreUnavailableError: the store did not answer, and nothing is in hand.
        """
        self._acts = self._refresh()
        stopped = self._stopped()
        if stopped is not None:
            return Turn(kind="paused", detail=stopped)
        looked = not self._queue or self._clock() > self._looked_at + LOOK_AGAIN_S
        found = self._look() if looked else None
        taken = self._next() if found is None else None
        if found is None and taken is None and not looked:
            found = self._look()
            taken = self._next() if found is None else None
        if found is not None:
            return found
        if taken is None:
            return Turn(kind="waiting" if self._waits else "nothing", detail=self._waits)
        return self._work(taken)

    # --- what there is to do --------------------------------------------------------------------------------

    def _stopped(self) -> str | None:
        """Why nothing may be started now."""
        if self._acts.cancelled is not None:
            return self._acts.cancelled.words
        held = pause_of(self._acts, self._experiment, "qc", self._suite_digest)
        return None if held is None else held.words

    def _look(self) -> Turn | None:
        """List the backlog anew. A turn if it shows something that everyone has to stop for."""
        for name in self._names():
            if name not in self._runs:
                self._runs[name] = _Run(self._store, self._experiment, name, by=self._name)
            self._runs[name].log.refresh()
        said = self._examinations.said(known=self._receipts)
        by_run: list[tuple[_Run, list[Standing]]] = []
        for run in self._runs.values():
            found = self._open_of(run, said)
            if isinstance(found, Turn):
                return found
            by_run.append((run, found))
        self._looked_at = self._clock()
        self._queue, self._waits = self._choose(by_run)
        defect = shared_defect([each for _, open_ in by_run for each in open_], trials=self._trials)
        return None if defect is None else self._stop_for_defect(defect)

    def _open_of(self, run: _Run, said: Mapping[str, Said]) -> list[Standing] | Turn:
        """What is open of a run, oldest first; a turn if one of its questions has two answers."""
        run.reference = None  # a run that began anew has another update 0
        standings = []
        for wanted, on_cadence in run.checkpoints(self._suite.every):
            request = self._request(run, wanted)
            there = said.get(request.id)
            if there is None and not on_cadence:
                continue  # it is required once a person has asked for it
            there = there or Said()
            if there.receipt is None:
                standings.append(self._stand(wanted, request, there))
            elif self._disputed(request, there, there.receipt):
                return self._stop_for_conflict(
                    request, there.conflicts[-1].differs if there.conflicts else ()
                )
        return standings

    def _choose(
        self, by_run: Sequence[tuple[_Run, Sequence[Standing]]]
    ) -> tuple[deque[Standing], str | None]:
        """Of all that is open: what may be taken, oldest first, and why that is not all of it."""
        takable: list[Standing] = []
        whys = []
        for run, open_ in by_run:
            first, why = run.comes_first(open_)
            takable += open_ if why is None else [] if first is None else [first]
            whys += [] if why is None else [why]
        suspect = next((each for each in takable if _is_suspected(each)), None)
        if suspect is not None:
            takable, last = [suspect], suspect.counted[-1]
            if suspect.update or self._trials:
                whys = [f"another process has to try {self._what(suspect.request)} first: {last.message}"]
        if self._trials:
            takable.sort(key=lambda each: (each.wanted.since, each.request.run, each.update))
        free = (each for each in takable if each.status != "parked" and not self._has_failed_at(each))
        return deque(free), whys[0] if whys else None

    def _has_failed_at(self, standing: Standing) -> bool:
        """Whether this process has said that it fails; another one has to confirm it."""
        return any(
            failure.worker == self._name and failure.kind in defects.CERTAIN for failure in standing.counted
        )

    def _request(self, run: _Run, wanted: Wanted) -> Request:
        return Request(
            experiment=self._experiment,
            run=run.name,
            update=wanted.update,
            checkpoint=wanted.checkpoint,
            suite=self._suite_digest,
        )

    def _stand(self, wanted: Wanted, request: Request, said: Said) -> Standing:
        return stand(
            wanted,
            request,
            said,
            reviews={},
            tries=self._rules.tries,
            forgiven=self._acts.retried.get(request.id, 0),
            forgiven_before=self._cleared_at,
            now=self._clock(),
        )

    @property
    def _cleared_at(self) -> float:
        """When a person last cleared what the suite was paused for."""
        return self._acts.cleared_at.get(self._scope, 0.0)

    def _disputed(self, request: Request, said: Said, receipt: Receipt) -> bool:
        """Note a receipt; whether an attempt at it made another one, and no person has dealt with that."""
        self._decided(request, receipt)
        attempts = len(said.took) + len(said.conflicts)
        if self._settled.get(request.id) == attempts:
            return False
        made_at = {took.n: took.at for took in said.took}
        if any(made_at.get(n, math.inf) > self._cleared_at for n in said.disputed):
            return True
        self._settled[request.id] = attempts
        return False

    def _decided(self, request: Request, receipt: Receipt) -> None:
        self._receipts[request.id] = receipt
        if request.update == 0:
            self._runs[request.run].reference = receipt

    # --- taking it ------------------------------------------------------------------------------------------

    def _next(self) -> _Taken | None:
        """The claim of the oldest request that nobody is at; None if there is none left in the list."""
        while self._queue:
            taken = self._take(self._queue.popleft())
            if taken is not None:
                return taken
        return None

    def _take(self, standing: Standing) -> _Taken | None:
        id, newest, at = standing.request.id, standing.claim, self._clock()
        if newest is not None:
            if self._examinations.receipt(id) is not None:
                return None  # published since the backlog was listed
            if newest.n not in {failure.n for failure in standing.said.failures}:
                ended = self._end(standing, newest)
                if ended is None or ended.status == "parked":
                    return None
                standing = ended
        if not standing.said.asked:
            self._surely(lambda: self._examinations.ask(standing.request))
        # Of two runs that came to the same weights, the first has asked: everyone answers that one question.
        request = self._examinations.request(id)
        claim = self._surely(
            lambda: self._examinations.claim(
                id,
                1 if newest is None else newest.n + 1,
                worker=self._name,
                place=self._place,
                at=at,
                deadline_s=self._deadline_s,
                lease=self._rules.lease,
            )
        )
        return None if claim is None else _Taken(standing=standing, request=request, claim=claim)

    @property
    def _deadline_s(self) -> float:
        """What the next attempt may take: as long again, and the time to come up, where another process is asked."""
        rules, twice = self._rules, self._elsewhere is not None and self._elsewhere.due
        return 2 * rules.deadline_s + START_S if twice else rules.deadline_s

    def asks_elsewhere(self) -> None:
        """Another process is coming up, which is asked the same: what this one may take begins anew."""
        if self.hand is not None:
            what = self.hand.what.removesuffix(AGAIN) + AGAIN
            self.hand = replace(self.hand, what=what, since=self._clock())

    def _end(self, standing: Standing, claim: Claim) -> Standing | None:
        """Say that an attempt is over which nobody has ended; None if it is not, or if somebody else was faster."""
        cause = why_over(claim, now=self._clock(), by=self._name)
        if cause is None:
            return None
        failure = self._failure(claim, cause)
        if not self._surely(lambda: self._examinations.fail(failure)):
            return None
        return self._after(standing, failure)

    def _failure(self, claim: Claim, cause: Cause) -> Failure:
        return failure_of(claim, cause, said_by=self._name, at=self._clock())

    def _after(self, standing: Standing, failure: Failure) -> Standing:
        """How far a request is once one more attempt has failed."""
        failures = (*standing.said.failures, failure)
        return self._stand(standing.wanted, standing.request, replace(standing.said, failures=failures))

    # --- examining it ---------------------------------------------------------------------------------------

    def _work(self, taken: _Taken) -> Turn:
        claim, start_s = taken.claim, time.monotonic()
        what = self._what(taken.standing.request)
        self.hand = Hand(unit=claim.request, what=what, n=claim.n, since=claim.at)
        try:
            turn = self._examined(taken, start_s)
        except Exception as error:  # noqa: BLE001  whatever the recipe raises is what came of the attempt
            turn = self._failed(taken, cause_of(error))
        finally:
            self.hand = None
        return replace(turn, what=what, took_ms=_since_ms(start_s))

    def _examined(self, taken: _Taken, start_s: float) -> Turn:
        request, claim = taken.request, taken.claim
        reference = None if request.update == 0 else self._runs[taken.standing.request.run].reference
        examined = self._examine(request, taken.standing.wanted.key, reference)
        receipt = examined.receipt
        self._require_answer(request, receipt, reference)
        took = Took(
            request=claim.request,
            n=claim.n,
            worker=self._name,
            receipt=receipt.digest,
            took_ms=_since_ms(start_s),
            peak_bytes=examined.peak_bytes,
            at=self._clock(),
        )
        published = self._surely(lambda: self._examinations.publish(receipt, examined.pictures, took))
        if published == "conflict":
            first = self._examinations.receipt(request.id)
            return self._stop_for_conflict(request, () if first is None else differing(first, receipt))
        self._decided(taken.standing.request, receipt)
        if request.update == 0 or claim.n > 1:
            self._queue.clear()  # more may be taken now; or an attempt before this one made other bytes
        return Turn(kind="published" if published == "written" else "already")

    def _require_answer(self, request: Request, receipt: Receipt, reference: Receipt | None) -> None:
        """Let only a receipt pass that is bound to what was asked."""
        wrong = unbound(receipt, request, self._suite, None if reference is None else reference.digest)
        if wrong or miscounted(receipt):
            raise GateError(
                f"the receipt answers another question: {', '.join(wrong) or 'its units do not add up'}",
                field="receipt",
                rule="bound to the checkpoint, the suite and the receipt at update 0; strata add up to all units",
            )

    def _failed(self, taken: _Taken, cause: Cause) -> Turn:
        """Say that the attempt came to nothing, and stop everyone if it is the same for all of them."""
        failure = self._failure(taken.claim, cause)
        self._queue.clear()
        try:
            first = self._surely(lambda: self._examinations.fail(failure))
        except Unknown as error:
            follows = f"not written: {error}"  # it is once the store answers: the claim is open
        else:
            follows = (
                self._follows(self._after(taken.standing, failure)) if first else "others said so before"
            )
        # what is no fault of the store may be one of this process, whatever the kind
        return Turn(
            kind="failed",
            detail=f"{cause.message}; {follows}",
            failed=cause.kind,
            spent=cause.kind != "infrastructure",
        )

    def _follows(self, standing: Standing) -> str:
        """What is done about a failure, in words; a defect of everyone stops everyone."""
        match standing.next:
            case "retry":
                return "it is tried again"
            case "park":
                return "parked until a person lets it be tried again"
            case "pause" if self._trials:
                return "parked until a person lets it be tried again; everyone stops if another trial meets the same"
            case "pause":
                self._stop_for_defect(standing)
                return "everyone on this suite is paused"

    # --- stopping everyone ----------------------------------------------------------------------------------

    def _stop_for_defect(self, standing: Standing) -> Turn:
        last = standing.counted[-1]
        alike = {each.worker for each in standing.counted if each.signature == last.signature}
        what = self._what(standing.request)
        reason = f"{what} failed alike in {len(alike)} processes ({last.signature[:12]})"
        return self._stop(standing.request, "paused", f"{reason}: {last.message}")

    def _stop_for_conflict(self, request: Request, differs: Sequence[str]) -> Turn:
        reason = f"request {request.id[:12]} of {self._what(request)} has two answers, which differ in "
        return self._stop(request, "conflict", reason + (", ".join(differs) or "their bytes"))

    def _stop(self, request: Request, kind: Literal["paused", "conflict"], reason: str) -> Turn:
        self._queue.clear()
        try:
            self._surely(
                lambda: pause(
                    self._store,
                    self._scope,
                    reason=words(reason),
                    person=f"qc worker {self._name}",
                    cause="defect",
                    at=self._clock(),
                )
            )
        except Unknown:
            pass  # what it is paused for is written: whoever looks next pauses it
        return Turn(kind=kind, what=self._what(request), detail=reason, spent=kind == "conflict")

    def _what(self, request: Request) -> str:
        return f"{request.run}, update {request.update:,}" if self._trials else f"update {request.update:,}"

    def _surely(self, act: Callable[[], T]) -> T:
        return surely(act, self._sleep)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A request that this process has claimed, and how far it was."""

    standing: Standing
    request: Request
    claim: Claim


def _is_suspected(standing: Standing) -> bool:
    """Whether what failed here may fail everywhere: another process has to tell, before anything else is begun."""
    return (
        bool(standing.counted)
        and standing.counted[-1].kind in defects.SHARED
        and standing.status in ("retrying", "claimed")
    )


def _since_ms(start_s: float) -> int:
    return round(1000 * (time.monotonic() - start_s))
