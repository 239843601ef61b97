"""`raykit qc run`: work off what is still to be examined, without training, with what is frozen in the store."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ray

from raykit.errors import CancelledError, GateError, StoreUnavailableError
from raykit.fleet.budget_actor import Seat, Teller, open_seat
from raykit.fleet.door import HOLD_S
from raykit.fleet.leftopen import settle_workers
from raykit.fleet.pool.pool import Glance
from raykit.fleet.pool.settings import PoolSettings
from raykit.fleet.qc.pool import QcPool
from raykit.fleet.qc.room import price_of, settings_of
from raykit.fleet.qc.task import QC
from raykit.fleet.session import RayHere, labels_of, open_ray
from raykit.fleet.shown import shown_of
from raykit.fleet.signals import Signals
from raykit.fleet.site import Site, stored_site
from raykit.fleet.spending import Spending, open_spending
from raykit.pauses import require_examining
from raykit.read.qc_runs import RunsRead, Whose, read_qc_of, whose_of
from raykit.read.sizing import accelerators_of
from raykit.store.people import read_acts

POLL_S: Final = 0.25
TELLER_S: Final = 10.0
"""What one question to the budget actor may take: it is asked again."""
SPARE_CPUS: Final = 1

Say = Callable[[str], None]
Tell = Callable[[Glance], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far the examinations are now, and why no further."""

    experiment: str
    run: str | None
    """None for every trial of a search."""
    counts: Mapping[str, int]
    exit_code: int
    """0: every required checkpoint has its receipt, passed or failed. 3: a person is needed, or it is cancelled.
    4: paused or stopped."""
    why: str | None = None


def run_backlog(
    experiment: str,
    root: str,
    *,
    run: str | None = None,
    workers: int | None = None,
    say: Say,
    tell: Tell = lambda glance: None,
) -> Outcome:
    """Examine every required checkpoint that is still open. Several of these may share one backlog.

    `run` is whose; None for the run of its plan, or for every trial of its search.

    Raises:
        NotFoundError: there is no such experiment.
        GateError: its plan has no [qc].
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        Refused: a person has to act before anything is spent.
        BudgetError: the ceiling, the line or the account cannot pay.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store stayed away.
        Unknown: the local Ray has died; the same command goes on.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
        RaykitError: no worker could examine anything.
    """
    with stored_site(experiment, root) as site:
        whose = whose_of(site.plan) if run is None else run
        read = _read(site, whose)
        if not read.workable:
            settle_workers(site.store, site.name)
            return _outcome(read)
        require_examining(read.acts, experiment, read.suite.digest)
        spending = _open_spending(site)
        return _Run(site, whose, spending, workers=workers, say=say, tell=tell).work()


class _Run:
    """One run over a backlog."""

    def __init__(
        self, site: Site, whose: Whose, spending: Spending, *, workers: int | None, say: Say, tell: Tell
    ) -> None:
        self._site = site
        self._whose = whose
        self._spending = spending
        self._say = say
        self._tell = tell
        self._signals = Signals(say, "finishing what is in hand, then leaving")
        self._slots = workers or accelerators_of(site.plan, "qc")

    def work(self) -> Outcome:
        with self._signals.handled() as handle:
            local = open_ray(
                cpus=self._slots,
                spare=SPARE_CPUS,
                resources={QC.role: float(self._slots)},
                labels=labels_of(self._site.plan, QC.role),
                shown=shown_of(self._site, "qc run"),
                say=self._say,
            )
            try:
                handle()  # Ray has put its own handlers there
                why = self._until_done(local)
            finally:
                local.close()
        read = _read(self._site, self._whose)
        if self._signals.come is not None:
            return _outcome(read, stopped=f"ended by {self._signals.come}")
        return _outcome(read, stopped=why)

    def _until_done(self, local: RayHere) -> str | None:
        """Work; why that came to an end although something is open."""
        root = self._site.root if "://" in self._site.root else str(Path(self._site.root).resolve())
        seat = Seat(root=root, account=self._spending.ledger.account, idle_s=local.idle_s)
        served = open_seat(seat)  # it lives as long as this handle
        pool = QcPool(
            root,
            self._site.name,
            self._whose,
            secrets.token_hex(6),
            settings=self._settings(local),
            door=Teller(seat, hold_s=TELLER_S),
            folder=local.folder,
            say=self._say,
            ray_lost=local.lost,
        )
        try:
            return self._follow(pool)
        finally:
            pool.close()
            del served

    def _settings(self, local: RayHere) -> PoolSettings:
        plan = self._site.plan
        assert plan.qc is not None
        gpus = 1.0 if ray.cluster_resources().get("GPU", 0) >= self._slots else 0.0
        price, wants = price_of(plan, self._spending), local.wants(QC.role)
        return settings_of(plan, plan.qc, price, slots=self._slots, gpus=gpus, wants=wants)

    def _follow(self, pool: QcPool) -> str | None:
        began, away_since = time.time(), None
        while self._signals.come is None:
            glance = pool.turn()
            self._tell(glance)
            if pool.broken is not None:
                raise pool.broken
            if glance.looked_at >= began and not glance.busy:
                if not glance.open:
                    return None
                if glance.refusal is not None and not glance.workers:
                    raise glance.refusal
                if glance.waits is not None:
                    return glance.waits
            away_since = _away(glance, away_since)
            time.sleep(POLL_S)
        return None


def _away(glance: Glance, since: float | None) -> float | None:
    """Since when the store has not answered; None while it does."""
    if glance.away is None:
        return None
    now = time.monotonic()
    if since is not None and now - since > HOLD_S:
        raise StoreUnavailableError(f"the store stayed away for {HOLD_S:.0f} s: {glance.away}")
    return now if since is None else since


def _read(site: Site, whose: Whose) -> RunsRead:
    read = read_qc_of(site.store, site.name, whose, now=time.time())
    if read is None:
        raise GateError(
            f"the plan of {site.name} has no [qc]: nothing of it has to be examined",
            field="qc",
            rule="a table [qc]: owner, every, roster, fail, on_failure",
        )
    return read


def _outcome(read: RunsRead, stopped: str | None = None) -> Outcome:
    """What there is to say at the end; `stopped` is why it came before everything was done."""
    parked = [each for each in read.standings if each.status == "parked"]
    why, code = None, 0
    if stopped is not None and (parked or read.workable):
        why, code = stopped, 4 if read.acts.cancelled is None else CancelledError.exit_code
    elif parked and read.pause is not None:
        why, code = read.pause.words, 4
    elif parked:
        updates = ", ".join(
            f"{each.update:,} of {each.request.run}" if read.trials else f"{each.update:,}"
            for each in parked[:6]
        )
        why, code = f"{len(parked)} parked (update {updates}): a person is needed", 3
    run = None if read.trials else read.reads[0].run
    return Outcome(experiment=read.experiment, run=run, counts=read.counts(), exit_code=code, why=why)


# --- money ------------------------------------------------------------------------------------------------------


def _open_spending(site: Site) -> Spending:
    assert site.locked is not None
    return open_spending(site, site.locked, site.run_log("qc run"), read_acts(site.store, site.name))
