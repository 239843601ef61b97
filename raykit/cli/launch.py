"""`raykit launch` and `raykit resume`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output
from raykit.cli.options import (
    DEFAULT_ROOT,
    LAUNCH,
    Json,
    Root,
    Scripted,
    amount_of,
    at_plan,
    at_root,
    is_scripted,
    person_of,
    require_whole,
    words,
)
from raykit.cli.progress import display
from raykit.errors import ApprovalError, GateError, InvalidInput, PlanError, RaykitError, Refused, Stopped
from raykit.records import EXACTNESS

if TYPE_CHECKING:
    from raykit.fleet.outcome import Outcome
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.pauses import Acts, InForce, Role
    from raykit.read.setview import SetRead
    from raykit.store.base import ObjectStore

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")]
Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="AMOUNT", help="Let this plan come to AMOUNT, as the person of --by."),
]
Repair = Annotated[
    str | None, typer.Option("--repair", metavar="TEXT", help="What was changed after a check had failed.")
]


Deviation = Annotated[
    str | None,
    typer.Option(
        "--deviation", metavar="TEXT", help="Why the plan was changed after results were seen; kept for ever."
    ),
]
Person = Annotated[
    str | None,
    typer.Option("--by", envvar="RAYKIT_PERSON", help="The person who says so."),
]


def launch(
    plan: Plan,
    approve: Approve = None,
    repair: Repair = None,
    deviation: Deviation = None,
    by: Person = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Run a plan on a private local Ray, or go on with it where it was left; a finished plan is left alone.

    SIGTERM and Ctrl-C commit at the next update and leave with exit code 4; the same command goes on. So does
    `raykit pause` from anywhere that sees the store; then `raykit resume` goes on.

    Raises:
        RaykitError: whatever refuses the launch, or ended it.
    """
    from raykit.fleet.site import site_of

    repair = _changed(repair)
    with at_plan(plan, root):
        site = site_of(plan, root)
        _require_no_search(site)
        if repair is not None:
            _repaired(site, repair, person_of(by))
            _end_pause(site, repair, by)
        said = said_of(deviation, by)
        _run(site, json=json, approved=approving(approve, by, scripted), deviation=said)


def resume(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PLAN|SCOPE", help="An experiment of the store, a plan file, or a paused scope."
        ),
    ],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="CLASS", help="Allow this exactness class, as an amendment.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why that is good enough; kept for ever.")
    ] = None,
    approve: Approve = None,
    repair: Repair = None,
    by: Person = None,
    scripted: Scripted = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Go on in the background; follow with raykit watch.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """End a pause, and go on with the run: with the plan and code that are frozen in the store, by name.

    A pause ends only when its cause is gone: money that was moved, a defect that was repaired. `all`, `role:train`
    and `contract:DIGEST` only end the pause of that scope, and say how each run goes on. What was a Ray job goes on as
    one: on the dev cluster or the one of RAY_ADDRESS, if it ran there; otherwise it is said how to submit it again.

    With `--as`, a named person allows this run to go on with exactly the differences that there are now; the
    amendment is recorded and printed in every report.

    Raises:
        PlanError: an unknown class.
        ApprovalError: an amendment without a person or a reason.
        RaykitError: whatever refuses the launch, or ended it.
    """
    repair = _changed(repair)
    by = None if by is None else person_of(by)
    if _is_wide(target):
        _resume_scope(target, repair, by, root, json=json)
        return
    from raykit.cli.submit import Wish, go_on, last_job
    from raykit.fleet.claim import amend
    from raykit.fleet.site import site_of, stored_site

    with ExitStack() as stack:
        is_file = target.endswith(".toml") or Path(target).is_file()
        name = target.removeprefix("experiment:")
        if not is_file:
            require_whole(target, "resume", field="NAME")
        site = site_of(Path(target), root) if is_file else stack.enter_context(stored_site(name, root))
        if as_ is not None:
            if as_ not in EXACTNESS:
                raise PlanError(f"{as_} is not an exactness class", field="--as", rule=" | ".join(EXACTNESS))
            if not reason or not by:
                raise ApprovalError(
                    "an amendment needs a person and a reason",
                    field="--by, --reason",
                    remedy=f'raykit resume {target} --as {as_} --by NAME --reason "..."',
                )
            why = words(reason, field="--reason", what="an amendment needs a reason")
            for difference in amend(site, allows=as_, reason=why, person=by):
                typer.echo(
                    f"  allowed by {by}: {difference.what}: {difference.was} -> {difference.now}", err=True
                )
        approved = approving(approve, by, scripted)
        if repair is not None:
            _repaired(site, repair, person_of(by))
        _require_opener(site, by)
        lifted = _clear(site, repair, by, approved)
        job = None if is_file else last_job(site)
        if job is not None:
            typed = not is_scripted(scripted)
            wish = Wish(approved=approved, amount=approve, person=by, typed=typed)
            go_on(site, name, job, wish, detach=detach, json=json)
        elif detach:
            _detach(site, approved, json=json)
        elif site.plan.search is not None:
            from raykit.cli.searchrun import run_search

            run_search(site, json=json, approved=approved, lifted=lifted)
        else:
            _run(site, json=json, approved=approved, lifted=lifted)


