"""The checks of a plan as people read them before anything starts: each threshold as it will act. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raykit.cli import look, output

if TYPE_CHECKING:
    from raykit.fleet.evidence import Case
    from raykit.plan.tables import Qc
    from raykit.qc.thresholds import Read


def block(case: Case) -> Iterator[str]:
    """What `[qc]` asks of every checkpoint; nothing for a plan without it."""
    qc = case.site.plan.qc
    if qc is None:
        return
    yield ""
    yield "  QC"
    yield from output.wrapped(_scope(case, qc), output.width(), hang=2)
    rows = [(each.name, each.rule or "not there", each.says, each.comes) for each in _reads(case, qc)]
    headers = ("METRIC", "FAILS IF", "MEANS", "FROM")
    columns = output.width()
    table = output.fitting(headers, rows, drop=("FROM",), columns=None if columns is None else columns - 2)
    yield from (f"  {line}" for line in table.splitlines())
    for text in _doubts(case, qc):
        yield from output.wrapped(f"!  {text}", output.width(), hang=3)


def record(case: Case) -> dict[str, Any] | None:
    """The same for programs."""
    qc = case.site.plan.qc
    if qc is None:
        return None
    return {
        "metrics": [
            {"metric": each.name, "fails": each.rule, "means": each.says, "from": each.comes}
            for each in _reads(case, qc)
        ],
        "doubts": list(_doubts(case, qc)),
    }


def _scope(case: Case, qc: Qc) -> str:
    roster = None if case.ready is None else case.ready.roster
    units = f"rows of {qc.roster.from_}"
    if roster is not None:
        strata = (
            f"{len(roster.quotas)} strata of {qc.roster.stratum}" if len(roster.quotas) > 1 else "no strata"
        )
        units = f"{look.many(len(roster.units), 'row')} of {qc.roster.from_} ({strata})"
    every = output.count(qc.every)
    return f"every {every} updates on {units}; a failure: {qc.on_failure}; {qc.owner} answers for it"


def _reads(case: Case, qc: Qc) -> tuple[Read, ...]:
    from raykit.qc.thresholds import read

    return read(qc, _methods(case))


def _methods(case: Case) -> frozenset[str]:
    """Of a plan that is judged on paper nobody has seen the recipe: it may report anything."""
    asked = ("evaluate", "classify", "text", "embed")
    if case.ready is None:
        return frozenset(asked)
    return frozenset(name for name in asked if callable(getattr(case.ready.recipe, name, None)))


def _doubts(case: Case, qc: Qc) -> Iterator[str]:
    from raykit.qc.thresholds import doubts

    roster = None if case.ready is None else case.ready.roster
    strata = ("?", "?") if roster is None else tuple(roster.quotas)
    yield from doubts(qc, _reads(case, qc), strata)
