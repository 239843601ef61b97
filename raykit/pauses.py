"""Who is paused, why, and what clears it: people's acts on one experiment and on the fleet, folded into one state.

    running -> pausing -> paused -> resuming

An experiment is paused while any scope that it belongs to is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from raykit.errors import CancelledError, FleetPaused, InvalidInput, ReplanError
from raykit.records import (
    Amended,
    CanaryPassed,
    Cancelled,
    Concluded,
    Contracted,
    ExperimentEntry,
    ExperimentEvent,
    FleetEntry,
    Generated,
    GivenUp,
    Harmless,
    Locked,
    Measured,
    Noted,
    Observed,
    Paused,
    Pinned,
    Repaired,
    RestartApproved,
    Resumed,
    Retried,
    Reviewed,
    RowsCounted,
    Scope,
)

Learned = Observed | Concluded | Noted | Measured | RowsCounted

Role = Literal["train", "qc", "generate", "search"]

FleetState = Literal["running", "pausing", "overdue", "paused", "resuming"]
"""Of one worker or run: nothing in force; asked to stop; asked and late; stopped at a boundary; going on again."""

NEEDS_WORDS = frozenset({"defect", "premise", "qc", "exactness"})
"""Causes of a pause that ends only by what a named person says was changed or decided."""

MONEY_CAUSES = frozenset({"ceiling", "replan"})
"""Causes of a pause that only money ends."""

OF_SEARCH = "search "
"""How the process of a search signs its pauses: one for money ends rows, and a named person opens them again."""

OVERDUE_S = 60.0
"""A worker that has not reached its boundary so long after a pause, and ten of its own updates, is overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A pause that holds."""

    pause: Paused
    at: float

    @property
    def words(self) -> str:
        """`paused by mira: H100s promised to inference`."""
        return f"paused by {self.pause.person}: {self.pause.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a person has said of one QC receipt, and when."""

    event: Reviewed
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """What people have said about one experiment, and about the fleet that it is part of."""

    pauses: Mapping[str, InForce] = field(default_factory=dict)
    """By scope: the pauses in force."""
    resumed_at: float | None = None
    """When the newest resume was."""
    cleared_at: Mapping[str, float] = field(default_factory=dict)
    """By scope that was paused once: when that was last over."""
    qc_seen_at: float | None = None
    """When a person last went on after a failed check had paused the work: what failed before then is known."""
    cancelled: Cancelled | None = None
    repaired: int = 0
    """Failures of necessary checks through this attempt are repaired, as a person says."""
    restarts: tuple[RestartApproved, ...] = ()
    locked: tuple[Locked, ...] = ()
    amended: tuple[Amended, ...] = ()
    harmless: frozenset[str] = frozenset()
    """State outside of checkpoints that does not matter, as a person says."""
    learned: tuple[Learned, ...] = ()
    """What was observed, concluded, noted, measured and counted, in the order in which it was said."""
    reviews: Mapping[str, Review] = field(default_factory=dict)
    """By digest of a QC receipt: the newest review."""
    retried: Mapping[str, int] = field(default_factory=dict)
    """By QC request, or unit of a synthetic set: failures through this attempt no longer count."""
    pinned: Mapping[str, Pinned] = field(default_factory=dict)
    """By digest of a checkpoint's manifest: that a person keeps it for good."""
    contracted: Mapping[str, tuple[Contracted, ...]] = field(default_factory=dict)
    """By name of a synthetic set: every contract that was frozen for it. The newest counts."""
    canaries: Mapping[str, CanaryPassed] = field(default_factory=dict)
    """By contract: what its first units showed."""
    given_up: Mapping[str, Mapping[int, GivenUp]] = field(default_factory=dict)
    """By contract and unit: that a person lets its rows count as failed."""
    generated: Mapping[str, Generated] = field(default_factory=dict)
    """By contract: that its set is closed."""


