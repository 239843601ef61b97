"""What ends a pause of one experiment: its cause has to be gone, and the door has to let the run go on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output
from raykit.cli.options import at_root, person_of, words
from raykit.errors import CancelledError, GateError, InvalidInput, RaykitError, Refused, Stopped

if TYPE_CHECKING:
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.pauses import Acts, InForce, Role
    from raykit.plan import Plan
    from raykit.read.setview import SetRead
    from raykit.search import SearchState
    from raykit.store.base import ObjectStore

Repair = Annotated[
    str | None, typer.Option("--repair", metavar="TEXT", help="What was changed after a check had failed.")
]


def repair_words(repair: str | None) -> str | None:
    """What was repaired, in words that can be kept."""
    return None if repair is None else words(repair, field="--repair", what="what was changed?")


def record_repair(site: Site, what: str, person: str) -> None:
    """Record what was done about the checks that have failed; without any, the words are for a pause that needs them.

    Raises:
        GateError: no check has failed, and no pause waits for words.
    """
    from raykit.store.people import repair

    failed = site.run_log("reader").state.failed
    if failed:
        repair(site.store, site.name, what=what, attempt=max(failed.values()), person=person, at=time.time())
    elif _needing_words(site) is None:
        raise GateError(
            f"no check of {site.name} has failed: there is nothing to repair",
            field="--repair",
            remedy="leave --repair out",
        )


def repair_option(store: ObjectStore, name: str, harmless: Sequence[str], person: str) -> str:
    """What going on needs beside, where a gate has failed over state that is said to be harmless now."""
    from raykit.store.log import RunLog

    log = RunLog(store, name, "main", by="reader")
    log.refresh()
    said = f"{', '.join(harmless)} is harmless"
    return f' --repair "{said}" --by {person}' if log.state.failed else ""


def _needing_words(site: Site) -> InForce | None:
    """The pause of this experiment that ends only by what somebody says was changed or decided."""
    from raykit.pauses import NEEDS_WORDS
    from raykit.store.people import read_acts

    found = read_acts(site.store, site.name).pauses.get(f"experiment:{site.name}")
    return found if found is not None and found.pause.cause in NEEDS_WORDS else None


def end_pause(site: Site, what: str, by: str | None) -> None:
    """End such a pause before this very plan is launched; another one holds as it did.

    Raises:
        GateError: its cause is not gone.
        InvalidInput: nobody was named.
    """
    from raykit.pauses import require_cleared
    from raykit.store.people import resume

    found = _needing_words(site)
    if found is not None:
        cleared = require_cleared(found, repair=what, needs_replan=None)
        resume(site.store, found.pause.scope, cleared=cleared, person=person_of(by), at=time.time())
        typer.echo(output.clean(f"  the pause is over ({found.words}): {cleared}"), err=True)


def lift(
    site: Site,
    repair: str | None,
    by: str | None,
    approved: Approving | None,
    *,
    decided: str | None = None,
) -> InForce | None:
    """End the pause of this experiment, if its cause is gone and the run could go on; the pause that is over.

    A wider one is not ended here. `decided` is why a person lets the run go on less exactly than it was to be.

    Raises:
        RaykitError: what would refuse the run; then the pause holds as it did.
    """
    from raykit.pauses import MONEY_CAUSES, require_cleared, require_running, scopes_of
    from raykit.store.people import read_acts, resume

    scope, acts = f"experiment:{site.name}", read_acts(site.store, site.name)
    found = acts.pauses.get(scope)
    if found is None:
        return None
    others = {other: pause for other, pause in acts.pauses.items() if other != scope}
    require_running(replace(acts, pauses=others), site.name, scopes_of(site.name, role_of(site)))
    of_class = found.pause.cause == "exactness"
    repair = decided or _harmless(site, acts) if of_class else repair or _answered(site, acts)
    refusal = would_refuse(site, replace(acts, pauses=others), approved)
    if refusal is not None and found.pause.cause not in MONEY_CAUSES:
        raise refusal
    short = None if refusal is None else refusal.message
    cleared = require_cleared(found, repair=repair, needs_replan=short)
    resume(site.store, scope, cleared=cleared, person=by or "raykit resume", at=time.time())
    typer.echo(output.clean(f"  the pause is over ({found.words}): {cleared}"), err=True)
    return found


def is_over(site: Site) -> bool:
    """Whether nothing of it goes on: a run that has trained to its end, or a search that is complete.

    One that was cancelled before that is not over: it is refused.
    """
    if site.plan.search is None:
        return site.run_log("reader").state.completed
    from raykit.fleet.search.opening import is_over
    from raykit.store.people import read_acts
    from raykit.store.search import read_search

    state, acts = read_search(site.store, site.name), read_acts(site.store, site.name)
    if state is None or acts.cancelled is not None or _many_ended(state):
        return False
    return is_over(state, acts)


def require_opener(site: Site, by: str | None) -> None:
    """Let nobody open rows again that a budget has ended without saying who does.

    Raises:
        InvalidInput: nobody was named.
    """
    ended = ended_by_budget(site.store, site.plan)
    if ended and by is None:
        rows = "1 row" if ended == 1 else f"{ended:,} rows"
        was, them = ("was", "it") if ended == 1 else ("were", "them")
        raise InvalidInput(
            f"{rows} of {site.name} {was} ended by a budget, and going on opens {them} again",
            field="--by",
            rule="a named person",
            remedy=f"raykit resume {site.name} --by NAME",
        )


def ended_by_budget(store: ObjectStore, plan: Plan) -> int:
    """How many rows of a search go on once a person has moved money; of a plain run there are none.

    Raises:
        CorruptError: the search's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.search import read_search

    state = None if plan.search is None else read_search(store, plan.name)
    return 0 if state is None else _many_ended(state)


