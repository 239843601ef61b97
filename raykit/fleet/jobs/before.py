"""What refuses a job before anything is sent: what its launch would refuse on its node, and what no node could do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raykit.errors import InvalidInput, PlanError
from raykit.fleet.claim import completed_at, reviewed
from raykit.fleet.jobs.address import Address
from raykit.fleet.qc.heed import QC_GATE, require_answered
from raykit.fleet.search.opening import look
from raykit.fleet.site import Site
from raykit.fleet.spending import Approving, require_spendable
from raykit.ids import digest_of
from raykit.pauses import InForce, Role, in_force, require_running, scopes_of
from raykit.plan import contract
from raykit.read.sizing import pool_of
from raykit.store.people import People, read_acts
from raykit.train.prepare import Prepared


def root_of(said: str, address: Address, *, shared: bool) -> str:
    """The root as the nodes have to name it.

    `shared`: somebody says that this path is the same folder on every node.

    Raises:
        InvalidInput: it is a path, and the cluster is not on this machine.
    """
    if "://" in said:
        return said.rstrip("/")
    path = str(Path(said).expanduser().resolve())
    if not (address.here or shared):
        raise InvalidInput(
            f"the nodes of the cluster at {address.url} do not see {path}, which is on this machine",
            field="--root",
            value=said,
            rule="a store that every node reaches: s3://bucket/prefix, or a folder that is mounted on all of them",
            remedy="--root s3://BUCKET/PREFIX; or --shared, if every node has this folder under this path",
        )
    return path


def require_priced(site: Site, address: Address) -> None:
    """Let nothing be sent to machines of which nobody has said what they cost.

    Raises:
        PlanError: the cluster is not on this machine, and the plan has no rate for it.
    """
    if address.here or pool_of(site.plan, "train") is not None:
        return
    raise PlanError(
        f"{site.name} would run on the cluster at {address.url}, and does not say what that costs",
        field="pools.train.usd_per_hour",
        rule="no rate, no start: only this machine's own CPUs are not billed",
        remedy='[pools.train] gpus = 0, usd_per_hour = { rate = 0.0, source = "our own machines", billed = "node" }',
    )


def completed(site: Site) -> int | None:
    """The last update of a run that is complete under this very plan and code; None if it is not.

    Raises:
        GateError: it is complete, under a plan or code that would train something else.
        PlanError: the recipe's code cannot be had.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    return None if site.plan.search is not None else completed_at(site, site.run_log("submit").state)


def require_not_paused(site: Site) -> None:
    """Let only work be sent that is neither cancelled nor paused.

    Raises:
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        CorruptError: a log of people's acts is damaged.
        StoreUnavailableError: the store did not answer.
    """
    require_running(read_acts(site.store, site.name), site.name, _scopes(site))


def pause_in_force(site: Site) -> InForce | None:
    """The pause that holds this work now; None if none does.

    Raises:
        CancelledError: the experiment was ended for good.
        CorruptError: a log of people's acts is damaged.
        StoreUnavailableError: the store did not answer.
    """
    acts = read_acts(site.store, site.name)
    require_running(acts, site.name, ())
    return in_force(acts, _scopes(site))


def _scopes(site: Site) -> tuple[str, ...]:
    role: Role = "train" if site.plan.search is None else "search"
    return scopes_of(site.name, role, digest_of(contract(site.plan)))


def rehearse(
    site: Site,
    ready: Prepared,
    *,
    approved: Approving | None,
    deviation: str | None,
    say: Callable[[str], None],
) -> None:
    """Refuse what the launch would refuse on its node: what needs a person, a review, or money. Writes nothing.

    Raises:
        Refused: a person has to act first, a checkpoint failed its QC, or the plan needs revision.
        Stopped: a pause is in force, or the budget does not allow it.
        PlanError: the plan leaves something unsaid.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    if site.plan.search is not None:
        people = People(site.store, site.name)
        look(site, people, approved=approved, deviation=deviation, say=say, elsewhere=True)
        return
    log = site.run_log("submit")
    require_answered(site.store, site.name, ended=QC_GATE in log.state.failed)
    sealed = reviewed(site, ready, log, approved, deviation, say)
    require_spendable(site, sealed.lock, log, read_acts(site.store, site.name), approved)