def _require_no_search(site: Site) -> None:
    """Let only a plan be launched that has one run.

    Raises:
        GateError: it is a search: its rows are registered first, and each is a run of its own.
    """
    if site.plan.search is not None:
        raise GateError(
            f"{site.name} is a search of {site.plan.search.rows:,} rows, and a launch is of one run",
            field="search",
            rule="a plan without [search]",
            remedy="raykit search PLAN",
        )


# --- people -------------------------------------------------------------------------------------------------


def approving(amount: str | None, by: str | None, scripted: bool) -> Approving | None:
    """What a person says about the money of a plan; None if nobody does.

    Raises:
        InvalidInput: it is no amount, or nobody was named.
    """
    if amount is None:
        return None
    from raykit.fleet.spending import Approving

    return Approving(
        amount=amount_of(amount, "--approve"), person=person_of(by), scripted=is_scripted(scripted)
    )


def said_of(deviation: str | None, by: str | None) -> str | None:
    """What a person says of a plan that was changed after results were seen; None if nobody does.

    Raises:
        InvalidInput: nobody was named, or nothing is said.
    """
    if deviation is None:
        return None
    why = words(deviation, field="--deviation", what="why the plan was changed after results were seen")
    return f"{why} ({person_of(by)})"


def _changed(repair: str | None) -> str | None:
    """What was repaired, in words that can be kept."""
    return None if repair is None else words(repair, field="--repair", what="what was changed?")


def _repair(site: Site, what: str, person: str) -> None:
    """Record what was done about the checks that have failed so far."""
    from raykit.store.people import repair

    state = site.run_log("reader").state
    if not state.failed:
        raise GateError(
            f"no check of {site.name} has failed: there is nothing to repair",
            field="--repair",
            remedy="leave --repair out",
        )
    repair(
        site.store, site.name, what=what, attempt=max(state.failed.values()), person=person, at=time.time()
    )


def _repaired(site: Site, what: str, person: str) -> None:
    """Record what was done about failed checks; without any, the words are for a pause that needs them."""
    if site.run_log("reader").state.failed or _needing_words(site) is None:
        _repair(site, what, person)


def _needing_words(site: Site) -> InForce | None:
    """The pause of this experiment that ends only by what somebody says was changed or decided."""
    from raykit.pauses import NEEDS_WORDS
    from raykit.store.people import read_acts

    found = read_acts(site.store, site.name).pauses.get(f"experiment:{site.name}")
    return found if found is not None and found.pause.cause in NEEDS_WORDS else None


def _end_pause(site: Site, what: str, by: str | None) -> None:
    """End such a pause before this very plan is launched; another one holds as it did."""
    from raykit.pauses import require_cleared
    from raykit.store.people import resume

    found = _needing_words(site)
    if found is not None:
        cleared = require_cleared(found, repair=what, needs_replan=None)
        resume(site.store, found.pause.scope, cleared=cleared, person=person_of(by), at=time.time())
        typer.echo(output.clean(f"  the pause is over ({found.words}): {cleared}"), err=True)


def _clear(site: Site, repair: str | None, by: str | None, approved: Approving | None) -> InForce | None:
    """End the pause of this experiment, if its cause is gone and the run could go on; the pause that is over.

    A wider one is not ended here.

    Raises:
        RaykitError: what would refuse the run; then the pause holds as it did.
    """
    from dataclasses import replace

    from raykit.pauses import require_cleared, require_running, scopes_of
    from raykit.store.people import read_acts, resume

    scope, acts = f"experiment:{site.name}", read_acts(site.store, site.name)
    found = acts.pauses.get(scope)
    if found is None:
        return None
    others = {other: pause for other, pause in acts.pauses.items() if other != scope}
    require_running(replace(acts, pauses=others), site.name, scopes_of(site.name, _role(site)))
    repair = repair or _answered(site, acts)
    refusal = _would_refuse(site, replace(acts, pauses=others), approved)
    if refusal is not None and found.pause.cause not in ("ceiling", "replan"):
        raise refusal
    short = None if refusal is None else refusal.message
    cleared = require_cleared(found, repair=repair, needs_replan=short)
    resume(site.store, scope, cleared=cleared, person=by or "raykit resume", at=time.time())
    typer.echo(output.clean(f"  the pause is over ({found.words}): {cleared}"), err=True)
    return found


