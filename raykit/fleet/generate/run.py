"""The synthetic sets of a plan: from approved checkpoints, made by a pool of workers until each is closed.

Everything that refuses, refuses before anything is written or started. Then, set by set: ask the real producer, freeze
the contract, make and judge the canary, fan out, close. All of it goes on from wherever it was left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from raykit.fleet.generate.close import close_set
from raykit.fleet.generate.launch import Launch, Say
from raykit.fleet.generate.money import Tried, open_money, require_affordable, require_payable
from raykit.fleet.generate.outcome import Making, Outcome, SetOutcome
from raykit.fleet.generate.pool import Tell
from raykit.fleet.generate.sets import Changed, Wanted, find_sets
from raykit.fleet.generate.task import Maker
from raykit.fleet.leftopen import settle_workers
from raykit.fleet.session import end_leftovers
from raykit.fleet.site import Site, site_of
from raykit.fleet.spending import Approving
from raykit.pauses import Acts
from raykit.shards.units import units_of
from raykit.store.generation import Shards
from raykit.store.people import read_acts


def generate(
    plan_path: Path,
    root: str,
    *,
    only: str | None = None,
    workers: int | None = None,
    changed: Changed | None = None,
    approved: Approving | None = None,
    maker: Maker | None = None,
    say: Say,
    tell: Tell = lambda making: None,
) -> Outcome:
    """Make the synthetic sets of a plan, or go on where they were left; what is complete is left alone.

    `maker` makes what makes units; None for the recipe of the plan.

    Raises:
        PlanError: the plan, its inputs or its recipe are not usable.
        ApprovalError: no checkpoint is approved for generation, or a person has to approve the money.
        GateError: nothing was trained, a set was frozen otherwise, or a bound or an option stands against it.
        CancelledError: the experiment was ended for good.
        ReplanError: money has to be moved first.
        FleetPaused: a pause is in force.
        BudgetError: the ceiling, the line or the account cannot pay.
        CorruptError: what is stored does not match its digests.
        ConflictError: a key holds other bytes.
        UnknownOutcomeError: a reply was lost; the same command goes on.
        StoreUnavailableError: the store stayed away.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
        RaykitError: no worker could make anything.
    """
    site = site_of(plan_path, root)
    acts = read_acts(site.store, site.name)
    sets = find_sets(site, acts, only=only, changed=changed, asked=maker is None)
    if all(each.next == "nothing" for each in sets):
        settle_workers(site.store, site.name)
        return Outcome(experiment=site.name, sets={each.name: _closed(site, each) for each in sets})
    for ended in end_leftovers():
        say(f"ended a leftover of a killed launch: {ended.name}, process {ended.pid}")
    # Also where what follows refuses: what dead workers hold may be what is missing.
    settle_workers(site.store, site.name)
    _require_projected(site, acts, sets, require_payable(site, acts, approved))
    spending = open_money(site, acts, approved)
    return Launch(site, spending, workers=workers, changed=changed, maker=maker, say=say, tell=tell).make(
        sets
    )


def _closed(site: Site, wanted: Wanted, *, new: bool = False) -> SetOutcome:
    """A set that is complete. Everyone who has to know of it is told, if a killed launch has not."""
    assert wanted.contract is not None and wanted.said is not None
    manifest = close_set(site.store, wanted.contract, wanted.said, by=wanted.said.person)
    return SetOutcome(manifest=manifest.digest, rows=manifest.rows, new=new)


def _require_projected(site: Site, acts: Acts, sets: Sequence[Wanted], tried: Tried) -> None:
    """What a canary has projected before is set aside before anyone starts again."""
    for each in sets:
        canary = None if each.digest is None else acts.canaries.get(each.digest)
        if canary is None or each.contract is None or each.next != "go on" or each.held is not None:
            continue
        units = units_of(each.contract)
        left = units - len(Shards(site.store, each.contract).published())
        require_affordable(
            tried.book, site.name, tried.projection, canary, left_permille=1000 * left // units
        )


__all__ = ["Approving", "Changed", "Maker", "Making", "Outcome", "SetOutcome", "generate"]
