"""The launch process: it takes a run, starts a Ray for it, and lets the run's loop turn until it has let go.

This process may die at any instant: the next launch reads the run's log and goes on.
"""

from __future__ import annotations

import time
from dataclasses import replace

from raykit.errors import PlanError
from raykit.fleet.accelerators import divide
from raykit.fleet.claim import Claimed, claim, completed_at
from raykit.fleet.metrics import Dashboard
from raykit.fleet.outcome import Outcome
from raykit.fleet.pool.pool import Glance
from raykit.fleet.qc.beside import QcBeside
from raykit.fleet.qc.heed import words
from raykit.fleet.qc.room import slots_of
from raykit.fleet.run_loop import RunLoop, Say, Tell
from raykit.fleet.session import RayHere, labels_of, open_ray
from raykit.fleet.shown import shown_of
from raykit.fleet.signals import Signals
from raykit.fleet.site import RUN, Site
from raykit.fleet.spending import Approving
from raykit.fleet.training import Training
from raykit.read.qc import QcRead, read_qc
from raykit.store.log import RunLog
from raykit.store.people import People, pause
from raykit.store.place import this_place

SPARE_CPUS = 1
"""Beside one CPU per rank: for the train controller."""

LEAVE_S, UNIT_S = 5.0, 60.0
"""How long a check in hand may still take when the launch is told to leave, and when it is paused."""


def launch(
    site: Site,
    *,
    tell: Tell,
    say: Say,
    approved: Approving | None = None,
    deviation: str | None = None,
    name: str | None = None,
) -> Outcome:
    """Run a plan to its end, or go on with it; a finished plan is left alone.

    `tell` gets a glimpse every half second, `say` a line at every stage; `approved` is what a person lets it cost, and
    `deviation` what one says of a plan that changed after results were seen. `name` is what the launch is called, where
    that was said before it began.

    Raises:
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay.
        ReplanError: money has to be moved first.
        PlanError: the recipe, its params, data or splits are not usable, or the plan leaves something unsaid.
        ReviewError: the plan needs revision.
        UnusableRootError: the store cannot be written or trusted.
        GateError: the experiment is complete under another plan, or a check has failed without a repair.
        HeldError: another launch that is alive holds the run.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests.
        FencedError: another launch has taken the run meanwhile.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
    """
    if site.plan.search is not None:
        raise PlanError(
            f"{site.name} is a search: its trials are registered before the first one runs",
            field="search",
            rule="a search is started as one",
            remedy="raykit search PLAN",
        )
    log = site.run_log(f"launch on {this_place().host}")
    ended_at = completed_at(site, log.state)
    if ended_at is not None:
        qc = read_qc(site.store, site.name, site.run, now=time.time())
        return Outcome(
            experiment=site.name, run=site.run, reason="completed", update=ended_at, already=True, qc=qc
        )
    people = People(site.store, site.name)
    claimed = claim(site, log, people, approved, deviation, say, name)
    start = claimed.start
    if start.receipt is not None:
        say(f"resume from update {start.receipt.update:,} · {start.receipt.exactness}")
        for passed in start.receipt.passed_over:
            say(f"passed over update {passed.update:,}: {passed.why}")
    return _Launch(site, claimed, log, people, tell, say).run()