def _require_opener(site: Site, by: str | None) -> None:
    """Let nobody open rows again that a budget has ended without saying who does.

    Raises:
        InvalidInput: nobody was named.
    """
    from raykit.records import BY_BUDGET
    from raykit.store.search import read_search

    state = None if site.plan.search is None else read_search(site.store, site.name)
    ended = 0 if state is None else sum(state.counts[end] for end in BY_BUDGET)
    if ended and by is None:
        raise InvalidInput(
            f"{ended:,} rows of {site.name} were ended by a budget, and going on opens them again",
            field="--by",
            rule="a named person",
            remedy=f"raykit resume {site.name} --by NAME",
        )


def _role(site: Site) -> Role:
    """By which pauses a plan is reached."""
    return "train" if site.plan.search is None else "search"


def _answered(site: Site, acts: Acts) -> str | None:
    """What a person has said of the failed checks that paused this experiment, once all of them are reviewed."""
    import time

    from raykit.qc.backlog import unheeded
    from raykit.read.qc_runs import read_qc_of, whose_of

    found, whose = acts.pauses[f"experiment:{site.name}"], whose_of(site.plan)
    read = None if found.pause.cause != "qc" else read_qc_of(site.store, site.name, whose, now=time.time())
    if read is None or unheeded(read.backlog, acts.qc_seen_at):
        return None
    said = [each.review.event for each in read.backlog.failed if each.review is not None]
    return f"reviewed as failed by {said[-1].person}: {said[-1].note}" if said else None


def _would_refuse(site: Site, acts: Acts, approved: Approving | None) -> RaykitError | None:
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


def _is_wide(target: str) -> bool:
    return target == "all" or target.startswith(("role:", "contract:"))


def _resume_scope(target: str, repair: str | None, by: str | None, root: str, *, json: bool) -> None:
    from raykit.pauses import NEEDS_WORDS, require_cleared, scope_of
    from raykit.store import open_store
    from raykit.store.people import read_scope, resume

    store, scope = open_store(root), scope_of(target)
    found = read_scope(store, scope).pauses.get(scope)
    if found is not None:
        cleared = require_cleared(found, repair=repair, needs_replan=None)
        if found.pause.cause in NEEDS_WORDS:
            person_of(by)
        resume(store, scope, cleared=cleared, person=by or "raykit resume", at=time.time())
    waiting, sets = _waiting(store), _waiting_sets(store, scope)
    if json:
        record = {"scope": scope, "was_paused": found is not None, "continue": waiting}
        output.print_json({**record, "sets": [each.brief() for each in sets]})
        return
    typer.echo(
        f"{scope} is not paused; nothing was written."
        if found is None
        else output.clean(f"{scope} goes on ({found.words}).")
    )
    for name in waiting:
        typer.echo(f"  continue raykit resume {name}{at_root(root)}")
    for each in sets:
        output.print_lines(_set_lines(each, at_root(root)))


def _waiting(store: ObjectStore) -> list[str]:
    """The experiments whose run, or search, was paused and has not ended."""
    import raykit

    found = raykit.open(store)
    paused = [view.experiment for view in found.runs(trials=False) if view.state == "paused"]
    return [*paused, *(read.experiment for read in found.searches() if read.state == "stopped")]


def _waiting_sets(store: ObjectStore, scope: str) -> list[SetRead]:
    """The synthetic sets of a scope that can go on now, and wait for a launch."""
    import raykit
    from raykit.pauses import scopes_of

    found = []
    for read in (read for view in raykit.open(store).runs(trials=False) for read in view.sets):
        digest = None if read.made is None else read.made.digest
        if read.waits_for == "a launch of its plan":
            found += [read] * (scope in scopes_of(read.experiment, "generate", digest))
    return found


def _open_sets(site: Site) -> list[SetRead]:
    """The synthetic sets of a trained run that wait for somebody."""
    from raykit.read.generation import read_sets

    if not site.plan.generate:
        return []
    return [read for read in read_sets(site.store, site.name, now=time.time()) if read.command is not None]


