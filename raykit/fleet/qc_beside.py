"""QC beside one launch: its workers on what training does not hold, and what a failed checkpoint means for the run.

The plan says what a failure does. `continue` says it once and goes on; `pause` pauses the experiment, as a person
would; `stop` ends the run as failed, and no full run starts again before a repair is recorded. A failed checkpoint that
a person has reviewed, or gone on in spite of, is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from raykit.errors import GateError, RaykitError
from raykit.fleet.budget_actor import Seat, Teller
from raykit.fleet.pool.lease import Price
from raykit.fleet.pool.pool import Glance
from raykit.fleet.pool.settings import PoolSettings, RayLost, Wants, not_watched
from raykit.fleet.qc_pictures import draw_qc
from raykit.fleet.qc_pool import QcPool
from raykit.fleet.session import cpus_here, labels_of, require_room_here
from raykit.fleet.site import RUN, Site
from raykit.fleet.spending import Spending
from raykit.plan import Plan
from raykit.plan.tables import Qc
from raykit.qc.backlog import Standing, told, unheeded
from raykit.read.qc import QcRead, QcReader, read_qc
from raykit.read.qc_runs import MAIN, Whose
from raykit.read.sizing import pool_of, rate_of
from raykit.store.base import ObjectStore
from raykit.store.people import pause

QC_GATE = "qc"
"""What a failed check fails where the plan says that it ends the run."""
DRAIN_S = 600.0
"""How long the end of a run waits for open checks, unless the plan says so."""
ANSWER_S = 30.0
"""How long a worker's lease waits for its answer: QC has time, and a launch that ends has not."""
PICTURES_EVERY_S = 30.0
GIGABYTE = 10**9


# --- what there is for it -----------------------------------------------------------------------------------


def spare_cpus(plan: Plan) -> int:
    """The CPUs that there are here and that training does not hold."""
    return cpus_here() - plan.run.workers * plan.run.threads


def require_apart(plan: Plan) -> None:
    """Let only a plan start whose checks have accelerators of their own, or a written reason to share.

    Raises:
        GateError: training would hold all CPUs that there are here; or the cluster of this Ray job is too small, or has
            no node with the labels that the plan asks for.
        RaykitError: that cluster could not be joined.
    """
    cpus = plan.run.workers + (0 if plan.qc is None else slots_of(plan))
    require_room_here(cpus=cpus, labels=labels_of(plan, "train", "qc"))
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


# --- what a failure means -----------------------------------------------------------------------------------


def unheeded_failures(read: QcRead) -> tuple[Standing, ...]:
    """Failed checkpoints without an answer, where the plan does not simply continue."""
    if read.on_failure == "continue":
        return ()
    return unheeded(read.backlog, read.acts.qc_seen_at)


def heed(store: ObjectStore, read: QcRead, *, launch: str) -> str | None:
    """Do what the plan says about failures without an answer; why the run has to end as failed, where it says so.

    Raises:
        CorruptError: the experiment's log is damaged.
        UnknownOutcomeError: the reply was lost; heed it again.
        StoreUnavailableError: the store did not answer.
    """
    unanswered = unheeded_failures(read)
    if not unanswered:
        return None
    why = told(unanswered[0]) if read.run == MAIN else f"{read.run}: {told(unanswered[0])}"
    if read.on_failure == "stop":
        return f"gate: {why}"
    scope, person = f"experiment:{read.experiment}", f"launch {launch}"
    pause(store, scope, cause="qc", reason=why, person=person, at=time.time())
    return None


