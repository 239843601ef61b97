"""`raykit dev`: a private local Ray with its dashboard, to submit to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import Json
from raykit.errors import GateError, RaykitError

if TYPE_CHECKING:
    from raykit.fleet.jobs.api import JobInfo
    from raykit.fleet.session import Session


def up(
    cpus: Annotated[
        int | None,
        typer.Option(
            "--cpus", min=1, help="CPUs that it counts; by default those of this machine, and at least 4."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start a private local Ray with its dashboard in the background, and wait until it answers.

    Only this machine reaches it, and only with its token. There is one for each user: if it is up, nothing is started.

    Raises:
        RaykitError: it did not come up; nothing is left of it.
    """
    from raykit.fleet.dev import up

    found = up(cpus=cpus)
    if json:
        output.print_json({**_record(found.session), "already": found.already})
        return
    word = "is up already" if found.already else "is up"
    print(f"the dev cluster {word}: session {found.session.session}")
    output.print_lines(_lines(found.session))


def down(
    now: Annotated[
        bool, typer.Option("--now", help="Even while jobs run there; they go on where they committed.")
    ] = False,
    json: Json = False,
) -> None:
    """End the dev cluster: exactly the processes that it started. Stores and what is in them stay as they are.

    Raises:
        GateError: jobs are running there.
        RaykitError: something of it could not be ended; the message names it.
    """
    from raykit.fleet.dev import down, find_dev

    there = find_dev()
    # of one that does not answer nobody knows: whoever asks has to be able to end it all the same
    running = [] if there is None else [job for job in _jobs(there) or () if not job.over]
    if running and not now:
        raise GateError(
            f"{len(running)} job{'s run' if len(running) > 1 else ' runs'} on the dev cluster: "
            f"{', '.join(job.submission_id for job in running[:5])}",
            field="--now",
            rule="a pause commits first; an end of the cluster is a kill",
            remedy="raykit pause NAME --reason ...   or   raykit dev down --now",
        )
    ended, leftovers = down()
    if json:
        processes = [{"pid": each.pid, "name": each.name, "how": each.how} for each in leftovers]
        output.print_json({"ended": [each.session for each in ended], "leftovers": processes})
        return
    for session in ended:
        print(f"the dev cluster is down: session {session.session}, {len(session.processes)} processes")
    for each in leftovers:
        print(f"  ended a leftover: {output.clean(each.name)}, process {each.pid} ({each.how})")
    if not ended and not leftovers:
        print("no dev cluster is up, and none has left anything.")


def status(json: Json = False) -> None:
    """Is the dev cluster up, where is it, and what runs there?

    Raises:
        RaykitError: the folder of sessions is not private.
    """
    from raykit.fleet.dev import dev_sessions

    found = dev_sessions()
    up = next((each for each in found if each.state == "alive"), None)
    left = [each for each in found if each.state == "left over"]
    jobs = [] if up is None else _jobs(up)
    if json:
        known = (
            None if jobs is None else [{"submission_id": j.submission_id, "status": j.status} for j in jobs]
        )
        output.print_json(
            {
                "up": None if up is None else _record(up),
                "left_over": [each.session for each in left],
                "jobs": known,
            }
        )
        return
    if up is None:
        print("no dev cluster is up.\n  start    raykit dev up")
    else:
        print(f"the dev cluster is up: session {up.session}")
        output.print_lines(_lines(up))
        if jobs is None:
            print("  jobs       not known: its Jobs API does not answer")
        output.print_lines(f"  job        {job.submission_id}  {job.words}" for job in jobs or ())
    for session in left:
        print(f"  a killed one has left session {session.session}, {len(session.processes)} processes")
        print("  end it   raykit dev down")


def _jobs(session: Session) -> list[JobInfo] | None:
    """The jobs of a dev cluster; None if it does not answer."""
    from raykit.fleet.jobs.api import JobsApi
    from raykit.fleet.session.token import read_token

    assert session.dashboard_url is not None
    try:
        return JobsApi(session.dashboard_url, read_token(session.token_path)).jobs()
    except RaykitError:
        return None


def _record(session: Session) -> dict[str, Any]:
    from raykit.fleet.dev import LOG, cpus_of, here_cpus

    return {
        "session": session.session,
        "address": session.dashboard_url,
        "token_path": str(session.token_path),
        "targets": str(session.targets_path),
        "log": str(session.folder / LOG),
        "cpus": cpus_of(session),
        "cpus_here": here_cpus(),
        "pid": None if session.launch is None else session.launch.pid,
        "ray": session.ray_version,
    }


def _cpus(counted: int | None, here: int) -> str:
    """What Ray counts, and what there is where that is another number: workers then share it."""
    if counted is None:
        return "not known"
    return f"{counted}" if counted == here else f"{counted} counted by Ray, on a machine with {here}"


def _lines(session: Session) -> Iterator[str]:
    record = _record(session)
    yield f"  dashboard  {record['address']}   (it asks for the token)"
    yield f"  token      cat {record['token_path']}"
    yield f"  cpus       {_cpus(record['cpus'], record['cpus_here'])}"
    yield f"  log        {record['log']}"
    yield f"  scrape     {record['targets']}"
    yield "  submit     raykit submit PLAN --address auto"
    yield "  end        raykit dev down"
