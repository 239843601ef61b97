"""One launch that makes synthetic sets, one after the other, on a private Ray, or on the cluster of its Ray job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import ray

from raykit.errors import BudgetError, CancelledError, RaykitError, Refused, Stopped, Unknown
from raykit.fleet.budget_actor import Seat, Teller, open_seat
from raykit.fleet.generate.close import close_set
from raykit.fleet.generate.desk import Means
from raykit.fleet.generate.freeze import contract_of, freeze, keep_parts
from raykit.fleet.generate.money import cost_of, price_of, require_affordable
from raykit.fleet.generate.options import options_of, rule_of
from raykit.fleet.generate.outcome import Outcome, SetOutcome
from raykit.fleet.generate.pool import End, SetPool, Tell
from raykit.fleet.generate.probe import Asked, Asking, Prober
from raykit.fleet.generate.sets import Changed, Wanted
from raykit.fleet.generate.task import GENERATE, Maker, Terms
from raykit.fleet.pool.settings import PoolSettings
from raykit.fleet.session import RayHere, cpus_here, labels_of, open_ray
from raykit.fleet.shown import shown_of
from raykit.fleet.signals import Signals
from raykit.fleet.site import Site
from raykit.fleet.spending import Spending
from raykit.pauses import pause_of, way_on
from raykit.plan import Plan
from raykit.read.sizing import pool_of
from raykit.records import CanaryPassed, Contracted, GenerationContract, Option
from raykit.shards.contract import Probed
from raykit.shards.options import idle_words
from raykit.shards.spans import shown, units_in
from raykit.shards.units import units_of
from raykit.store.generation import Shards, read_contract
from raykit.store.ledger import Ledger
from raykit.store.people import read_acts

TELLER_S: Final = 10.0
"""What one question to the budget actor may take: it is asked again."""
SPARE_CPUS: Final = 1
GIGABYTE: Final = 10**9
LOOK_SHARE: Final = 25
"""Looks at all units take so small a part of this process's time: it shares the cores with its workers."""
SETUP_MS: Final = 30_000
"""What a worker takes to be ready, where no producer was asked by this launch."""

Say = Callable[[str], None]


