"""Every error raykit raises on purpose, as one tree.

The first level groups errors by what the person or program that catches them does next, and that group
fixes the exit code of the command line:

    RaykitError                 1  unexpected
      InvalidInput              2  change what was asked
        PlanError                    a plan field is wrong
        UnsafeNameError              a name or key that could leave the root
        NotFoundError                no such object, run or checkpoint
        UnusableRootError            the store cannot be reached, written or trusted
      Refused                   3  satisfy the gate, or ask a person
        GateError                    a necessary check has failed
        ApprovalError                a person has to approve this first
        ReviewError                  the plan needs revision: items of its review have failed
        ExactnessError               the resume would be less exact than the plan needs
        HeldError                    another launch holds this run
        ReplanError                  money has to be moved, by a person, before more is spent
        CancelledError               this experiment was ended for good
      Stopped                   4  nothing is wrong; continue later
        FleetPaused                  a pause is in force
        BudgetError                  the ceiling does not allow it
      Broken                    5  stop and look: bytes disagree
        CorruptError                 bytes that do not match their digest
        ConflictError                a decided key holds other bytes
        FencedError                  a newer attempt owns this run
        LeaseLostError               this worker's lease has ended
      Unknown                   6  the outcome is not known; reconcile, never clean up
        UnknownOutcomeError          a write whose result could not be read back
        StoreUnavailableError        the store did not answer
        DeadlineError                something did not answer in time
      Insecure                  7
        InsecureClusterError         a cluster without a token, or open to the network

`kind` is a stable code for programs: kinds are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self


class RaykitError(Exception):
    """Base of every deliberate error.

    `message` says what is wrong in one sentence. `field`, `value`, `rule` and `remedy` say where, what is
    there, what would pass, and the one thing to do; the command line prints those that are given.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.rule = rule
        self.remedy = remedy

    def __str__(self) -> str:
        return self.message

    def with_more(self, more: str, *, remedy: str) -> Self:
        """The same refusal that says more, with another remedy before its own."""
        return type(self)(
            f"{self.message}; {more}",
            field=self.field,
            value=self.value,
            rule=self.rule,
            remedy=f"{remedy}   or   {self.remedy}",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[RaykitError], message: str, said: dict[str, object]) -> RaykitError:
    """The same error in another process, with everything that it says."""
    error = cls(message)
    error.__dict__.update(said)
    return error


class InvalidInput(RaykitError):
    """What was asked cannot be done as it stands; change it."""

    kind = "invalid-input"
    exit_code = 2


class PlanError(InvalidInput, ValueError):
    """One or more plan fields are wrong; `findings` holds them all, in the order of the file."""

    kind = "plan"

    def __init__(
        self,
        message: str,
        *,
        findings: tuple[PlanError, ...] = (),
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, field=field, value=value, rule=rule, remedy=remedy)
        self.findings = findings
        self.line = line


class UnsafeNameError(InvalidInput, ValueError):
    """A name or key that is not `[a-z0-9][a-z0-9._-]{0,127}` in every part."""

    kind = "unsafe-name"


class NotFoundError(InvalidInput, KeyError):
    """No object, run, checkpoint or experiment of that name."""

    kind = "not-found"


class UnusableRootError(InvalidInput, OSError):
    """The store root cannot be reached, cannot be written, or does not honour conditional creates."""

    kind = "unusable-root"


class Refused(RaykitError):
    """A gate or a missing approval stands in the way; nothing was started."""

    kind = "refused"
    exit_code = 3


class GateError(Refused):
    """A necessary check has failed."""

    kind = "gate"


class ApprovalError(Refused):
    """A named person has to approve this first; `facts` are what that person has to see, name by name."""

    kind = "approval"

    def __init__(
        self,
        message: str,
        *,
        facts: tuple[tuple[str, str], ...] = (),
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, field=field, value=value, rule=rule, remedy=remedy)
        self.facts = facts


class ReviewError(Refused):
    """The plan needs revision; `findings` are the items of its review that have failed, each with its remedy."""

    kind = "review"

    def __init__(
        self,
        message: str,
        *,
        findings: tuple[PlanError, ...] = (),
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, field=field, value=value, rule=rule, remedy=remedy)
        self.findings = findings


class ExactnessError(Refused):
    """The resume would be of a lower exactness class than the plan needs."""

    kind = "exactness"


class HeldError(Refused):
    """Another launch that is alive holds this run."""

    kind = "held"


class ReplanError(Refused):
    """What was set aside no longer fits: a person has to move money before more is spent."""

    kind = "replan"


class CancelledError(Refused):
    """This experiment was ended for good."""

    kind = "cancelled"


class Stopped(RaykitError):
    """Nothing is wrong: the work waits, and can continue."""

    kind = "stopped"
    exit_code = 4


class FleetPaused(Stopped):
    """A pause is in force."""

    kind = "paused"


class BudgetError(Stopped):
    """The budget does not allow it."""

    kind = "budget"


class Broken(RaykitError):
    """Bytes disagree: stop and look."""

    kind = "broken"
    exit_code = 5


class CorruptError(Broken):
    """Bytes that do not match their digest, their schema or their place."""

    kind = "corrupt"


class ConflictError(Broken):
    """A decided key already holds other bytes. Final."""

    kind = "conflict"


class FencedError(Broken):
    """A newer attempt owns this run; this writer must stop."""

    kind = "fenced"


class LeaseLostError(Broken):
    """This worker's lease has ended; its result cannot be published."""

    kind = "lease-lost"


class Unknown(RaykitError):
    """The outcome is not known. Reconcile; never clean up under doubt."""

    kind = "unknown"
    exit_code = 6


class UnknownOutcomeError(Unknown):
    """A write whose result could not be read back."""

    kind = "unknown-outcome"


class StoreUnavailableError(Unknown, OSError):
    """The store did not answer, or answered with a transient error more often than raykit retries."""

    kind = "store-unavailable"


class DeadlineError(Unknown, TimeoutError):
    """Something did not answer in time."""

    kind = "deadline"


class Insecure(RaykitError):
    """A cluster that raykit does not run on."""

    kind = "insecure"
    exit_code = 7


class InsecureClusterError(Insecure):
    """A cluster that serves without a token, or that listens beyond loopback."""

    kind = "insecure-cluster"


def some_of(names: Iterable[object], most: int, *, between: str = ", ") -> str:
    """How a message names what there may be much of: the first `most`, and how many more there are."""
    said = [str(name) for name in names]
    more = f"{between.strip(' ,')} and {len(said) - most} more" if len(said) > most else ""
    return between.join(said[:most]) + more


def by_kind(kind: str) -> type[RaykitError]:
    """The error class of a `kind` code; the base class for a code that this version does not have."""
    found: list[type[RaykitError]] = [RaykitError]
    for known in found:
        if known.kind == kind:
            return known
        found += known.__subclasses__()
    return RaykitError