def fold_acts(entries: Iterable[ExperimentEntry | FleetEntry], onto: Acts | None = None) -> Acts:
    """Read the log of an experiment, of the fleet, or one after the other, into one state."""
    acts = onto or Acts()
    for entry in entries:
        for event in entry.events:
            acts = _after(acts, event, entry.at)
    return acts


def _after(acts: Acts, event: ExperimentEvent, at: float) -> Acts:
    match event:
        case Paused():
            held = InForce(pause=event, at=at)
            return replace(acts, pauses={event.scope: held, **acts.pauses})  # the first pause stays
        case Resumed():
            left = {scope: held for scope, held in acts.pauses.items() if scope != event.scope}
            ended = acts.pauses.get(event.scope)
            by_qc = ended is not None and ended.pause.cause == "qc"
            return replace(
                acts,
                pauses=left,
                resumed_at=max(at, acts.resumed_at or at),
                cleared_at={**acts.cleared_at, event.scope: at},
                qc_seen_at=at if by_qc else acts.qc_seen_at,
            )
        case Cancelled():
            return replace(acts, cancelled=acts.cancelled or event)
        case Repaired():
            seen_at = max(at, acts.qc_seen_at or at)
            return replace(acts, repaired=max(acts.repaired, event.attempt), qc_seen_at=seen_at)
        case RestartApproved():
            return replace(acts, restarts=(*acts.restarts, event))
        case Locked():
            return replace(acts, locked=(*acts.locked, event))
        case Amended():
            return replace(acts, amended=(*acts.amended, event))
        case Harmless():
            return replace(acts, harmless=acts.harmless.union(event.names))
        case Observed() | Concluded() | Noted() | Measured() | RowsCounted():
            return replace(acts, learned=(*acts.learned, event))
        case Reviewed():
            said = dict.fromkeys(event.receipts, Review(event=event, at=at))
            return replace(acts, reviews={**acts.reviews, **said})
        case Retried():
            after = max(event.after, acts.retried.get(event.request, 0))
            return replace(acts, retried={**acts.retried, event.request: after})
        case Pinned():
            others = {manifest: pin for manifest, pin in acts.pinned.items() if manifest != event.manifest}
            return replace(acts, pinned={**others, event.manifest: event} if event.keep else others)
        case Contracted():
            before = acts.contracted.get(event.name, ())
            return replace(acts, contracted={**acts.contracted, event.name: (*before, event)})
        case CanaryPassed():
            return replace(acts, canaries={event.contract: event, **acts.canaries})  # the first one stays
        case GivenUp():
            units = {**acts.given_up.get(event.contract, {}), **dict.fromkeys(event.units, event)}
            return replace(acts, given_up={**acts.given_up, event.contract: units})
        case Generated():
            return replace(acts, generated={event.contract: event, **acts.generated})


_SCOPE: TypeAdapter[str] = TypeAdapter(Scope)


def scope_of(text: str) -> str:
    """The scope that `text` means: a bare name is an experiment.

    Raises:
        InvalidInput: it is no scope.
    """
    scope = text if text == "all" or ":" in text else f"experiment:{text}"
    try:
        return _SCOPE.validate_python(scope)
    except ValidationError as error:
        raise InvalidInput(
            f"{text!r} is no scope",
            field="SCOPE",
            value=text,
            rule="all, NAME, experiment:NAME, role:train|qc|generate|search, contract:DIGEST",
        ) from error


def scopes_of(experiment: str, role: Role, contract: str | None = None) -> tuple[str, ...]:
    """Every scope that a piece of work belongs to, the narrowest first."""
    own = (f"experiment:{experiment}", *([f"contract:{contract}"] if contract else []))
    return (*own, f"role:{role}", "all")


def in_force(acts: Acts, scopes: Iterable[str]) -> InForce | None:
    """The pause that holds for work with these scopes, the narrowest first."""
    return next((acts.pauses[scope] for scope in scopes if scope in acts.pauses), None)


