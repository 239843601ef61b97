"""Which checkpoints have to be examined, and how far each of them is. Pending is never passed.

missing    required, and nobody has asked yet        claimed    somebody is at it
pending    asked, and nobody is at it                retrying   an attempt came to nothing; another one may follow
parked     tried often enough: a person is needed    done       there is a receipt, passed or failed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from raykit import defects
from raykit.errors import GateError
from raykit.pauses import Review
from raykit.records import Claim, Commit, Conflict, Failure, QcFinding, Receipt, Request, Took

Status = Literal["missing", "pending", "claimed", "retrying", "parked", "done"]

OPEN: frozenset[Status] = frozenset({"missing", "pending", "claimed", "retrying", "parked"})
"""There is no receipt: the checkpoint is kept, whatever else may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A checkpoint that has to be examined."""

    update: int
    checkpoint: str
    """Digest of its manifest."""
    key: str
    """Key of its manifest."""
    since: float
    """When it was committed."""


def required(commits: Iterable[tuple[Commit, float]], *, every: int, complete: bool) -> tuple[Wanted, ...]:
    """What the cadence asks for, oldest first: update 0, each multiple of `every`, and the last one of a complete run.

    `commits` are those that count, with the times of their entries; none of the required is ever left out to catch up.
    """
    found = all_of(commits)
    last = found[-1].update if found and complete else None
    return tuple(each for each in found if each.update % every == 0 or each.update == last)


def all_of(commits: Iterable[tuple[Commit, float]]) -> tuple[Wanted, ...]:
    """Every checkpoint that counts, oldest first, on the cadence or not."""
    wanted = {
        commit.update: Wanted(update=commit.update, checkpoint=commit.sha256, key=commit.key, since=at)
        for commit, at in commits
    }
    return tuple(wanted[update] for update in sorted(wanted))


@dataclass(frozen=True, kw_only=True)  # without slots: what is disputed is worked out once, and asked often
class Said:
    """All that is written of one request."""

    asked: bool = False
    claims: Sequence[Claim] = ()
    failures: Sequence[Failure] = ()
    took: Sequence[Took] = ()
    conflicts: Sequence[Conflict] = ()
    receipt: Receipt | None = None

    @cached_property
    def disputed(self) -> tuple[int, ...]:
        """Attempts that made another receipt than the one that decided: recorded as such, or killed just before."""
        if self.receipt is None:
            return ()
        decided = self.receipt.digest
        others = {took.n for took in self.took if took.receipt != decided}
        return tuple(sorted(others | {conflict.n for conflict in self.conflicts}))

    @cached_property
    def forged(self) -> bool:
        """No attempt made the receipt that is there: it is not what was written."""
        if self.receipt is None or not self.took:
            return False
        return all(took.receipt != self.receipt.digest for took in self.took)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One required checkpoint, and how far its examination is."""

    wanted: Wanted
    request: Request
    said: Said
    status: Status
    next: defects.Next = "retry"
    """What follows if it is not done."""
    counted: Sequence[Failure] = ()
    """The failures that count: no person has let it be tried again since."""
    review: Review | None = None
    """The newest of its receipt."""

    @property
    def update(self) -> int:
        return self.wanted.update

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def receipt(self) -> Receipt | None:
        return self.said.receipt

    @property
    def claim(self) -> Claim | None:
        """The newest attempt."""
        return self.said.claims[-1] if self.said.claims else None

    @property
    def red(self) -> bool:
        """It failed, or had two answers: a person looks at it by itself."""
        return self.receipt is not None and (self.receipt.verdict == "failed" or bool(self.said.disputed))

    @property
    def unjudged(self) -> bool:
        """It has no fault, and no threshold of quality was held against it: nothing was learned yet."""
        return self.receipt is not None and not self.red and bool(self.receipt.unjudged)

    @property
    def notes(self) -> tuple[QcFinding, ...]:
        """What whoever reviews it has to look at."""
        return () if self.receipt is None else self.receipt.notes or ()

    @property
    def turned_down(self) -> bool:
        """A person has looked at its receipt, and says that it failed."""
        return self.review is not None and self.review.event.verdict == "failed"

    @property
    def usable(self) -> bool:
        """Examined, passed, and reviewed as passed: a decision may rest on it."""
        return self.receipt is not None and self.why_not is None

    @property
    def why_not(self) -> str | None:
        """Why no decision may rest on this checkpoint; None if one may."""
        receipt = self.receipt
        if receipt is None:
            return f"its QC is {self.status}"
        if self.said.forged:
            return "its receipt is not the one that was made"
        if self.said.disputed:
            return "its QC had two different answers"
        if receipt.verdict == "failed":
            return f"it failed its QC: {reason(receipt.findings[0])}"
        if self.review is None:
            return "its QC receipt is not reviewed"
        if self.review.event.verdict == "failed":
            return f"{self.review.event.person} has reviewed it as failed: {self.review.event.note}"
        return None