def _many_ended(state: SearchState) -> int:
    from raykit.records import BY_BUDGET

    return sum(state.counts[end] for end in BY_BUDGET)


def resume_command(store: ObjectStore, plan: Plan) -> str:
    """What goes on with an experiment; rows that a budget has ended are opened again by a named person.

    Raises:
        CorruptError: the search's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return f"raykit resume {plan.name}{' --by NAME' if ended_by_budget(store, plan) else ''}"


def waiting_sets(store: ObjectStore, plan: Plan) -> list[SetRead]:
    """The synthetic sets of a run that has trained to its end, as far as they wait for somebody; none before that.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.log import RunLog

    if plan.search is not None or not plan.generate:
        return []
    log = RunLog(store, plan.name, "main", by="reader")
    log.refresh()
    if not log.state.completed:
        return []
    # Here, because it needs numpy: who generates nothing does without.
    from raykit.read.generation import read_sets

    return [read for read in read_sets(store, plan.name, now=time.time()) if read.command is not None]


def ways_on(site: Site) -> Iterator[str]:
    """What goes on with work that has paused, one command after the other; none if it was cancelled."""
    from raykit.fleet.jobs.before import pause_in_force
    from raykit.pauses import MONEY_CAUSES, way_on

    at = at_root(site.root)
    resume = f"raykit resume {site.name}{at}"
    try:
        found = pause_in_force(site)
        resume = f"{resume_command(site.store, site.plan)}{at}"
    except CancelledError:
        return
    except RaykitError:  # the store cannot be read now; what the command needs it says itself
        found = None
    if found is None:
        yield resume
        return
    if found.pause.cause in MONEY_CAUSES:
        yield f"raykit budget replan {site.name}{at} --reason ... --by NAME"
    yield f"{way_on(found)}{at}"
    if not found.pause.scope.startswith("experiment:"):
        yield resume


def role_of(site: Site) -> Role:
    """By which pauses a plan is reached."""
    return "train" if site.plan.search is None else "search"


def _answered(site: Site, acts: Acts) -> str | None:
    """What a person has said of the failed checks that paused this experiment, once all of them are reviewed."""
    from raykit.qc.backlog import unheeded
    from raykit.read.qc_runs import read_qc_of, whose_of

    found, whose = acts.pauses[f"experiment:{site.name}"], whose_of(site.plan)
    read = None if found.pause.cause != "qc" else read_qc_of(site.store, site.name, whose, now=time.time())
    if read is None or unheeded(read.backlog, acts.qc_seen_at):
        return None
    said = [each.review.event for each in read.backlog.failed if each.review is not None]
    return f"reviewed as failed by {said[-1].person}: {said[-1].note}" if said else None


def _harmless(site: Site, acts: Acts) -> str | None:
    """Why a run that had fallen needs nobody's word any more: all that was found is harmless, as somebody has said."""
    from raykit.exactness import falls

    harmless = acts.harmless | frozenset(site.plan.run.harmless)
    return (
        None if falls(site.run_log("reader").state, harmless) else "what was found is harmless, as recorded"
    )


def would_refuse(site: Site, acts: Acts, approved: Approving | None) -> RaykitError | None:
    """What the door would say to another attempt, if it is no."""
    from raykit.fleet.site import make_ready
    from raykit.fleet.spending import require_spendable

    if site.plan.search is not None:
        from raykit.fleet.search.going import refusal_of

        return refusal_of(site, acts, approved)
    log = site.run_log("reader")
    if log.state.completed:
        return None
    try:
        require_spendable(site, make_ready(site).lock, log, acts, approved)
    except (Refused, Stopped) as refusal:
        return refusal
    return None
