"""What a review of a plan looks at, gathered from the plan's folder and its store. Writes nothing.

weights   the base that it names or passes over, and what has changed since
costs     its lines, and what each alternative would take
earlier   results, conclusions, and runs that have something to do with it
parted    what lies in more than one split of its data
paper     plans whose rows lie where this version cannot open them
"""

from __future__ import annotations

from dataclasses import dataclass

from raykit.budget.book import Book
from raykit.budget.room import bound
from raykit.fleet.evidence.costs import (
    costs_of,
    measurements,
    money_of,
    promoted,
    require_options,
    require_sizes,
)
from raykit.fleet.evidence.earlier import looked_of, negatives_of, others_of, pilot_of, seen_of
from raykit.fleet.evidence.paper import paper_lock
from raykit.fleet.evidence.parted import straddling_of
from raykit.fleet.evidence.weights import (
    change_of,
    declared,
    misfits_of,
    plan_of,
    require_examined,
    same_bits,
    settings_of,
    times_from,
    undeclared,
)
from raykit.fleet.site import Site, make_ready
from raykit.fleet.spending import Approving, failed_gates, projection_of
from raykit.plan import Lock
from raykit.read.sizing import known_of
from raykit.records import Noted, Observed
from raykit.review import Base, Evidence, Incident, Money, stage_of
from raykit.store.people import read_acts
from raykit.train.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan with its evidence, as far as this version can prepare it."""

    site: Site
    lock: Lock
    ready: Prepared | None
    """None for a plan that is judged on paper."""
    book: Book | None
    """The account as a launch would begin with it; None if the plan does not fit under its ceiling."""
    evidence: Evidence


def gather(
    site: Site,
    *,
    ready: Prepared | None = None,
    approved: Approving | None = None,
    deviation: str | None = None,
) -> Case:
    """Everything that a review of this plan looks at. Writes nothing.

    `ready` is what was prepared already; `approved` is what a person is about to say of its money, and `deviation` of
    what changed after results.

    Raises:
        PlanError: the recipe, its params, its data or the splits are not usable, rows were not counted, or what it
            takes is more than any record holds.
        GateError: its base failed its QC, or nobody has examined and reviewed it.
        ApprovalError: the work is related to another account.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    require_examined(site)
    if ready is None and site.plan.data is None:
        ready = make_ready(site)
    lock = ready.lock if ready is not None else paper_lock(site)
    log = site.run_log("reader")
    acts = read_acts(site.store, site.name)
    others = dict(others_of(site))
    base = declared(site) or undeclared(site, log, others)
    known = known_of(site.store, site.plan, base=times_from(site, base))
    require_sizes(site.plan, known)
    book, money = money_of(site, lock, log, known)
    plan_was = plan_of(site.store, base)
    change = None if base is None else change_of(site, lock, ready, base)
    options = costs_of(site, known, base, change)
    require_options(site.plan, change, options)
    projection = None if book is None else projection_of(site, book)
    stage, stage_why = stage_of(site.plan)
    learned = [event for event in acts.learned if isinstance(event, Observed)]
    evidence = Evidence(
        plan=site.plan,
        stage=stage,
        stage_why=stage_why,
        rows=lock.rows,
        gates=lock.gates,
        straddling=straddling_of(ready),
        money=money,
        looked=looked_of(site, lock, others),
        base=base,
        change=change,
        settings=() if plan_was is None else settings_of(plan_was, site.plan),
        model_settings=misfits_of(site, base),
        same_bits=same_bits(site, lock, base, plan_was, change),
        options=options,
        pilot=pilot_of(site, others),
        incumbent=_incumbent(base, money),
        plan_approved=approved is not None
        or (book is not None and projection is not None and bound(book, site.name, projection).approved),
        restart_approved=projection in {event.projection for event in acts.restarts},
        deviation=deviation,
        promote_approved=promoted(site, book, projection),
        seen=seen_of(site, log, learned),
        negatives=tuple(negatives_of(site, others)),
        incidents=tuple(
            Incident(experiment=name, noted=event)
            for name, (_, theirs) in others.items()
            for event in theirs.learned
            if isinstance(event, Noted)
        ),
        measured=tuple(measurements(known)),
        failed_gates=failed_gates(log.state, acts),
        observed=tuple(learned),
    )
    return Case(site=site, lock=lock, ready=ready, book=book, evidence=evidence)


def _incumbent(base: Base | None, money: Money) -> str | None:
    """The production candidate that a plan may displace: of weights that it names, or that paid work passes over."""
    weighed = base is not None and base.production and (base.declared or money.billed)
    return base.locked.candidate if base is not None and weighed else None
