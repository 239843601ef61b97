"""`raykit lessons`: what the experiments of a store came to, each once and none a rule; and how things were chosen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_root, open_root, require_store
from raykit.cli.subject import Subject, subject_of

if TYPE_CHECKING:
    from raykit.read import RunView
    from raykit.records import Concluded
    from raykit.store.learned import Known, Lessons

Negative = tuple["Known[Concluded]", tuple[str, ...]]
"""One that came to nothing, and what it has in common with what is asked about."""


def lessons(
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="NAME|PLAN", help="Only what tried the same as this one."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What the experiments of this store came to: negative results, and what went wrong once.

    Each is one incident, and none is a rule. To read before a restart.

    Raises:
        UnsafeNameError: NAME cannot be one.
        NotFoundError: there is no such experiment, or no store.
        PlanError: the plan file is wrong.
        CorruptError: the plan that is stored is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.learned import read_lessons

    found = open_root(root)
    require_store(found)
    subject = None if like is None else subject_of(found.store, like)
    learned, views = read_lessons(found.store), found.runs()
    negatives = [
        (each, same) for each in learned.negatives() if (same := _same(each, subject)) or subject is None
    ]
    if as_json:
        output.print_json(_record(learned, negatives, views))
    else:
        output.print_lines(_lines(learned, negatives, views, like, at_root(root)))


def _same(known: Known[Concluded], subject: Subject | None) -> tuple[str, ...]:
    from raykit.store.learned import alike

    if subject is None:
        return ()
    return alike(known.event, decision=subject.decision, contract=subject.contract, hypotheses=subject.ideas)


def _record(learned: Lessons, negatives: Sequence[Negative], views: Sequence[RunView]) -> dict[str, Any]:
    return {
        "negatives": [{**known_record(each), "same": list(same)} for each, same in negatives],
        "incidents": [known_record(each) for each in learned.incidents()],
        "scope": {
            "store": learned.store,
            "experiments": list(learned.looked_at),
            "unread": list(learned.unread),
            "runs": [_run_record(view) for view in views],
        },
    }


def _run_record(view: RunView) -> dict[str, Any]:
    return {
        "id": view.id,
        "state": _state(view),
        "update": view.update,
        "updates": view.updates,
        "cost": None if view.money is None else view.money.actual,
    }


def _state(view: RunView) -> str:
    return "cancelled" if view.fleet.cancelled is not None else view.state


def _lines(
    learned: Lessons, negatives: Sequence[Negative], views: Sequence[RunView], like: str | None, at: str
) -> Iterator[str]:
    of = "" if like is None else f" like {like}"
    yield f"  negative results{of}" if negatives else f"  no negative result{of} is on record here"
    for each, same in negatives:
        yield from _negative_lines(each, same)
    happened = learned.incidents()
    yield "  incidents" if happened else "  no incident is on record here"
    for noted in happened:
        yield f"  one incident, no rule: {_day(noted.at)} {noted.experiment}: {noted.event.says}"
    yield from _scope(learned, views, at)


def _negative_lines(known: Known[Concluded], same: Sequence[str]) -> Iterator[str]:
    event = known.event
    shared = f"   same {', '.join(same)}" if same else ""
    yield f"  one result, no rule: {_day(known.at)} {known.experiment}: {event.outcome}{shared}"
    if event.hypothesis is not None:
        yield f"    tried    {event.hypothesis}"
    yield f"    says     {event.says}"
    if event.effect is not None:
        yield f"    effect   {event.effect}"
    yield f"    setting  contract {output.short(event.contract)}, at update {output.count(event.update)}"


def _scope(learned: Lessons, views: Sequence[RunView], at: str) -> Iterator[str]:
    """What was looked at; that nothing was found there does not mean that nobody tried."""
    states = Counter(_state(view) for view in views)
    ends = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    runs = f"runs: {len(views)}" + (f" ({ends})" if ends else "")
    yield f"  looked at: experiments: {len(learned.looked_at)}, {runs}, in {learned.store}; nowhere else"
    if learned.unread:
        yield f"  could not be read: {', '.join(learned.unread)}"
        yield f"  -> raykit check{at}"


# --- one thing that was learned -----------------------------------------------------------------------------


def known_record(known: Known[Any]) -> dict[str, Any]:
    """It as JSON values."""
    return {**known.event.plain(), "experiment": known.experiment, "at": known.at}


def known_line(known: Known[Any]) -> str:
    """It as one step of how something came to be chosen."""
    from raykit.records import Noted, Observed
    from raykit.review.diagnosis import outcome

    event = known.event
    if isinstance(event, Observed):
        text = f"{event.test}: {outcome(event)}"
    elif isinstance(event, Noted):
        text = f"{event.kind}: {event.says}"
    else:
        text = f"concluded {event.outcome}: {event.says}"
    return f"{_day(known.at)} {known.experiment}: {text}"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