class _Launch:
    """One launch that owns its run."""

    def __init__(
        self, site: Site, claimed: Claimed, log: RunLog, people: People, tell: Tell, say: Say
    ) -> None:
        self._site = site
        self._task = claimed.task
        self._spending = claimed.spending
        self._log = log
        self._say = say
        self._signals = Signals(say)
        self._ray: RayHere | None = None
        self._beside = _Beside(self._signals)
        slots = 0 if site.plan.qc is None else slots_of(site.plan)
        self._parts = divide(site.plan, slots=slots)
        self._loop = RunLoop(
            site,
            claimed,
            log,
            people,
            training=Training(claimed.task, site.plan, gpus=self._parts.rank),
            ended=self._beside,
            tell=tell,
            say=say,
            dashboard=Dashboard(say),
        )

    def run(self) -> Outcome:
        loop, beside = self._loop, self._beside
        with self._signals.handled() as handle:
            loop.reserve()
            try:
                self._start_ray()
                handle()  # Ray has put its own handlers there
                while not loop.turn():
                    beside.look()
                    loop.wait()
                self._pause_at_the_ceiling()
                self._drain_qc()
            finally:
                self._close()
                cost = loop.settle()
                loop.let_go()
        return replace(loop.outcome(), cost=cost, qc=beside.read(), pictures=beside.pictures)

    def _start_ray(self) -> None:
        plan = self._site.plan
        slots = 0 if plan.qc is None else slots_of(plan)
        self._ray = open_ray(
            cpus=plan.run.workers + slots,
            gpus=self._parts.held,
            spare=SPARE_CPUS,
            resources={"qc": float(slots)} if slots else {},
            labels=labels_of(plan, "train", "qc"),
            shown=shown_of(self._site, "launch", self._task),
            say=self._say,
        )
        purse = self._loop.purse
        purse.idle_s = self._ray.idle_s
        self._loop.open(storage=self._ray.folder / "train", door=purse.door())
        if plan.qc is not None:
            self._beside.checks = QcBeside(
                self._site,
                plan.qc,
                self._task.launch,
                purse.spending,
                purse.seat,
                folder=self._ray.folder,
                gpus=self._parts.check,
                wants=self._ray.wants("qc"),
                say=self._say,
                ray_lost=self._ray.lost,
            )

    def _pause_at_the_ceiling(self) -> None:
        """Work that ended because its money did stays paused until a person has moved some."""
        why, cause = self._loop.at_ceiling, self._loop.money_cause or "ceiling"
        if why is not None:
            scope, person = f"experiment:{self._site.name}", f"launch {self._task.launch}"
            pause(self._site.store, scope, cause=cause, reason=why, person=person, at=time.time())

    def _drain_qc(self) -> None:
        """Once training is complete, what is still open is examined before the launch ends, within the plan's bound."""
        checks, loop = self._beside.checks, self._loop
        if checks is None or not self._log.state.completed:
            return

        def stop() -> str | None:
            loop.heed_people()
            return self._signals.come or loop.paused

        def tell(glance: Glance) -> None:
            self._beside.glance = glance
            loop.tell_glimpse()

        loop.settle()  # training holds nothing any more; checks are paid by leases of their own
        read = checks.read()
        if read is not None and read.pause is not None:
            self._say(f"its QC is {read.pause.words}: what is open of it stays open")
            return
        self._say("training is complete; what is open of its QC is examined now")
        checks.drain(stop, tell)

    def _close(self) -> None:
        """End the checks, and then the Ray that they run in."""
        try:
            if self._beside.checks is not None:
                self._beside.checks.close(grace_s=LEAVE_S if self._signals.come else UNIT_S)
        finally:
            if self._ray is not None:
                self._ray.close()


class _Beside:
    """What a launch hears beside its run: signals, and the checks of its QC once they have begun."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.checks: QcBeside | None = None
        self.glance: Glance | None = None

    def look(self) -> None:
        """Let the QC take one turn."""
        if self.checks is not None:
            self.glance = self.checks.turn()
            self.checks.draw()

    @property
    def stopped(self) -> str | None:
        return self._signals.come

    @property
    def failed(self) -> str | None:
        return None if self.checks is None else self.checks.ends(RUN)

    @property
    def suite(self) -> str | None:
        return None if self.checks is None else self.checks.suite

    @property
    def qc(self) -> str | None:
        return None if self.glance is None else words(self.glance)

    def read(self) -> QcRead | None:
        """How far the QC is; None if there is none, or it cannot be read."""
        found = None if self.checks is None else self.checks.read()
        return None if found is None else found.of(RUN)

    @property
    def pictures(self) -> tuple[str, ...]:
        """Keys of what was drawn of it."""
        return () if self.checks is None else tuple(self.checks.pictures.values())