def require_answered(store: ObjectStore, experiment: str, *, ended: bool) -> None:
    """Let only a run go on whose failed checkpoints somebody has answered, where its plan does not simply continue.

    `ended`: a failed check has ended the run, so that the answer is a repair.

    Raises:
        GateError: a checkpoint failed, and nobody has said what is done about it.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    read = read_qc(store, experiment, RUN, now=time.time())
    found = () if read is None else unheeded_failures(read)
    if found:
        raise GateError(
            f"{told(found[0])}, and nobody has said what is done about it",
            field="qc.on_failure",
            value=None if read is None else read.on_failure,
            rule="a failed check goes to a person before more is spent",
            remedy=f'raykit resume {experiment} --repair "what you changed" --by NAME'
            if ended
            else f"raykit qc review {experiment} --update {found[0].update} --verdict failed --note ... --by NAME",
        )


def words(glance: Glance) -> str | None:
    """`5 of 11`, `5 of 11, 1 failed`; None before anything is known."""
    return counted(glance.counts) if glance.counts else None


def counted(counts: Mapping[str, int]) -> str:
    """`5 of 11`, `5 of 11, 1 failed`."""
    failed, required = counts.get("failed", 0), counts.get("required", 0)
    done = counts.get("passed", 0) + failed
    return f"{done} of {required}" + (f", {failed} failed" if failed else "")


def pool_beside(
    site: Site,
    qc: Qc,
    whose: Whose,
    launch: str,
    spending: Spending,
    seat: Seat,
    *,
    folder: Path,
    gpus: float,
    say: Callable[[str], None],
    ray_lost: RayLost,
    wants: Wants | None = None,
) -> QcPool:
    """The QC workers beside training, on what that does not hold."""
    plan, price = site.plan, price_of(site.plan, spending)
    return QcPool(
        site.root if "://" in site.root else str(Path(site.root).resolve()),
        site.name,
        whose,
        launch,
        settings=settings_of(plan, qc, price, slots=slots_of(plan), gpus=gpus, wants=wants),
        door=Teller(seat, hold_s=ANSWER_S),
        folder=folder,
        say=say,
        ray_lost=ray_lost,
    )


# --- beside a launch ----------------------------------------------------------------------------------------


class QcBeside:
    """The QC of one launch, from the start of its Ray to the end of what is open."""

    def __init__(
        self,
        site: Site,
        qc: Qc,
        launch: str,
        spending: Spending,
        seat: Seat,
        *,
        folder: Path,
        gpus: float,
        wants: Wants | None = None,
        say: Callable[[str], None],
        ray_lost: RayLost = not_watched,
    ) -> None:
        self._site = site
        self._qc = qc
        self._launch = launch
        self._say = say
        self._reader = QcReader(site.store, site.name, RUN)
        self._pool = pool_beside(
            site,
            qc,
            RUN,
            launch,
            spending,
            seat,
            folder=folder,
            gpus=gpus,
            wants=wants,
            say=say,
            ray_lost=ray_lost,
        )
        self._told: set[int] = set()
        self._done = 0
        self._drawn = (0, 0.0)
        """How many receipts the newest pictures show, and when they were drawn."""
        self.pictures: dict[str, str] = {}
        """By file: its key in the store."""
        self.suite: str | None = None
        """The suite of the newest failure."""
        self.ends_run: str | None = None
        """Why the run has to end as failed, once a checkpoint has failed and the plan says so."""

    def turn(self) -> Glance:
        """One look at the pool; heeds what has failed since the one before. Never raises, and never waits for long."""
        glance = self._pool.turn()
        self._see(glance)
        return glance

    def _see(self, glance: Glance) -> None:
        self._done = glance.counts.get("passed", 0) + glance.counts.get("failed", 0)
        if set(glance.failed) - self._told:
            try:
                self._heed()
            except RaykitError as error:
                self._say(f"what a failed check means could not be read ({error}); it is looked at again")

    def draw(self, *, last: bool = False) -> None:
        """Draw charts and contact sheet anew, if there are new receipts and the last drawing is a while ago."""
        drawn, at = self._drawn
        if self._done == drawn or not (last or time.monotonic() - at >= PICTURES_EVERY_S):
            return
        self._drawn = (self._done, time.monotonic())
        self.pictures |= draw_qc(self._site.store, self._reader, say=self._say)

    def drain(self, stop: Callable[[], str | None], tell: Callable[[Glance], None]) -> Glance:
        """Once training is complete: go on until nothing is open, for as long as the plan waits."""

        def seen(glance: Glance) -> None:
            self._see(glance)
            tell(glance)

        return self._pool.drain(self._qc.drain_s or DRAIN_S, stop, seen)

    def close(self, *, grace_s: float) -> Glance:
        """End the workers; what is in hand may be finished for so long. Twice is fine."""
        glance = self._pool.close(grace_s=grace_s)
        self._done = glance.counts.get("passed", 0) + glance.counts.get("failed", 0)
        self.draw(last=True)
        return glance

    def read(self) -> QcRead | None:
        """How far everything is now; None if that cannot be read."""
        try:
            return self._reader.look(now=time.time())
        except RaykitError as error:
            self._say(f"how far the QC is could not be read: {error}")
            return None

    def _heed(self) -> None:
        """Say what has failed, and do what the plan says about it."""
        read = self._reader.look(now=time.time())
        if read is None:
            return
        for each in read.backlog.failed:
            if each.update not in self._told:
                self._say(f"! {told(each)}")
        self.suite = read.suite.digest
        self.ends_run = heed(self._site.store, read, launch=self._launch) or self.ends_run
        self._told |= {each.update for each in read.backlog.failed}