def stand(
    wanted: Wanted,
    request: Request,
    said: Said,
    *,
    reviews: Mapping[str, Review],
    tries: int,
    forgiven: int = 0,
    forgiven_before: float = 0.0,
    now: float,
) -> Standing:
    """How far one request is.

    `reviews` has the newest review by receipt digest. Failures through attempt `forgiven`, and those from before the
    time `forgiven_before`, no longer count: a person has let it be tried again.
    """
    counted = [failure for failure in said.failures if failure.n > forgiven and failure.at >= forgiven_before]
    next_ = defects.next_after(
        [
            defects.Failed(kind=failure.kind, signature=failure.signature, worker=failure.worker)
            for failure in counted
        ],
        tries=tries,
    )
    receipt = said.receipt
    return Standing(
        wanted=wanted,
        request=request,
        said=said,
        status=_status(said, bool(counted), next_, now),
        next=next_,
        counted=tuple(counted),
        review=None if receipt is None else reviews.get(receipt.digest),
    )


def _status(said: Said, failed: bool, next_: defects.Next, now: float) -> Status:
    if said.receipt is not None:
        return "done"
    if alive(said, now) is not None:
        return "claimed"
    if failed:
        return "retrying" if next_ == "retry" else "parked"
    return "pending" if said.asked else "missing"


def alive(said: Said, now: float) -> Claim | None:
    """The newest attempt, if nobody has said that it failed and its time is not over."""
    newest = said.claims[-1] if said.claims else None
    if newest is None or any(failure.n == newest.n for failure in said.failures):
        return None
    return newest if now < newest.at + newest.deadline_s else None


# --- all of them --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Every required checkpoint of a run under one suite, oldest first."""

    suite: str
    standings: Sequence[Standing] = ()
    others: Sequence[Standing] = ()
    """Examined once and required no longer: of updates that a resume has superseded."""
    counts: Mapping[Status, int] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Standing, ...]:
        return tuple(each for each in self.standings if each.open)

    @property
    def failed(self) -> tuple[Standing, ...]:
        """Those that failed by their receipt or by a person's word, or that had two answers."""
        return tuple(each for each in self.standings if each.red or each.turned_down)

    @property
    def unreviewed(self) -> tuple[Standing, ...]:
        return tuple(each for each in self.standings if each.receipt is not None and each.review is None)

    @property
    def complete(self) -> bool:
        """Every required checkpoint is examined, and a person has looked at every receipt."""
        return bool(self.standings) and not self.open and not self.unreviewed

    def at(self, update: int) -> Standing | None:
        return next((each for each in self.standings if each.update == update), None)

    def of(self, checkpoint: str) -> Standing | None:
        """The standing of a checkpoint by the digest of its manifest, required or once required."""
        return next(
            (each for each in [*self.standings, *self.others] if each.wanted.checkpoint == checkpoint), None
        )


def backlog(suite: str, standings: Sequence[Standing], others: Sequence[Standing] = ()) -> Backlog:
    """All standings together."""
    return Backlog(
        suite=suite,
        standings=tuple(standings),
        others=tuple(others),
        counts=dict(Counter(each.status for each in standings)),
    )


def takable(found: Backlog) -> tuple[Standing, ...]:
    """What a worker could take now, oldest first. Update 0 goes before all others: they are held against it."""
    free = [each for each in found.standings if each.status in ("missing", "pending", "retrying")]
    first = found.at(0)
    if first is not None and first.open:
        return (first,) if first in free else ()
    return tuple(free)


def workable(found: Backlog) -> int:
    """How many somebody could take now, or is at: as long as there are some, there is something to wait for."""
    return len(takable(found)) + found.counts.get("claimed", 0)


def shared_defect(open_: Sequence[Standing], *, trials: bool) -> Standing | None:
    """The open checkpoint whose failure is everyone's on the suite; None if there is none.

    In one run that is a failure which two workers have met alike. Of `trials` each has a setting of its own, which may
    itself be what fails: there, another trial has to have met the same.
    """
    for each in open_:
        if each.next != "pause":
            continue
        if not trials or len(_met_in(open_, each.counted[-1].signature)) > 1:
            return each
    return None


def _met_in(open_: Sequence[Standing], signature: str) -> set[str]:
    """The runs that have met a failure. Two of one setting come to the same weights, which is one question."""
    met = {
        each.request.id: each.request.run
        for each in open_
        if any(failure.signature == signature for failure in each.counted)
    }
    return set(met.values())


def unheeded(found: Backlog, seen_at: float | None) -> tuple[Standing, ...]:
    """Failed checkpoints without an answer: nobody has reviewed them, or has gone on in spite of them since."""
    return tuple(
        each
        for each in found.standings
        if each.receipt is not None
        and each.receipt.verdict == "failed"
        and each.review is None
        and max((took.at for took in each.said.took), default=0.0) > (seen_at or 0.0)
    )