class Launch:
    """Makes the sets of one plan. Used once, by one thread."""

    def __init__(
        self,
        site: Site,
        spending: Spending,
        *,
        workers: int | None,
        changed: Changed | None,
        maker: Maker | None,
        say: Say,
        tell: Tell,
    ) -> None:
        self._site = site
        self._store = site.store
        self._root = site.root if "://" in site.root else str(Path(site.root).resolve())
        self._spending = spending
        self._changed = changed
        self._maker = maker
        self._say = say
        self._tell = tell
        self._signals = Signals(say, "finishing what is in hand, then leaving")
        self._slots = workers or slots_of(site.plan)
        self._asked_slots = workers is not None or declared(site.plan) is not None
        """Somebody has said how many workers there are."""
        self._price = price_of(site, spending)
        self._seat = Seat(root=self._root, account=spending.ledger.account)
        self._launches: list[str] = []
        """One for each set: no worker and no lease is ever named like another one."""
        self._gpus = 0.0
        self._setup_ms = SETUP_MS

    def make(self, sets: Sequence[Wanted]) -> Outcome:
        """Make one set after the other; one that is refused or paused leaves the others be.

        Raises:
            Broken: stored bytes disagree.
            Unknown: the store stayed away, a reply was lost, or the local Ray has died: the same command goes on.
            InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
            RaykitError: no worker could make anything; or what refuses the only set that there is.
        """
        found: dict[str, SetOutcome] = {}
        with self._signals.handled() as handle, self._ray() as local:
            handle()  # Ray has put its own handlers there
            for wanted in sets:
                found[wanted.name] = self._one_of(sets, wanted, local)
        self._spending.ledger.refresh()
        cost = cost_of(self._spending, self._launches)
        return Outcome(experiment=self._site.name, sets=found, cost=cost)

    @contextmanager
    def _ray(self) -> Iterator[RayHere]:
        """The Ray to work in, with the actor that answers for the money."""
        local = open_ray(
            cpus=self._slots,
            spare=SPARE_CPUS,
            resources={GENERATE.role: float(self._slots)},
            labels=labels_of(self._site.plan, GENERATE.role),
            shown=shown_of(self._site, "generate"),
            say=self._say,
        )
        try:
            self._seat = replace(self._seat, idle_s=local.idle_s)
            self._door = Teller(self._seat, hold_s=TELLER_S)
            gpus = int(ray.cluster_resources().get("GPU", 0))
            self._slots, self._gpus = spread(self._slots, gpus, asked=self._asked_slots)
            served = open_seat(self._seat)  # it lives as long as this handle
            yield local
            del served
        except Unknown as error:
            lost = local.lost()
            if lost is None:
                raise
            raise lost from error  # whoever did not answer could not
        finally:
            local.close()

    def _stop(self) -> str | None:
        return None if self._signals.come is None else f"ended by {self._signals.come}"

    # --- one set --------------------------------------------------------------------------------------------

    def _one_of(self, sets: Sequence[Wanted], wanted: Wanted, local: RayHere) -> SetOutcome:
        try:
            return self._one(wanted, local)
        except (Refused, Stopped) as error:
            if len(sets) == 1:
                raise
            way = "" if error.remedy is None else f"; {error.remedy}"
            self._say(f"{self._site.name}/{wanted.name}: {error}{way}")
            return SetOutcome(why=f"{wanted.name}: {error}", exit_code=error.exit_code)

    def _one(self, wanted: Wanted, local: RayHere) -> SetOutcome:
        if wanted.held is not None:
            self._say(f"{wanted.name} is {wanted.held.words}; {way_on(wanted.held)}")
            return SetOutcome(why=f"{wanted.name} is {wanted.held.words}", exit_code=4)
        if (why := self._stop()) is not None:
            return SetOutcome(why=why, exit_code=4)
        launch = secrets.token_hex(6)
        self._launches.append(launch)
        contract, said = wanted.contract, wanted.said
        if wanted.next == "freeze":
            frozen = self._frozen(wanted, launch, local)
            if frozen is None:
                return SetOutcome(why=self._stop(), exit_code=4)
            contract, said = frozen
        assert contract is not None and said is not None
        shards, new = Shards(self._store, contract), False
        if shards.manifest() is None:
            self._reuse(shards)
            end = self._made(wanted, contract, said, launch, local)
            open_ = self._open(shards, end)
            if open_ is not None:
                return open_
            new = True
        manifest = close_set(self._store, contract, said, by=f"generate {launch}")
        return SetOutcome(manifest=manifest.digest, rows=manifest.rows, new=new)

    # --- its contract ---------------------------------------------------------------------------------------

    def _frozen(
        self, wanted: Wanted, launch: str, local: RayHere
    ) -> tuple[GenerationContract, Contracted] | None:
        """The contract, once the real producer was asked; None if a signal came first."""
        keep_parts(self._store, wanted)
        options: tuple[Option, ...] = ()
        if self._maker is not None:
            probed: Probed = self._maker.probed
        else:
            asked = self._asked(wanted, launch, local)
            if asked is None:
                return None
            probed, self._setup_ms = asked.probe.probed, asked.setup_ms
            options = options_of(wanted, asked.probe, self._price)
            for line in idle_words(options):
                self._say(f"{self._site.name}/{wanted.name}: {line}")
        contract = contract_of(self._store, wanted, probed, self._changed)
        if wanted.contract is not None and contract == wanted.contract:
            self._say(f"{self._site.name}/{wanted.name}: nothing has changed; going on as before")
            assert wanted.said is not None
            return wanted.contract, wanted.said
        said = freeze(
            self._store,
            wanted,
            contract,
            options=options,
            surface=None if rule_of(wanted) is None else "development",
            changed=None if wanted.said is None else self._changed,
            by=f"generate {launch}",
        )
        self._say(f"{self._site.name}/{wanted.name}: contract {contract.digest[:12]}, {contract.rows:,} rows")
        return contract, said

    def _asked(self, wanted: Wanted, launch: str, local: RayHere) -> Asked | None:
        self._say(f"{self._site.name}/{wanted.name}: asking the producer for a first unit")
        plan, locked, target = self._site.plan, self._site.locked, wanted.target
        assert locked is not None
        asking = Asking(
            root=self._root,
            draft=wanted.draft,
            teacher=wanted.teacher.key,
            folder=str(local.folder / f"probe-{launch}"),
            options=dict(target.options),
            data=None if target.quality is None else locked.data,
            source=None if plan.data is None else plan.data.sources(),
            memory_bytes=_memory_bytes(wanted),
            gpus=self._gpus,
        )
        prober = Prober(
            asking,
            launch=launch,
            door=self._door,
            price=self._price,
            gpus=self._gpus,
            wants=local.wants(GENERATE.role),
            deadline_s=target.deadline_s,
            say=self._say,
        )
        return prober.ask(self._stop)

    def _reuse(self, shards: Shards) -> None:
        """Units of the contract before that count as they are."""
        contract = shards.contract
        if contract.reuses is None:
            return
        old = read_contract(self._store, contract.experiment, contract.name, contract.reuses.contract)
        count = shards.reuse(Shards(self._store, old), units_in(contract.reuses.units))
        if count:
            self._say(f"{contract.experiment}/{contract.name}: {count:,} units count as they are")

    # --- its units ------------------------------------------------------------------------------------------

    def _made(
        self,
        wanted: Wanted,
        contract: GenerationContract,
        said: Contracted,
        launch: str,
        local: RayHere,
    ) -> End:
        target = wanted.target
        terms = Terms(
            contract=contract,
            teacher=said.key,
            tries=target.tries,
            canary_units=target.canary_units,
            maker=self._maker,
        )
        means = Means(
            slots=self._slots, price=self._price, setup_ms=self._setup_ms, guess_ms=_guess_ms(contract, said)
        )
        settings = PoolSettings(
            deadline_s=target.deadline_s,
            memory_bytes=_memory_bytes(wanted),
            slots=self._slots,
            gpus=self._gpus,
            wants=local.wants(GENERATE.role),
            price=self._price,
            look_share=LOOK_SHARE,
        )
        pool = SetPool(
            self._root,
            terms,
            means,
            settings,
            run=wanted.teacher.run,
            launch=launch,
            door=self._door,
            folder=local.folder,
            afford=self._afford,
            say=self._say,
            ray_lost=local.lost,
        )
        return pool.work(self._stop, self._tell)

    def _afford(self, canary: CanaryPassed, left_permille: int) -> None:
        """See whether the rest of a set fits what is left for it. Called by the pool's thread."""
        ledger = Ledger(self._store, self._spending.ledger.account, by="reader")
        ledger.refresh()
        require_affordable(
            ledger.book, self._site.name, self._price.projection, canary, left_permille=left_permille
        )

    def _open(self, shards: Shards, end: End) -> SetOutcome | None:
        """Why a set is not complete; None if it is.

        Raises:
            RaykitError: what refused it.
        """
        contract, desk = shards.contract, end.desk
        name = f"{contract.experiment}/{contract.name}"
        if desk is not None:
            desk.look()
            if desk.board is not None and desk.board.complete:
                return None
        if (why := self._stop()) is not None:
            return SetOutcome(why=why, exit_code=4)
        acts = read_acts(self._store, contract.experiment)
        if acts.cancelled is not None and end.waits is not None:
            return SetOutcome(why=end.waits, exit_code=CancelledError.exit_code)
        held = pause_of(acts, contract.experiment, "generate", shards.digest)
        if held is not None:
            failed = held.pause.cause == "defect" and (desk is None or not desk.passed)
            self._say(f"{name} is {held.words}; {way_on(held)}")
            return SetOutcome(why=f"{contract.name} is {held.words}", exit_code=3 if failed else 4)
        if end.refused is not None:
            canary = acts.canaries.get(shards.digest)
            if isinstance(end.refused, BudgetError) and canary is not None and desk is not None:
                units = units_of(contract)
                self._afford(
                    canary, 1000 * (units - desk.published) // units
                )  # says what all of the rest takes
            raise end.refused
        parked = () if desk is None or desk.board is None else desk.board.parked
        if parked:
            why = f"{shown(parked)} of {name} came to nothing: a person is needed"
            unit = parked[0]
            self._say(
                f"{why}; raykit generate retry {name} --reason ... --by NAME   or   "
                f"raykit generate give-up {name} --unit {unit} --reason ... --by NAME"
            )
            return SetOutcome(why=why, exit_code=3)
        if end.waits is not None:
            return SetOutcome(why=end.waits, exit_code=4)
        raise RaykitError(f"nothing is left to do of {name}, and it is not complete", remedy="raykit check")


def declared(plan: Plan) -> int | None:
    """The accelerators that the plan's pool has; None if it says none."""
    pool = pool_of(plan, GENERATE.role)
    return None if pool is None or pool.gpus == 0 else pool.gpus


def slots_of(plan: Plan) -> int:
    """How many workers there may be at once: as the plan's pool has accelerators; else the CPUs here but one."""
    return declared(plan) or max(1, cpus_here() - 1)


def spread(slots: int, gpus: int, *, asked: bool) -> tuple[int, float]:
    """How many workers there may be on so many accelerators, and how much of one each holds.

    Each has one of its own, unless somebody has `asked` for more workers than there are.
    """
    if gpus == 0:
        return slots, 0.0
    slots = slots if asked else min(slots, gpus)
    return slots, 1.0 if slots <= gpus else 1000 * gpus // slots / 1000


def _memory_bytes(wanted: Wanted) -> int | None:
    return None if wanted.target.memory_gb is None else int(wanted.target.memory_gb * GIGABYTE)


def _guess_ms(contract: GenerationContract, said: Contracted) -> int:
    """What one unit took when the producer was asked."""
    if not said.options or not said.options[0].rows:
        return 1
    own = said.options[0]
    return max(1, own.took_ms * contract.unit_rows // own.rows)
