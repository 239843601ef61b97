"""A plan sent to a cluster as a job, once: looked for, packed, uploaded, sent, and looked for again if need be."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final

from raykit.data.randomness import HASH_SEED
from raykit.errors import HeldError
from raykit.fleet.door import lease_of
from raykit.fleet.jobs.api import JobInfo, JobsApi, NewJob
from raykit.fleet.jobs.archive import Package, wheel, working_dir
from raykit.fleet.jobs.operation import Chosen, Operation, choose, send
from raykit.fleet.jobs.standing import require_free, standing_of
from raykit.fleet.site import Site, git_facts
from raykit.ids import digest_of
from raykit.train.prepare import Prepared

WAIT_S: Final = 1.0
PLAN: Final = "plan.toml"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a job is to do beyond what its plan says, as it is written on its command line."""

    root: str
    person: str | None = None
    approve: str | None = None
    """The amount, if a person lets the plan come to one."""
    typed: bool = False
    """That person sits at a terminal."""
    deviation: str | None = None
    shown: Mapping[str, str] = field(default_factory=dict)
    """What else the dashboard shows of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A job that the cluster has."""

    info: JobInfo
    chosen: Chosen
    new: bool
    """It was not there before."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """The files of its working directory, and their sizes."""
    uploaded_bytes: int = 0


def submit(
    api: JobsApi,
    site: Site,
    ready: Prepared,
    operation: Operation,
    chosen: Chosen,
    asked: Asked,
    *,
    say: Say,
    again: str,
) -> Sent:
    """Send the job of an operation, unless the cluster has it. `again` is the command that looks again.

    Raises:
        PlanError: the recipe's code cannot be had, or it is too large to be sent.
        UnknownOutcomeError: whether the cluster has the job could not be found out.
        InvalidInput: nobody answers there, or the token is not the cluster's.
        DeadlineError: no answer in time.
        RaykitError: the cluster does not take it.
    """
    if chosen.there is not None:
        return Sent(info=chosen.there, chosen=chosen, new=False)
    name = PLAN if site.plan_path is None else site.plan_path.name
    work, at = working_dir(site.plan, name, site.plan_bytes, ready.files, git_facts(site, ready))
    own = wheel()
    say(f"sending {_described(work)}, and raykit {metadata.version('raykit')} ({own.digest[:12]})")
    job = NewJob(
        submission_id=chosen.submission_id,
        entrypoint=entrypoint_of(operation, chosen, asked, at, own.digest),
        runtime_env={
            "working_dir": api.upload(work.name, work.data),
            "py_modules": [api.upload(own.name, own.data)],
            "env_vars": {"PYTHONHASHSEED": HASH_SEED},  # anybody can read these: nothing else goes this way
        },
        metadata=metadata_of(site, ready, operation, chosen, asked, own.digest),
    )
    info = send(api, job, say=say, again=again)
    return Sent(
        info=info,
        chosen=chosen,
        new=True,
        sent=work.files,
        uploaded_bytes=len(work.data) + len(own.data),
    )


def entrypoint_of(operation: Operation, chosen: Chosen, asked: Asked, plan: str, raykit: str) -> str:
    """The command that the job runs on its node."""
    words = ["python", "-m", "raykit.cli.entry", "--launch", chosen.launch, "--raykit", raykit]
    words += ["--typed"] if asked.typed else []
    words += [operation.kind, plan, "--root", asked.root]
    options = {"--approve": asked.approve, "--by": asked.person, "--deviation": asked.deviation}
    for option, value in options.items():
        words += [option, value] if value is not None else []
    return shlex.join(words)


def metadata_of(
    site: Site, ready: Prepared, operation: Operation, chosen: Chosen, asked: Asked, raykit: str
) -> dict[str, str]:
    """What the dashboard shows of the job: which plan, contract and reservation it is, and for whom."""
    lease = lease_of(chosen.launch, 1)
    said = {
        "job_name": f"raykit {operation.kind} {site.name}",
        "raykit": f"{metadata.version('raykit')} {raykit[:12]}",
        "operation": operation.kind,
        "experiment": site.name,
        "decision": site.plan.decision,
        "root": site.store.url,
        "plan": operation.plan,
        "contract": ready.lock.contract,
        **asked.shown,
    }
    if operation.kind == "launch":
        said |= {
            "launch": chosen.launch,
            "lease": lease,
            "reservation": digest_of({"experiment": site.name, "line": "train", "lease": lease}),
        }
    return said | ({} if asked.person is None else {"person": asked.person})


def find_free(api: JobsApi, site: Site, ready: Prepared, root: str, *, say: Say) -> tuple[Operation, Chosen]:
    """The operation that goes on from where the work stands, and its job to follow or to send.

    A launch whose job has come to its end without a last word is waited for until it can be taken for dead.

    Raises:
        HeldError: another launch that is alive has the work.
        InvalidInput: nobody answers there, or the token is not the cluster's.
        DeadlineError: no answer in time.
        CorruptError: the log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    told = False
    while True:
        operation = _operation(site, ready, root)
        chosen = choose(api, operation)
        if chosen.there is not None or operation.held is None:
            return operation, chosen
        try:
            require_free(site, ready, chosen.launch)
        except HeldError:
            if not _is_ours(operation, chosen):
                raise
            if not told:
                say(
                    "its last launch was killed, or its cluster is gone: waiting until it can be taken for dead"
                )
                told = True
            time.sleep(WAIT_S)
        else:
            return operation, chosen


def _operation(site: Site, ready: Prepared, root: str) -> Operation:
    standing = standing_of(site)
    return Operation(
        kind="launch" if site.plan.search is None else "search",
        root=root,
        experiment=site.name,
        plan=ready.lock.bare.digest,
        past=standing.past,
        held=standing.held,
    )


def _is_ours(operation: Operation, chosen: Chosen) -> bool:
    """Whether the launch that has the run was made by a job of this operation that is over, or that nobody knows."""
    return any(operation.launch(n) == operation.held for n in range(chosen.n))


def _described(work: Package) -> str:
    files = sorted(work.files)
    shown = ", ".join(files[:6]) + (f" and {len(files) - 6} more" if len(files) > 6 else "")
    return f"{len(files)} files, {sum(work.files.values()):,} bytes: {shown}"