def reason(finding: QcFinding) -> str:
    """One finding in words: `ratio 0.412, fails if > 0.35`; `latent of 3 a spread of 0, wanted a spread above 0`."""
    of = f" of {finding.stratum}" if finding.stratum else ""
    rule = finding.rule if finding.rule.startswith("fails") else f"wanted {finding.rule}"
    if finding.kind == "stratum-lost":
        return f"stratum {finding.stratum}: {finding.found}, {rule}"
    return f"{finding.what}{of} {finding.found}, {rule}"


def told(standing: Standing) -> str:
    """A failed checkpoint in words: `update 400 failed its QC: ratio 0.412, fails if > 0.35`."""
    receipt = standing.receipt
    if receipt is None:
        return f"update {standing.update:,}: its QC is {standing.status}"
    if not receipt.findings or standing.said.disputed:
        return f"update {standing.update:,}: {standing.why_not}"
    more = len(receipt.findings) - 1
    rest = f"; and {more} more" if more else ""
    return f"update {standing.update:,} failed its QC: {reason(receipt.findings[0])}{rest}"


def noted(found: Backlog) -> tuple[str, ...]:
    """What stands beside the verdicts, in words, the newest first: `update 400: ratio of 7 0.61 there, ...`."""
    return tuple(
        f"update {each.update:,}: {reason(note)}" for each in reversed(found.standings) for note in each.notes
    )


def blocks_completion(found: Backlog) -> tuple[str, ...]:
    """What keeps an experiment from being complete, in words; empty if nothing does."""
    reasons = []
    for status in ("missing", "pending", "claimed", "retrying", "parked"):
        updates = [each.update for each in found.standings if each.status == status]
        if updates:
            reasons.append(f"{len(updates)} {status} (update {_updates(updates)})")
    unreviewed = [each.update for each in found.unreviewed]
    if unreviewed:
        reasons.append(f"{len(unreviewed)} not reviewed (update {_updates(unreviewed)})")
    return tuple(reasons)


def require_complete(found: Backlog, experiment: str) -> None:
    """Let only an experiment pass whose required checkpoints are all examined and reviewed.

    Raises:
        GateError: some are not; the message says which.
    """
    reasons = blocks_completion(found)
    if reasons:
        raise GateError(
            f"the QC of {experiment} is not complete: {'; '.join(reasons)}",
            field="qc",
            rule="every required checkpoint examined, and every receipt reviewed by a person",
            remedy=way_on(found, experiment),
        )


def name_of(standing: Standing, experiment: str) -> str:
    """What a person calls its run: `digits`, or `digits-lr/trial-007` of a search."""
    run = standing.request.run
    return experiment if run == "main" else f"{experiment}/{run}"


def require_usable(found: Standing | None, what: str, *, experiment: str) -> Standing:
    """Let only a checkpoint pass that a decision may rest on.

    Raises:
        GateError: its QC is missing, pending, failed, or not reviewed as passed.
    """
    why = "nobody has examined it" if found is None else found.why_not
    if found is not None and why is None:
        return found
    name = experiment if found is None else name_of(found, experiment)
    if found is None:
        remedy = f"choose a checkpoint on the cadence: raykit qc status {name}"
    elif found.open:
        remedy = (
            f"raykit qc retry {name} --update {found.update} --reason ... --by NAME"
            if found.status == "parked"
            else f"raykit qc run {name}"
        )
    elif found.said.forged:
        remedy = "raykit check --read-data"
    elif found.review is None and not found.red:
        remedy = f"raykit qc review {name} --update {found.update} --verdict passed --note ... --by NAME"
    else:
        remedy = f"choose another checkpoint: raykit qc status {name}"
    raise GateError(
        f"no decision may rest on {what}: {why}",
        field="qc",
        rule="a receipt that passed, reviewed as passed by a named person",
        remedy=remedy,
    )


def way_on(found: Backlog, experiment: str) -> str | None:
    """The one command that helps an experiment, or one run of it; None if nothing is open.

    What a pause needs comes before it: see `QcRead.pause`.
    """
    if any(each.status == "parked" for each in found.standings):
        return f"raykit qc retry {experiment} --reason ... --by NAME"
    if found.open:
        return f"raykit qc run {experiment}"
    if any(not each.red for each in found.unreviewed):
        return f"raykit qc review {experiment} --note ... --by NAME"
    for each in found.unreviewed:
        if each.said.forged:
            return "raykit check --read-data"
        name = name_of(each, experiment.partition("/")[0])
        return f"raykit qc review {name} --update {each.update} --verdict failed --note ... --by NAME"
    return None


def _updates(updates: Sequence[int]) -> str:
    shown = [f"{update:,}" for update in updates]
    return ", ".join(shown) if len(shown) <= 6 else f"{', '.join(shown[:3])}, ... {', '.join(shown[-2:])}"
