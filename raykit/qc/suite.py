"""The suite: everything that decides what a checkpoint scores and whether it passes, as one frozen record."""

from __future__ import annotations

from raykit.ids import Digest, digest_of
from raykit.plan import TRAINS_FROM, Plan, contract
from raykit.plan.tables import FieldBounds, Qc
from raykit.records import FieldRule, Roster, Suite

REVISION = 1
"""Of the arithmetic in this package and of how an example is run: raised when a score changes its meaning or bits."""


def make_suite(plan: Plan, qc: Qc, roster: Roster, *, code: Digest, root: str) -> Suite:
    """The suite of a plan with `[qc]`. The same inputs always give the same bytes.

    `on_failure`, tries and deadlines are not part of it: they change no score and no verdict.
    """
    run = plan.run
    return Suite(
        experiment=plan.name,
        owner=qc.owner,
        every=qc.every,
        root=root,
        roster=roster.digest,
        code=code,
        config=digest_of(contract(plan)),
        revision=REVISION,
        recipe=plan.recipe,
        params=dict(run.params),
        source=None if plan.data is None else plan.data.sources(),
        from_base=plan.base is not None and plan.base.start in TRAINS_FROM,
        seed=run.seed,
        threads=run.threads,
        deterministic=run.deterministic,
        dtype=run.dtype.params,
        autocast=run.dtype.autocast,
        metrics=qc.metrics,
        fail=dict(qc.fail),
        fields={name: _rule(bounds) for name, bounds in qc.fields.items()},
    )


def _rule(bounds: FieldBounds) -> FieldRule:
    return FieldRule(
        space=bounds.space,
        low=bounds.low,
        high=bounds.high,
        collapse=bounds.collapse,
        bounds=bounds.bounds,
        occupancy=bounds.occupancy,
        used=bounds.used,
    )