def _set_lines(read: SetRead, at: str) -> Iterator[str]:
    """How far a set is, and the command that goes on with it."""
    from raykit.cli.setlines import line, way_on

    yield f"  {line(read)}"
    yield from way_on(read, at)


# --- running ------------------------------------------------------------------------------------------------


def _detach(site: Site, approved: Approving | None, *, json: bool) -> None:
    """Start `raykit resume NAME` as a process of its own, its words in a file.

    Raises:
        RaykitError: what would refuse the run; then nothing is started.
    """
    import tempfile

    from raykit.budget.amounts import plain
    from raykit.pauses import require_running, scopes_of
    from raykit.store.people import read_acts

    acts = read_acts(site.store, site.name)
    require_running(acts, site.name, scopes_of(site.name, _role(site)))
    if (refusal := _would_refuse(site, acts, approved)) is not None:
        raise refusal

    handle, log = tempfile.mkstemp(prefix=f"raykit-{site.name}-", suffix=".log")
    command = [sys.executable, "-m", "raykit.cli.main", "resume", site.name, "--root", site.root]
    if approved is not None:
        command += ["--approve", plain(approved.amount), "--by", approved.person, "--scripted"]
    with os.fdopen(handle, "wb") as file:
        process = subprocess.Popen(  # noqa: S603 - this very program
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    if json:
        output.print_json({"experiment": site.name, "pid": process.pid, "log": log})
    else:
        typer.echo(
            f"{site.name} goes on in process {process.pid}.\n"
            f"  follow   raykit watch {site.name}{at_root(site.root)}   or   tail -f {log}\n"
            f"  pause    raykit pause {site.name}{at_root(site.root)} --reason ..."
        )


def _run(
    site: Site,
    *,
    json: bool,
    approved: Approving | None,
    deviation: str | None = None,
    lifted: InForce | None = None,
) -> None:
    """`lifted` is the pause that was ended just now."""
    from raykit.fleet.supervisor import launch

    said: set[str] = set()

    def run(approved: Approving | None) -> Outcome:
        with display(quiet=json) as shown:

            def say_once(line: str) -> None:
                if line not in said:
                    said.add(line)
                    shown.say(line)

            return launch(
                site,
                tell=shown.tell,
                say=say_once,
                approved=approved,
                deviation=deviation,
                name=os.environ.get(LAUNCH),
            )

    try:
        outcome = run(approved)
    except ApprovalError as error:
        typed = ask_amount(error, site) if approved is None and not json else None
        if typed is None:
            raise
        outcome = run(typed)
    if json:
        lifting = {} if lifted is None else {"was_paused": lifted.pause.plain()}
        output.print_json({**_record(outcome), **lifting})
    else:
        typer.echo(_text(outcome, site, lifted))
        for each in _open_sets(site) if outcome.already else ():
            output.print_lines(_set_lines(each, at_root(site.root)))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def ask_amount(error: ApprovalError, site: Site) -> Approving | None:
    """What a person types on a terminal to approve this plan; None off a terminal, or if they do not.

    Raises:
        InvalidInput: what was typed is no amount, or nothing.
    """
    person = os.environ.get("RAYKIT_PERSON")
    if (
        not (sys.stdin.isatty() and sys.stderr.isatty())
        or site.plan.budget is None
        or error.field != "account"
    ):
        return None
    from raykit.budget.amounts import micros
    from raykit.fleet.spending import Approving

    ceiling = site.plan.budget.ceiling
    typer.echo(
        f"  {error.message}\n"
        f"  Approving covers: this plan up to {ceiling:,.2f}; no restart, no sealed set, no promotion, no deletion.",
        err=True,
    )
    person = person or typer.prompt("  Your name", err=True)
    typed = typer.prompt(
        f"  Type the amount to approve as {person} (Enter: no)", default="", show_default=False, err=True
    )
    if not typed.strip():
        return None
    amount = micros(typed.strip(), field="the amount")
    if amount <= 0:
        raise InvalidInput("nothing was approved", field="the amount", value=typed)
    return Approving(amount=amount, person=person, scripted=False)


def _record(outcome: Outcome) -> dict[str, object]:
    return {
        "experiment": outcome.experiment,
        "run": outcome.run,
        "reason": outcome.reason,
        "cause": outcome.cause,
        "update": outcome.update,
        "already": outcome.already,
        "detail": outcome.detail,
        "ratio": outcome.ratio,
        "curves": list(outcome.curves),
        "qc": outcome.qc and {**outcome.qc.counts(), "complete": outcome.qc.backlog.complete},
        "qc_pictures": list(outcome.pictures),
        "cost_micros": outcome.cost,
        "exit_code": outcome.exit_code,
    }


def _text(outcome: Outcome, site: Site, lifted: InForce | None = None) -> str:
    at = at_root(site.root)
    name, update = outcome.experiment, output.count(outcome.update)
    if outcome.already:
        word = "complete" if _is_whole(outcome) else "trained"
        wrote = "nothing was written" if lifted is None else "its pause is over, and nothing else was written"
        done = f"{name} is already {word}, at update {update}; {wrote}."
        return f"{done}{_qc(outcome, site)}\n  see      raykit show {name}{at}"
    pictures = "".join(f"\n  curves   {site.store.url}/{key}" for key in outcome.curves)
    match outcome.reason:
        case "completed":
            ratio = "" if outcome.ratio is None else f", ratio {outcome.ratio:.3f} (no skill 1.000)"
            early = f" ({outcome.detail})" if outcome.detail else ""
            head = f"{name} is {'complete' if _is_whole(outcome) else 'trained'} at update {update}{early}{ratio}."
            tail = f"\n  next     raykit show {name}{at}   raykit history {name}{at}   raykit check{at}"
        case "paused" if outcome.cause == "ceiling":
            head = f"{name} is paused at update {update}: {outcome.detail}; nothing is lost."
            tail = (
                f"\n  why      raykit budget show {name}{at}"
                f"\n  continue raykit budget replan {name}{at} --reason ... --by NAME   then   raykit resume {name}{at}"
            )
        case "paused" if outcome.cause == "qc":
            head = f"{name} is paused at update {update}: {outcome.detail}; nothing is lost."
            tail = (
                f"\n  look     raykit qc status {name}{at}   raykit report {name}{at}"
                f'\n  continue raykit resume {name} --repair "what was decided, and why" --by NAME{at}'
            )
        case "failed" if outcome.cause == "qc":
            head = f"{name} ended at update {update}: {(outcome.detail or '').removeprefix('gate: ')}"
            tail = (
                f"\n  look     raykit qc status {name}{at}   raykit report {name}{at}"
                f'\n  continue raykit resume {name} --repair "what you changed" --by NAME{at}'
            )
        case "paused" | "preempted":
            head = f"{name} stopped at update {update} ({outcome.detail or outcome.reason}); nothing is lost."
            tail = f"\n  continue raykit resume {name}{at}"
        case _:
            head = f"{name} {outcome.reason} at update {update}: {outcome.detail or 'see the log'}"
            tail = (
                f"\n  look     raykit logs {name}{at}"
                f"\n  continue raykit launch PLAN{at} after a fix; unchanged: raykit resume {name}{at}"
            )
    return head + _cost(outcome, site) + pictures + _qc(outcome, site) + tail


def _is_whole(outcome: Outcome) -> bool:
    """Nothing of its QC is open or waits for a review: until then a run is trained, and not complete."""
    return outcome.qc is None or outcome.qc.backlog.complete


def _qc(outcome: Outcome, site: Site) -> str:
    """How far the examinations are, where their pictures lie, and what is to be done."""
    if outcome.qc is None:
        return ""
    from raykit.cli.qclook import counted
    from raykit.pauses import way_on as ends
    from raykit.qc.backlog import way_on

    sheets = [key for key in outcome.pictures if key.endswith("sheet.png")]
    sheet = "".join(f"\n  sheet    {site.store.url}/{key}" for key in sheets)
    held = outcome.qc.pause
    command = ends(held) if held is not None else way_on(outcome.qc.backlog, outcome.experiment)
    first = "" if command is None else f"\n  then     {command}{at_root(site.root)}"
    why = "" if held is None else f"\n           {output.clean(held.words)}"
    if held is not None and held.pause.scope.startswith("contract:"):  # a suite, and its code is frozen
        mended = f'raykit qc relock PLAN --deviation "what you changed" --by NAME{at_root(site.root)}'
        first += f"\n  or       {mended}   once the recipe's own QC code is mended"
    return f"\n  qc       {counted(outcome.qc)}{why}{sheet}{first}"


def _cost(outcome: Outcome, site: Site) -> str:
    if not outcome.cost:
        return ""
    from raykit.read.sizing import unit_of

    spent = output.amount(outcome.cost, unit_of(site.plan))
    show = f"raykit budget show {outcome.experiment}{at_root(site.root)}"
    return f"\n  cost     {spent} for this launch; all of it: {show}"
