"""Attempts at examining: claims without holes, and what is said of each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from raykit.errors import CorruptError
from raykit.ids import canonical
from raykit.records import Claim, Conflict, Failure, Receipt, Took
from raykit.store import layout
from raykit.store.attempts import Attempt, differing, read_attempt
from raykit.store.check.view import View
from raykit.store.qc import Examinations


class Attempts:
    """All attempts at the requests of one experiment."""

    def __init__(self, view: View, experiment: str) -> None:
        self._view = view
        self._experiment = experiment
        self.damaged: set[str] = set()
        """Requests of which something could not be read."""
        self._gone: set[str] = set()
        self._claims = self._read("qc-claim", Claim)
        self._failures = self._read("qc-failure", Failure)
        self._took = self._read("qc-took", Took)
        self._conflicts = self._read("qc-conflict", Conflict)

    @property
    def requests(self) -> set[str]:
        """Those that somebody has been at."""
        every = (self._claims, self._failures, self._took, self._conflicts)
        return {request for of in every for request in of} | self.damaged

    def made(self, request: str) -> Sequence[Took]:
        """What its attempts say that they have made."""
        return list(self._took.get(request, {}).values())

    def that_made(self, receipt: str) -> Iterator[str]:
        """The requests at which somebody says to have made the receipt of this digest."""
        for request, took in self._took.items():
            if any(each.receipt == receipt for each in took.values()):
                yield request

    def check(self, receipts: Mapping[str, Receipt]) -> None:
        """Hold the attempts against each other, and against the receipts that decided."""
        for request, claims in self._claims.items():
            self._numbered(request, claims)
        for kind, of in (
            ("failures", self._failures),
            ("took", self._took),
            ("conflicts", self._conflicts),
        ):
            for request, records in of.items():
                for n, record in records.items():
                    self._of_a_claim(self._key(kind, request, n), record)
        for request in receipts:
            # Without a receipt, what an attempt says that it took is what a killed one left.
            self._view.name(self._key("took", request, n) for n in self._took.get(request, {}))
        for request, conflicts in self._conflicts.items():
            for conflict in conflicts.values():
                self._conflict(conflict, receipts.get(request))

    def _read(self, kind: str, record: type[Attempt]) -> dict[str, dict[int, Attempt]]:
        """By request and attempt: what can be read of that kind."""
        found: dict[str, dict[int, Attempt]] = defaultdict(dict)
        for key, known in self._view.known.items():
            if known.kind == kind and known.parts["experiment"] == self._experiment:
                request, n = known.parts["request"], int(known.parts["try"])
                try:
                    found[request][n] = read_attempt(self._view.get(key), record, key, request=request, n=n)
                except CorruptError as error:
                    self._view.find(key, "what is said of an attempt", error.message, "I2")
                    self._view.name([key])
                    self.damaged.add(request)
        return found

    def _key(self, kind: str, request: str, n: int) -> str:
        return layout.qc_attempt(self._experiment, kind, request, n)

    def _numbered(self, request: str, claims: Mapping[int, Claim]) -> None:
        """Attempt `n` was claimed once the one before it was said to have failed."""
        view = self._view
        view.name(self._key("claims", request, n) for n in claims)
        if request in self.damaged:
            return
        for n in range(1, max(claims, default=0)):
            for kind in ("claims", "failures"):
                if self._missing(kind, request, n, "an attempt begins once the one before has failed"):
                    return

    def _of_a_claim(self, key: str, record: Failure | Took | Conflict) -> None:
        view = self._view
        if not isinstance(record, Took):
            view.name([key])
        claim = self._claims.get(record.request, {}).get(record.n)
        rule = "only who has claimed an attempt ends it"
        if claim is None:
            self._missing("claims", record.request, record.n, rule)
        elif claim.worker != record.worker:
            view.find(key, rule, f"{claim.worker} claimed it, not {record.worker}", "I3")

    def _missing(self, kind: str, request: str, n: int, rule: str) -> bool:
        """Whether something is not there that others follow from; found once."""
        key = self._key(kind, request, n)
        if key in self._gone:
            return True
        if self._view.missing(key, rule, "I3"):
            self._gone.add(key)
            return True
        return False

    def _conflict(self, conflict: Conflict, receipt: Receipt | None) -> None:
        view, key = self._view, self._key("conflicts", conflict.request, conflict.n)
        if receipt is None or conflict.request in self.damaged:
            if conflict.request not in self.damaged:
                view.find(key, "a conflict is with the receipt that decided", "there is no receipt", "I3")
            return
        try:
            other = Receipt.from_bytes(canonical(conflict.other), key)
        except CorruptError as error:
            view.find(key, "a conflict holds the other receipt whole", error.message, "I3")
            return
        kept = Examinations(view.store, self._experiment)
        view.name(kept.artifact_key(other, artifact) for artifact in other.artifacts)
        took = self._took.get(conflict.request, {}).get(conflict.n)
        if conflict.receipt != receipt.digest or conflict.differs != differing(receipt, other):
            view.find(key, "a conflict is with the receipt that decided", "it is with another one", "I3")
        elif took is None or took.receipt != other.digest:
            view.find(key, "a conflict is what its attempt has made", "that made another one", "I3")