def pause_of(acts: Acts, experiment: str, role: Role, contract: str | None = None) -> InForce | None:
    """The pause that holds for this work, the narrowest first.

    What is paused because a checkpoint failed goes on being examined: people need the rest of it to decide.
    """
    but = "qc" if role == "qc" else None
    held = {scope: found for scope, found in acts.pauses.items() if found.pause.cause != but}
    return in_force(replace(acts, pauses=held), scopes_of(experiment, role, contract))


def require_running(acts: Acts, experiment: str, scopes: Iterable[str]) -> None:
    """Let only work start that is neither cancelled nor paused.

    Raises:
        CancelledError: its experiment was ended for good.
        FleetPaused: a pause is in force.
    """
    _require_not(acts, in_force(acts, scopes), experiment)


def require_examining(acts: Acts, experiment: str, suite: str) -> None:
    """Let only QC start that is neither cancelled nor paused.

    Raises:
        CancelledError: its experiment was ended for good.
        FleetPaused: a pause is in force.
    """
    _require_not(acts, pause_of(acts, experiment, "qc", suite), experiment)


def _require_not(acts: Acts, found: InForce | None, experiment: str) -> None:
    if acts.cancelled is not None:
        raise CancelledError(
            f"{experiment} was {acts.cancelled.words}",
            rule="a cancelled experiment is never started again; nothing of it was deleted",
            remedy="give the plan a new name",
        )
    if found is not None:
        raise FleetPaused(
            f"{experiment} is {found.words}",
            field="scope",
            value=found.pause.scope,
            remedy=way_on(found),
        )


def way_on(found: InForce) -> str:
    """The command that ends a pause, once its cause is gone."""
    match found.pause.cause:
        case "defect":
            return f'raykit resume {_target(found)} --repair "what you changed" --by NAME'
        case "exactness":
            return f'raykit resume {_target(found)} --as inexact --reason "why that is good enough" --by NAME'
        case "premise" | "qc":
            return f'raykit resume {_target(found)} --repair "what was decided, and why" --by NAME'
        case "ceiling" | "replan" if found.pause.person.startswith(OF_SEARCH):
            return f"raykit resume {_target(found)} --by NAME"
        case _:
            return f"raykit resume {_target(found)}"


def require_cleared(found: InForce, *, repair: str | None, needs_replan: str | None) -> str:
    """How the cause of a pause was cleared, in words, if it was.

    `needs_replan` says what keeps money from moving, as the ledger stands; None if nothing does.

    Raises:
        FleetPaused: a shared defect without a repair.
        ReplanError: money is at its end, and nobody has moved any.
    """
    match found.pause.cause:
        case "person":
            return "a person asked for it, and a person goes on"
        case "defect":
            if repair is None:
                raise FleetPaused(
                    f"{found.words}; no repair is recorded",
                    rule="a shared defect is repaired before anyone meets it again",
                    remedy=way_on(found),
                )
            return f"repaired: {repair}"
        case "premise":
            if repair is None:
                raise FleetPaused(
                    f"{found.words}; nobody has decided anew",
                    rule="a mistaken premise, new costs or a poor trade-off go to a person before more is spent",
                    remedy=way_on(found),
                )
            return f"decided anew: {repair}"
        case "qc":
            if repair is None:
                raise FleetPaused(
                    f"{found.words}; nobody has said what is done about it",
                    rule="a failed check goes to a person before more is spent",
                    remedy=way_on(found),
                )
            return f"looked at: {repair}"
        case "exactness":
            if repair is None:
                raise FleetPaused(
                    f"{found.words}; nobody has said what is done about it",
                    rule="a run that is not what it was to be goes to a person before more is spent",
                    remedy=way_on(found),
                )
            return f"decided: {repair}"
        case "ceiling" | "replan":
            if needs_replan is not None:
                raise ReplanError(
                    f"{found.words}; {needs_replan}",
                    remedy=f"raykit budget replan {_target(found)} --reason ... --by NAME",
                )
            return "the ledger allows it now"


def _target(found: InForce) -> str:
    """What a person would type for its scope."""
    return found.pause.scope.removeprefix("experiment:")
