"""`raykit submit`: the same launch as a job on a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.launch import Approve, Deviation, Person, approving, ask_amount
from raykit.cli.options import (
    DEFAULT_ROOT,
    Json,
    Root,
    Scripted,
    at_plan,
    at_root,
    is_scripted,
    person_of,
    words,
)
from raykit.errors import ApprovalError, RaykitError

if TYPE_CHECKING:
    from raykit.fleet.jobs.follow import Ended
    from raykit.fleet.jobs.standing import Standing
    from raykit.fleet.jobs.submit import Sent
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving

AUTO = "auto"
EXIT_INTERRUPTED = 130

AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="URL",
        help="The cluster's dashboard, http://HOST:PORT; auto: the dev cluster, or else RAY_ADDRESS.",
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Do not follow it; raykit watch does, from the store.")
]
Shared = Annotated[
    bool, typer.Option("--shared", help="The root is a folder that every node has under the same path.")
]


def submit(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN|NAME", help="The plan file, or an experiment of the store.")
    ],
    address: AddressOption = AUTO,
    detach: Detach = False,
    shared: Shared = False,
    approve: Approve = None,
    deviation: Deviation = None,
    by: Person = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Run a plan as a job on a Ray cluster, or go on with it; the same command twice is one job.

    The cluster has to ask for its token: RAY_AUTH_TOKEN_PATH names the file that has it. raykit travels with the job;
    data, secrets and the store do not. The log is followed, and Ctrl-C detaches: the job goes on. The exit code is the
    run's own. `raykit pause` commits and releases; the same command goes on then.

    Raises:
        RaykitError: whatever refuses the job, or ended its run.
    """
    with _site(plan, root) as site:
        said = None
        if deviation is not None:
            why = words(
                deviation, field="--deviation", what="why the plan was changed after results were seen"
            )
            said = f"{why} ({person_of(by)})"
        send(
            site,
            plan,
            address=address,
            approved=approving(approve, by, scripted),
            amount=approve,
            deviation=said,
            person=by,
            typed=not is_scripted(scripted),
            detach=detach,
            shared=shared,
            json=json,
        )


@contextmanager
def _site(plan: str, root: str) -> Iterator[Site]:
    """The plan where it lies, or an experiment as it is frozen in the store."""
    from raykit.fleet.site import site_of, stored_site

    if plan.endswith(".toml") or Path(plan).is_file():
        with at_plan(Path(plan)):
            yield site_of(Path(plan), root)
    else:
        with stored_site(plan.removeprefix("experiment:"), root) as site:
            yield site


def send(
    site: Site,
    target: str,
    *,
    address: str,
    approved: Approving | None = None,
    amount: str | None = None,
    deviation: str | None = None,
    person: str | None = None,
    typed: bool = False,
    detach: bool = False,
    shared: bool = False,
    json: bool = False,
) -> None:
    """Send what `target` names to a cluster, and follow it. Leaves with the exit code of its run.

    Raises:
        RaykitError: whatever refuses the job.
    """
    from raykit.fleet.jobs.address import address_of, connect
    from raykit.fleet.jobs.before import completed, rehearse, require_not_paused, require_priced, root_of
    from raykit.fleet.jobs.submit import Asked, find_free, submit
    from raykit.fleet.site import make_ready

    where = address_of(address)
    api = connect(where)
    root = root_of(site.root, where, shared=shared)
    require_priced(site, where)
    log = site.run_log("submit")
    ended_at = completed(site, log)
    if ended_at is not None:
        _say_complete(site, ended_at, json=json)
        return
    require_not_paused(site)
    ready = make_ready(site)
    again = f"raykit submit {shlex.quote(target)} --address {where.url}{at_root(site.root)}"
    operation, chosen = find_free(api, site, ready, root, say=_say)
    if chosen.there is None:
        try:
            rehearse(site, ready, log, approved=approved, deviation=deviation, say=_say)
        except ApprovalError as error:
            approved = ask_amount(error, site) if approved is None and not json else None
            if approved is None:
                raise
            amount, person, typed = _plain(approved), approved.person, True
            rehearse(site, ready, log, approved=approved, deviation=deviation, say=_say)
    asked = Asked(root=root, person=person, approve=amount, typed=typed, deviation=deviation)
    sent = submit(api, site, ready, operation, chosen, asked, say=_say, again=again)
    _say_sent(sent, where.url)
    if detach:
        _say_detached(sent, site, where.url, again, json=json)
        return
    from raykit.fleet.jobs.follow import follow

    try:
        ended = follow(api, sent.info.submission_id, show=_show, read=lambda: _standing(site))
    except KeyboardInterrupt:
        _say_detached(sent, site, where.url, again, json=json)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _say_ended(ended, sent, site, where.url, again, json=json)
    if ended.exit_code:
        raise typer.Exit(ended.exit_code)


