"""`raykit resume`: end a pause once its cause is gone, and go on from what is frozen in the store."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output, setlines
from raykit.cli.approving import Approve, Person, approving
from raykit.cli.launched import run_launch
from raykit.cli.lifting import (
    Repair,
    is_over,
    lift,
    record_repair,
    repair_words,
    require_opener,
    role_of,
    would_refuse,
)
from raykit.cli.options import (
    DEFAULT_ROOT,
    Json,
    Root,
    Scripted,
    at_root,
    is_scripted,
    open_root,
    person_of,
    require_whole,
    words,
)
from raykit.cli.pausing import known_scope
from raykit.errors import PlanError
from raykit.records import EXACTNESS

if TYPE_CHECKING:
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.read import Root as ReadRoot
    from raykit.read.setview import SetRead
    from raykit.store.base import ObjectStore


WHOLE_DIGEST = 64
"""So many characters are all of a contract's digest."""


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
        InvalidInput: an amendment, a repair, or rows that a budget has ended, without a person or a reason.
        RaykitError: whatever refuses the launch, or ended it.
    """
    repair = repair_words(repair)
    by = None if by is None else person_of(by)
    if _is_wide(target):
        _resume_scope(target, repair, by, root, json=json)
        return
    from raykit.cli.submit import Wish, go_on, last_job
    from raykit.fleet.site import site_of, stored_site
    from raykit.pauses import require_running
    from raykit.store.people import read_acts

    with ExitStack() as stack:
        is_file = target.endswith(".toml") or Path(target).is_file()
        name = target.removeprefix("experiment:")
        if not is_file:
            require_whole(target, "resume", field="NAME")
        site = site_of(Path(target), root) if is_file else stack.enter_context(stored_site(name, root))
        over = is_over(site)
        if not over:
            # A pause may end, a cancel never does.
            require_running(read_acts(site.store, site.name), site.name, ())
        if as_ is not None:
            _amend(site, as_, reason, by)
        approved = approving(approve, by, scripted)
        if repair is not None:
            record_repair(site, repair, person_of(by))
        require_opener(site, by)
        lifted = lift(site, repair, by, approved, decided=reason if as_ is not None else None)
        job = None if is_file or over else last_job(site)
        if job is not None:
            typed = not is_scripted(scripted)
            wish = Wish(approved=approved, amount=approve, person=by, typed=typed)
            go_on(site, name, job, wish, detach=detach, json=json)
        elif detach and not over:
            _detach(site, approved, json=json)
        elif site.plan.search is not None:
            from raykit.cli.searchrun import run_search

            run_search(site, json=json, approved=approved, lifted=lifted)
        else:
            run_launch(site, json=json, approved=approved, lifted=lifted)


def _amend(site: Site, allows: str, reason: str | None, by: str | None) -> None:
    """Let a person allow this run to go on with exactly the differences that there are now."""
    from raykit.fleet.claim import amend

    if allows not in EXACTNESS:
        raise PlanError(f"{allows} is not an exactness class", field="--as", rule=" | ".join(EXACTNESS))
    person = person_of(by)
    why = words(reason, field="--reason", what="an amendment needs a reason")
    for each in amend(site, allows=allows, reason=why, person=person):
        typer.echo(f"  allowed by {person}: {each.what}: {each.was} -> {each.now}", err=True)


# --- scopes that are wider than one experiment --------------------------------------------------------------


def _is_wide(target: str) -> bool:
    return target == "all" or target.startswith(("role:", "contract:"))


def _resume_scope(target: str, repair: str | None, by: str | None, root: str, *, json: bool) -> None:
    from raykit.pauses import NEEDS_WORDS, require_cleared
    from raykit.store.people import read_scope, resume

    opened = open_root(root)
    store, scope = opened.store, _scope(opened, target)
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
        output.print_lines(setlines.standing(each, at_root(root)))


def _scope(found: ReadRoot, target: str) -> str:
    """The scope that was typed; of a contract the first characters of its digest do, as for a pause."""
    from raykit.pauses import scope_of

    _, is_contract, digest = target.partition("contract:")
    if not is_contract or len(digest) == WHOLE_DIGEST:  # a whole digest ends a pause, whoever knows it
        return scope_of(target)
    return known_scope(found, target, act="resume")


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


# --- in the background --------------------------------------------------------------------------------------


def _detach(site: Site, approved: Approving | None, *, json: bool) -> None:
    """Start `raykit resume NAME` as a process of its own, its words in a file.

    Raises:
        RaykitError: what would refuse the run; then nothing is started.
    """
    import tempfile

    from raykit.budget.amounts import plain
    from raykit.fleet.jobs.standing import require_free
    from raykit.fleet.site import make_ready
    from raykit.pauses import require_running, scopes_of
    from raykit.store.people import read_acts

    acts = read_acts(site.store, site.name)
    require_running(acts, site.name, scopes_of(site.name, role_of(site)))
    require_free(site, make_ready(site), secrets.token_hex(6))
    if (refusal := would_refuse(site, acts, approved)) is not None:
        raise refusal

    handle, log = tempfile.mkstemp(prefix=f"raykit-{site.name}-", suffix=".log")
    command = [sys.executable, "-m", "raykit", "resume", site.name, "--root", site.root]
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
