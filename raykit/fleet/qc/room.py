"""What QC beside training runs on: the CPUs that training does not hold, how many workers, and what they cost."""

from __future__ import annotations

from raykit.errors import GateError
from raykit.fleet.accelerators import require_divisible
from raykit.fleet.pool.lease import Price
from raykit.fleet.pool.settings import PoolSettings, Wants
from raykit.fleet.session import cpus_here, labels_of, require_room_here
from raykit.fleet.spending import Spending
from raykit.plan import Plan
from raykit.plan.tables import Qc
from raykit.read.sizing import pool_of, rate_of

GIGABYTE = 10**9


def spare_cpus(plan: Plan) -> int:
    """The CPUs that there are here and that training does not hold."""
    return cpus_here() - plan.run.workers * plan.run.threads


def require_apart(plan: Plan) -> None:
    """Let only a plan start whose checks have accelerators of their own, or a written reason to share.

    Raises:
        GateError: training would hold all CPUs or accelerators that there are here; or the cluster of this Ray job is
            too small, or has no node with the labels that the plan asks for.
        RaykitError: that cluster could not be joined.
    """
    cpus = plan.run.workers + (0 if plan.qc is None else slots_of(plan))
    require_room_here(cpus=cpus, labels=labels_of(plan, "train", "qc"))
    require_divisible(plan, slots=0 if plan.qc is None else slots_of(plan))
    if plan.qc is None or plan.qc.shares is not None or spare_cpus(plan) >= 1:
        return
    cpus, held = cpus_here(), plan.run.workers * plan.run.threads
    fewer = "fewer run.workers or run.threads, or " if held > 1 else ""
    raise GateError(
        f"training takes {held} of the {cpus} CPUs that there are for it: checks would run on the same ones",
        field="qc.shares",
        rule="checks run beside training, on accelerators of their own",
        remedy=f'{fewer}a written reason: qc.shares = "..."',
    )


def slots_of(plan: Plan) -> int:
    """How many QC workers run at once beside training."""
    pool = pool_of(plan, "qc")
    wanted = pool.gpus if pool is not None and pool.gpus > 0 else 1
    return max(1, min(wanted, spare_cpus(plan)))


def settings_of(
    plan: Plan, qc: Qc, price: Price, *, slots: int, gpus: float = 0.0, wants: Wants | None = None
) -> PoolSettings:
    """What the plan says of its workers; `wants` is what each asks Ray for beside a CPU and `gpus`."""
    return PoolSettings(
        deadline_s=qc.deadline_s,
        memory_bytes=None if qc.memory_gb is None else int(qc.memory_gb * GIGABYTE),
        slots=slots,
        gpus=gpus,
        wants=wants or {},
        price=price,
    )


def price_of(plan: Plan, spending: Spending) -> Price:
    """What an hour of one worker costs."""
    rate, source = rate_of(plan, spending.ledger.book, "qc")
    return Price(
        rate=rate,
        source=source,
        margin_permille=spending.sizing.margin_permille,
        projection=spending.attempts.projection,
    )
