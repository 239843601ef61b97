"""The examinations of one experiment: what is asked, what was found, and what people say of it.

What cannot be seen: that the newest word on an open request is gone. A request, claim or failure that nothing follows,
or a receipt that nobody has reviewed and nothing refers to, looks as if its writer had been killed a moment before; the
same question then gets the same answer again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.records import (
    Artifact,
    Commit,
    Locked,
    Pinned,
    Receipt,
    Record,
    Request,
    Retried,
    Reviewed,
    Roster,
    Suite,
    Versioned,
)
from raykit.store import layout
from raykit.store.check.attempts import QcAttempts
from raykit.store.check.contents import read_lock
from raykit.store.check.view import View
from raykit.store.qc import Examinations, miscounted, unbound

if TYPE_CHECKING:
    from raykit.qc.verdict import Found

R = TypeVar("R", bound=Versioned)

Events = Sequence[tuple[str, Record]]
"""Events, each with the key of its log entry."""

Commits = Mapping[str, Sequence[Commit] | None]
"""By run: its checkpoints, superseded or not; None where its log is not whole."""


def check_qc(view: View, experiment: str, events: Events, commits: Commits, units: Collection[str]) -> None:
    """Look at all that lies under `qc/`, and at what the experiment's log, whose events are given, says of it.

    `units` are the units of synthetic sets, by identity, that people let be tried again: they are no requests.
    """
    _Qc(view, experiment, events, commits, units).check()


class _Qc:
    def __init__(
        self, view: View, experiment: str, events: Events, commits: Commits, units: Collection[str]
    ) -> None:
        self._view = view
        self._units = units
        self._experiment = experiment
        self._events = events
        self._commits = commits
        self._kept = Examinations(view.store, experiment)
        self._damaged = False
        """A receipt could not be read or believed: that others name it was said of it."""

    def check(self) -> None:
        self._suites = dict(self._frozen("qc-suite", Suite))
        self._rosters = dict(self._frozen("qc-roster", Roster))
        self._requests = dict(self._canonical("qc-request", Request))
        self._attempts = QcAttempts(self._view, self._experiment)
        self._receipts = {
            id: found for id, found in self._canonical("qc-receipt", Receipt) if self._made(id, found)
        }
        self._attempts.check(self._receipts)
        for id in sorted(self._attempts.units | self._receipts.keys()):
            self._view.missing(layout.qc_request(self._experiment, id), "what is examined was asked", "I3")
        for id, request in self._requests.items():
            self._request(id, request)
        for digest in sorted(self._asked_with()):
            self._suite(digest)
        for id, receipt in self._receipts.items():
            self._receipt(id, receipt)
        self._references()
        self._people()

    # --- reading --------------------------------------------------------------------------------------------

    def _keys(self, kind: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        for key, known in self._view.known.items():
            if known.kind == kind and known.parts["experiment"] == self._experiment:
                yield key, known.parts

    def _frozen(self, kind: str, record: type[R]) -> Iterator[tuple[str, R]]:
        """What is exactly what its key says, by digest."""
        for key, parts in self._keys(kind):
            data = self._view.get(key)
            if self._view.matches(key, parts["digest"], data):
                try:
                    yield parts["digest"], record.from_bytes(data, key)
                except CorruptError as error:
                    self._view.find(key, "what examinations ask with", error.message, "I2")

    def _canonical(self, kind: str, record: type[R]) -> Iterator[tuple[str, R]]:
        """What is written as raykit writes it, by request."""
        view = self._view
        for key, parts in self._keys(kind):
            view.name([key])
            view.counts[f"{kind.removeprefix('qc-')}s"] += 1
            data = view.get(key)
            try:
                found = record.from_bytes(data, key)
                if found.to_bytes() != data:
                    raise CorruptError(f"{key} is not written as raykit writes it")
            except CorruptError as error:
                view.find(key, "what is asked, and what was found", error.message, "I2")
                self._damaged = True
            else:
                yield parts["request"], found

    def _made(self, id: str, receipt: Receipt) -> bool:
        """Whether an attempt says that it made this very receipt: nothing else vouches for its bytes."""
        if id in self._attempts.damaged:
            return True
        if any(took.receipt == receipt.digest for took in self._attempts.made(id)):
            return True
        key = layout.qc_receipt(self._experiment, id)
        self._view.find(key, "a receipt is what an attempt has made", "no attempt says that it made it", "I3")
        self._damaged = True
        return False

    # --- what is asked --------------------------------------------------------------------------------------

    def _asked_with(self) -> set[str]:
        """The suites that a lock or a request names."""
        found = {request.suite for request in self._requests.values()}
        for _, event in self._events:
            lock = read_lock(self._view, self._experiment, event.plan) if isinstance(event, Locked) else None
            if isinstance(event, Locked) and lock is not None and lock.digest == event.plan and lock.suite:
                found.add(lock.suite)
        return found

    def _suite(self, digest: str) -> None:
        view, key = self._view, layout.qc_suite(self._experiment, digest)
        if view.missing(key, "a suite that is asked with is kept", "I1") or digest not in self._suites:
            return
        suite = self._suites[digest]
        if suite.experiment != self._experiment:
            view.find(key, "a suite is of its experiment", f"it is of {suite.experiment}", "I3")
        view.missing(layout.qc_roster(self._experiment, suite.roster), "the roster of a suite is kept", "I1")

    def _request(self, id: str, request: Request) -> None:
        view, key = self._view, layout.qc_request(self._experiment, id)
        if request.id != id or request.experiment != self._experiment:
            view.find(key, "a request is the question that its name says", f"it is {request.id}", "I3")
        elif not self._committed(request.run, request.update, request.checkpoint):
            found = f"{request.run} has committed no such checkpoint at update {request.update}"
            view.find(key, "a request is about a checkpoint of its run", found, "I3")

    def _committed(self, run: str, update: int, manifest: str) -> bool:
        commits = self._commits.get(run, ())
        return commits is None or any((each.update, each.sha256) == (update, manifest) for each in commits)

    # --- what was found -------------------------------------------------------------------------------------

    def _receipt(self, id: str, receipt: Receipt) -> None:
        for artifact in receipt.artifacts:
            self._artifact(receipt, artifact)
        request = self._requests.get(id)
        suite = None if request is None else self._suites.get(request.suite)
        if request is None or suite is None:
            return  # what is wrong was said of them
        key = layout.qc_receipt(self._experiment, id)
        wrong = unbound(receipt, request, suite, receipt.reference)
        if wrong:
            found = f"another {', another '.join(wrong)}"
            self._view.find(key, "a receipt is bound to what was asked", found, "I3")
        elif self._counts_all(key, receipt, self._rosters.get(suite.roster)):
            self._verdict(key, receipt, suite)

    def _artifact(self, receipt: Receipt, artifact: Artifact) -> None:
        view, key = self._view, self._kept.artifact_key(receipt, artifact)
        if view.missing(key, "the pictures of a receipt are kept", "I1"):
            return
        if view.size(key) != artifact.size_bytes:
            found = f"{key} is {view.size(key)} bytes long, not {artifact.size_bytes}"
            view.find(key, "a picture has the size that its receipt says", found, "I1")
        elif key in view.sizes:  # else it is newer than the listing
            view.data(key, artifact.sha256)

    def _counts_all(self, key: str, receipt: Receipt, roster: Roster | None) -> bool:
        asked = {name: tally.requested for name, tally in receipt.strata.items()}
        if not miscounted(receipt) and (roster is None or asked == dict(roster.quotas)):
            return True
        found = f"its strata ask for {asked}, of {receipt.units.requested} in all"
        self._view.find(key, "a receipt counts every unit of the roster", found, "I3")
        return False

    def _verdict(self, key: str, receipt: Receipt, suite: Suite) -> None:
        """A receipt does not pass against its own numbers."""
        reference = self._by_digest.get(receipt.reference or "")
        if receipt.verdict != "passed" or (receipt.reference is not None and reference is None):
            return
        if not receipt.fields.keys() <= suite.fields.keys():
            self._view.find(key, "a receipt scores what its suite asks", "it has other fields", "I8")
            return
        from raykit.qc.verdict import judge  # brings numpy, which a store without receipts needs not

        judged = judge(suite, _numbers(receipt), reference)
        if judged.verdict == "failed":
            first = judged.findings[0]
            found = f"it passed, though {first.what} is {first.found}, wanted {first.rule}"
            self._view.find(key, "a failed check is never treated as passed", found, "I8")

    def _is_gone(self, digest: str) -> bool:
        """Whether no receipt has this digest, as far as can be told. What its attempts left is no killed writer's."""
        if digest in self._by_digest or digest in self._late:
            return False
        for request in self._attempts.that_made(digest):
            self._view.strand(self._experiment, request)
        return not self._damaged

    @cached_property
    def _by_digest(self) -> Mapping[str, Receipt]:
        return {receipt.digest: receipt for receipt in self._receipts.values()}

    @cached_property
    def _late(self) -> frozenset[str]:
        """Digests of the receipts that came after the listing."""
        listed = self._view.store.list(f"{layout.qc(self._experiment)}/receipts")
        late = [each.key for each in listed if each.key not in self._view.sizes]
        return frozenset(sha256(self._view.store.get(key)) for key in late)

    def _references(self) -> None:
        """What receipts are held against is the receipt at update 0 of their suite."""
        gone: set[str] = set()
        for id, receipt in self._receipts.items():
            key, rule = (
                layout.qc_receipt(self._experiment, id),
                "a receipt is held against the one at update 0",
            )
            if (receipt.reference is None) != (receipt.update == 0):
                found = f"at update {receipt.update} it is held against {receipt.reference or 'none'}"
                self._view.find(key, rule, found, "I3")
            elif receipt.reference is not None:
                first = self._by_digest.get(receipt.reference)
                if receipt.reference not in gone and self._is_gone(receipt.reference):
                    gone.add(receipt.reference)
                    self._view.find(key, rule, f"{receipt.reference[:12]} is not there", "I3")
                elif first is not None and (first.update, first.suite) != (0, receipt.suite):
                    self._view.find(key, rule, f"it is held against update {first.update}", "I3")

    # --- what people say ------------------------------------------------------------------------------------

    def _people(self) -> None:
        for key, event in self._events:
            match event:
                case Reviewed():
                    self._review(key, event)
                case Retried() if event.request not in self._units:
                    last = layout.qc_attempt(self._experiment, "claims", event.request, event.after)
                    if self._view.size(last) is None:
                        found = f"nobody has made attempt {event.after} at {event.request[:12]}"
                        self._view.find(key, "what a person lets be tried again was tried", found, "I8")
                case Pinned() if not self._committed(event.run, event.update, event.manifest):
                    found = f"{event.run} has committed no such checkpoint at update {event.update}"
                    self._view.find(key, "what a person keeps is a checkpoint", found, "I1")

    def _review(self, key: str, event: Reviewed) -> None:
        view = self._view
        gone = [digest for digest in event.receipts if self._is_gone(digest)]
        if gone:
            view.find(key, "a review is of receipts that are there", f"{gone[0][:12]} is not there", "I8")
        for receipt in (self._by_digest[digest] for digest in event.receipts if digest in self._by_digest):
            if event.verdict == "passed" and receipt.verdict == "failed":
                found = f"that of update {receipt.update} has failed"
                view.find(key, "a failed check is never reviewed as passed", found, "I8")
            if any(took.worker == event.person for took in self._attempts.made(receipt.request)):
                found = f"{event.person} made that of update {receipt.update}"
                view.find(key, "a reviewer is another than who made the receipt", found, "I8")


def _numbers(receipt: Receipt) -> Found:
    """What a receipt was judged by, as far as it still says so."""
    from raykit.qc.verdict import Found

    return Found(
        update=receipt.update,
        units=receipt.units,
        strata=receipt.strata,
        metrics=receipt.metrics,
        fields=receipt.fields,
        # Which of those that failed were not finite it does not say: a threshold on either covers these.
        nonfinite=receipt.failed_units if receipt.units.failed else (),
        missing=receipt.failed_units if receipt.units.missing else (),
        weights=receipt.weights,
        scores=receipt.scores,
    )
