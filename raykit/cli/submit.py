"""`raykit submit`: the same launch as a job on a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.approving import Approve, Deviation, Person, approving, said_of, until_approved
from raykit.cli.lifting import ways_on
from raykit.cli.options import (
    DEFAULT_ROOT,
    Json,
    Root,
    Scripted,
    at_plan,
    at_root,
    is_scripted,
    require_whole,
)
from raykit.errors import RaykitError

if TYPE_CHECKING:
    from raykit.fleet.jobs.address import Address
    from raykit.fleet.jobs.api import JobsApi
    from raykit.fleet.jobs.follow import Ended
    from raykit.fleet.jobs.standing import Standing
    from raykit.fleet.jobs.submit import Sent
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.train.prepare import Prepared

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
    data, secrets and the store do not. The log is followed, and the exit code is the run's own. Ctrl-C detaches, with
    exit code 130: the job goes on. Before a job is sent, Ctrl-C sends nothing.

    `raykit pause NAME` commits and releases; while the pause holds nothing is sent, and `raykit resume NAME` ends it
    and goes on. A job that was killed goes on with the same command.

    Raises:
        RaykitError: whatever refuses the job, or ended its run.
    """
    if not json:
        _say(f"reading {plan}")
    with _unsent(), _site(plan, root) as site:
        wish = Wish(
            approved=approving(approve, by, scripted),
            amount=approve,
            deviation=said_of(deviation, by),
            person=by,
            typed=not is_scripted(scripted),
        )
        send(site, plan, wish, address=address, shared=shared, detach=detach, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person says beside the plan."""

    approved: Approving | None = None
    amount: str | None = None
    """What was approved, as it was typed."""
    deviation: str | None = None
    person: str | None = None
    typed: bool = False
    """The person sits at a terminal."""


@contextmanager
def _site(plan: str, root: str) -> Iterator[Site]:
    """The plan where it lies, or an experiment as it is frozen in the store."""
    from raykit.fleet.site import site_of, stored_site

    if plan.endswith(".toml") or Path(plan).is_file():
        with at_plan(Path(plan)):
            yield site_of(Path(plan), root)
    else:
        require_whole(plan, "submit", field="NAME")
        with stored_site(plan.removeprefix("experiment:"), root) as site:
            yield site


def send(
    site: Site,
    target: str,
    wish: Wish,
    *,
    address: str,
    shared: bool = False,
    detach: bool = False,
    json: bool = False,
) -> None:
    """Send what `target` names to a cluster, and follow it. Leaves with the exit code of its run.

    Raises:
        RaykitError: whatever refuses the job.
    """
    from raykit.fleet.jobs.address import address_of, connect
    from raykit.fleet.jobs.before import completed, require_priced, root_of

    with _unsent():
        where = address_of(address)
        said = _Said(site, where, target, json=json)
        said.say(f"looking at the cluster at {where.url}")
        api = connect(where)
        root = root_of(site.root, where, shared=shared)
        require_priced(site, where)
        said.say("reading the plan's code and data")
        ended_at = completed(site)
        if ended_at is not None:
            _say_complete(site, ended_at, json=json)
            return
        sent = _sent(api, site, root, wish, said)
    try:
        said.sent(sent)
        ended = None if detach else _followed(api, site, sent, said)
    except KeyboardInterrupt:
        said.detached(sent)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if ended is None:
        said.detached(sent)
        return
    said.ended(ended, sent)
    if ended.exit_code:
        raise typer.Exit(ended.exit_code)


@contextmanager
def _unsent() -> Iterator[None]:
    """Say of Ctrl-C that nothing was sent; of one that comes while a job is being sent, `submit` says what is known."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        raise KeyboardInterrupt("nothing was sent") from None


def _sent(api: JobsApi, site: Site, root: str, wish: Wish, said: _Said) -> Sent:
    """The job as the cluster has it, sent now or there before."""
    from raykit.fleet.jobs.before import require_not_paused
    from raykit.fleet.jobs.submit import Asked, find_free, submit
    from raykit.fleet.site import make_ready

    require_not_paused(site)
    ready = make_ready(site)
    operation, chosen = find_free(api, site, ready, root, say=said.say)
    if chosen.there is None:
        wish = _rehearsed(site, ready, wish, said)
    asked = Asked(
        root=root, person=wish.person, approve=wish.amount, typed=wish.typed, deviation=wish.deviation
    )
    return submit(api, site, ready, operation, chosen, asked, say=said.say, again=said.again)


def _rehearsed(site: Site, ready: Prepared, wish: Wish, said: _Said) -> Wish:
    """What is wished, once it is seen that the launch would not be refused; a person at a terminal may approve it."""
    from raykit.budget.amounts import plain
    from raykit.fleet.jobs.before import rehearse

    def rehearsed(approved: Approving | None) -> Approving | None:
        rehearse(site, ready, approved=approved, deviation=wish.deviation, say=said.say)
        return approved

    approved = until_approved(rehearsed, site, wish.approved, asks=not said.json)
    if approved is None or approved is wish.approved:
        return wish
    return replace(wish, approved=approved, amount=plain(approved.amount), person=approved.person, typed=True)


def _followed(api: JobsApi, site: Site, sent: Sent, said: _Said) -> Ended:
    """A job followed to its end."""
    from raykit.fleet.jobs.follow import follow

    return follow(api, sent.info.submission_id, show=said.show, read=lambda: _standing(site))


def last_job(site: Site) -> str | None:
    """The Ray job that its last launch ran as; None if that was no job, or if this process is one itself."""
    from raykit.fleet.jobs.standing import standing_of
    from raykit.fleet.session import in_ray_job

    return None if in_ray_job() else standing_of(site).job


def go_on(site: Site, name: str, job: str, wish: Wish, *, detach: bool, json: bool) -> None:
    """Go on with what was a Ray job, as one, on the cluster that ran it; or say how, where that is not the one meant.

    Raises:
        RaykitError: whatever refuses the job, or ended its run.
    """
    if _knows(job):
        send(site, name, wish, address=AUTO, detach=detach, json=json)
        return
    at = at_root(site.root)
    command = f"raykit submit {name} --address URL{at}"
    if json:
        output.print_json({"experiment": site.name, "was_job": job, "continue": command})
        return
    verb = "launch" if site.plan.search is None else "search"
    print(
        f"{site.name} can go on. Its last launch was the Ray job {job}, on a cluster that is not meant here.\n"
        f"  continue {command}\n"
        f"  or here  raykit {verb} PLAN{at}"
    )


def _knows(job: str) -> bool:
    """Whether the cluster that is meant without a word is the one that ran this job."""
    from raykit.fleet.jobs.address import address_of, connect

    try:
        return connect(address_of(AUTO)).job(job) is not None
    except RaykitError:
        return False


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


def _say_complete(site: Site, update: int, *, json: bool) -> None:
    if json:
        output.print_json({"experiment": site.name, "already": True, "update": update, "exit_code": 0})
        return
    print(
        f"{site.name} is already trained, at update {output.count(update)}; nothing was sent.\n"
        f"  see      raykit show {site.name}{at_root(site.root)}"
    )


class _Said:
    """What is said of one job, as text or as JSON."""

    def __init__(self, site: Site, where: Address, target: str, *, json: bool) -> None:
        self.json = json
        address = AUTO if where.dev else where.url
        self.again = f"raykit submit {shlex.quote(target)} --address {address}{at_root(site.root)}"
        """The command that looks again, follows, and goes on with what was killed."""
        self._site = site
        self._url = where.url

    def say(self, line: str) -> None:
        """A line beside, for people."""
        if not self.json:
            _say(line)

    def show(self, line: str) -> None:
        """A line of the job's log, for people."""
        if not self.json:
            _show(line)

    def sent(self, sent: Sent) -> None:
        """Where it is now."""
        name, before = sent.info.submission_id, sent.chosen.before
        if not sent.new:
            self.say(f"job {name} is there already, {sent.info.words}; nothing was sent")
        elif before is not None:
            self.say(f"job {before.submission_id} is over ({before.words}); going on as job {name}")
        else:
            self.say(
                f"job {name} on {self._url}; raykit status shows it once it has begun, mostly within 30 s"
            )

    def detached(self, sent: Sent) -> None:
        """That nobody follows it any more."""
        if self.json:
            output.print_json({**self._record(sent), "detached": True})
            return
        name, at = self._site.name, at_root(self._site.root)
        print(
            f"{name} runs as job {sent.info.submission_id}"
            f"{'; raykit status shows it once it has begun, mostly within 30 s' if sent.new else ''}.\n"
            f"  follow   {self.again}   or   raykit watch {name}{at}\n"
            f"  stop     raykit pause {name}{at} --reason ...   (it commits first)"
        )

    def ended(self, ended: Ended, sent: Sent) -> None:
        """How it ended."""
        if self.json:
            status = None if ended.info is None else ended.info.status
            how: dict[str, Any] = {"status": status, "exit_code": ended.exit_code, "words": ended.words}
            how |= {"continue": list(self._ways_on(ended))}
            output.print_json({**self._record(sent), **how})
            return
        print(f"{ended.words}, exit {ended.exit_code}.")
        for command in self._ways_on(ended):
            print(f"  continue {command}")

    def _ways_on(self, ended: Ended) -> Iterator[str]:
        """What goes on with it: a run that paused is resumed, a job that died is sent again."""
        if ended.paused:
            yield from ways_on(self._site)
        elif ended.goes_on:
            yield self.again

    def _record(self, sent: Sent) -> dict[str, Any]:
        return {
            "experiment": self._site.name,
            "submission_id": sent.info.submission_id,
            "address": self._url,
            "new": sent.new,
            "launch": sent.chosen.launch,
            "sent": dict(sent.sent),
        }