def last_job(site: Site) -> str | None:
    """The Ray job that its last launch ran as; None if that was no job, or if this process is one itself."""
    from raykit.fleet.jobs.standing import standing_of
    from raykit.fleet.session import in_ray_job

    return None if in_ray_job() else standing_of(site).job


def go_on(
    site: Site,
    name: str,
    job: str,
    *,
    approved: Approving | None,
    amount: str | None,
    person: str | None,
    detach: bool,
    json: bool,
) -> None:
    """Go on with what was a Ray job, as one, on the cluster that ran it; or say how, where that is not the one meant.

    Raises:
        RaykitError: whatever refuses the job, or ended its run.
    """
    if not _knows(job):
        at = at_root(site.root)
        if json:
            output.print_json(
                {"experiment": site.name, "was_job": job, "continue": f"raykit submit {name}{at}"}
            )
        else:
            print(
                f"{site.name} can go on. Its last launch was the Ray job {job}, on a cluster that is not meant here.\n"
                f"  continue raykit submit {name} --address URL{at}\n"
                f"  or here  raykit launch PLAN{at}"
            )
        return
    send(
        site,
        name,
        address=AUTO,
        approved=approved,
        amount=amount,
        person=person,
        typed=not is_scripted(False),
        detach=detach,
        json=json,
    )


def _knows(job: str) -> bool:
    """Whether the cluster that is meant without a word is the one that ran this job."""
    from raykit.fleet.jobs.address import address_of, connect

    try:
        return connect(address_of(AUTO)).job(job) is not None
    except RaykitError:
        return False


def _plain(approved: Approving) -> str:
    from raykit.budget.amounts import plain

    return plain(approved.amount)


def _standing(site: Site) -> Standing | None:
    """Where its work stands; None if that cannot be read."""
    from raykit.fleet.jobs.standing import standing_of

    try:
        return standing_of(site)
    except RaykitError:
        return None


# --- what is said -------------------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stderr.write(f"  {output.clean(line)}\n")
    sys.stderr.flush()


def _show(line: str) -> None:
    """A line of the job's log, as it is but for what a terminal would obey."""
    sys.stderr.write(f"{output.clean(line)}\n")
    sys.stderr.flush()


def _say_sent(sent: Sent, url: str) -> None:
    name, before = sent.info.submission_id, sent.chosen.before
    if not sent.new:
        _say(f"job {name} is there already, {sent.info.words}; nothing was sent")
    elif before is not None:
        _say(f"job {before.submission_id} has {before.words}; going on as job {name}")
    else:
        _say(f"job {name} on {url}")


def _record(sent: Sent, url: str) -> dict[str, Any]:
    return {
        "submission_id": sent.info.submission_id,
        "address": url,
        "new": sent.new,
        "launch": sent.chosen.launch,
        "sent": dict(sent.sent),
    }


def _say_complete(site: Site, update: int, *, json: bool) -> None:
    if json:
        output.print_json({"experiment": site.name, "already": True, "update": update, "exit_code": 0})
    else:
        print(
            f"{site.name} is already trained, at update {output.count(update)}; nothing was sent.\n"
            f"  see      raykit show {site.name}{at_root(site.root)}"
        )


def _say_detached(sent: Sent, site: Site, url: str, again: str, *, json: bool) -> None:
    if json:
        output.print_json({**_record(sent, url), "detached": True})
        return
    at = at_root(site.root)
    print(
        f"{site.name} goes on as job {sent.info.submission_id}.\n"
        f"  follow   {again}   or   raykit watch {site.name}{at}\n"
        f"  pause    raykit pause {site.name}{at} --reason ..."
    )


def _say_ended(ended: Ended, sent: Sent, site: Site, url: str, again: str, *, json: bool) -> None:
    if json:
        status = None if ended.info is None else ended.info.status
        said = {"status": status, "exit_code": ended.exit_code, "words": ended.words}
        output.print_json({**_record(sent, url), "experiment": site.name, **said})
        return
    print(f"{ended.words}, exit {ended.exit_code}" if not ended.goes_on else f"{ended.words}.")
    if ended.goes_on:
        print(f"  continue {again}")
