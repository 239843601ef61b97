"""What is known of one registered candidate, as `raykit show` prints it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raykit.budget.amounts import shown
from raykit.cli import look, output

if TYPE_CHECKING:
    from raykit.read.bases import BaseFacts, Known
    from raykit.records import Registered

UNKNOWN = "not known"


def weights_lines(known: Known) -> Iterator[str]:
    """What people said of a candidate, what of it holds here, and its files."""
    said, facts = known.said, known.facts
    yield f"{said.candidate}, a registered candidate"
    yield output.facts(list(_facts(known)))
    if known.files is not None:
        yield ""
        rows = [(file.name, output.size(file.size_bytes), file.holds, file.sha256) for file in known.files]
        yield output.table(("FILE", "SIZE", "HOLDS", "SHA256"), rows, right=("SIZE",))
    if facts.unread:
        yield ""
        yield f"  may depend on it, too: {', '.join(facts.unread)} (their plans cannot be read)"


def _facts(known: Known) -> Iterator[tuple[str, str]]:
    said, facts = known.said, known.facts
    where = f"of run {said.experiment}" if said.origin == "run" else "adopted: made elsewhere"
    yield "role", f"{said.role}, {where}"
    yield "source", said.source or UNKNOWN
    yield "manifest", f"sha256 {said.manifest}"
    size = UNKNOWN if facts.size_bytes is None else output.size(facts.size_bytes)
    yield "bytes", f"{size}, there as listed" if facts.verifies else f"BROKEN: {facts.broken}"
    if facts.history == "absent":
        yield "history", "absent: nothing is known here of how it was trained"
    else:
        yield "history", f"kept: raykit show {facts.base.experiment}"
    for n, (at, each) in enumerate(reversed(known.statements)):
        yield f"{each.person} says" if n == 0 else "before", _statement(at, each, stands=n == 0)
    yield "updates", _number(facts.updates, facts)
    yield "rows", _number(facts.rows, facts)
    yield "invested", _invested(facts)
    yield "cost", UNKNOWN if facts.cost is None else shown(facts.cost, facts.unit)
    yield "used by", ", ".join(facts.dependents) or "no plan that is locked here"


def _number(number: int | None, facts: BaseFacts) -> str:
    if number is None:
        return UNKNOWN
    return output.count(number) + (f", as {facts.said_by} says" if facts.said_by is not None else "")


def _invested(facts: BaseFacts) -> str:
    if facts.accelerator_ms is None:
        return UNKNOWN
    by = f", as {facts.said_by} says" if facts.said_by is not None else ""
    return f"{facts.accelerator_ms / 3_600_000:,.4g} accelerator-hours{by}"


def _statement(at: float, said: Registered, *, stands: bool) -> str:
    from raykit.cli.adopt import said_of

    by = "" if stands else f"{said.person} had said: "
    return f"{by}{said_of(said)} ({look.moment(at)})"


def weights_record(known: Known) -> dict[str, Any]:
    """The same as JSON values."""
    facts = known.facts
    return {
        **known.said.plain(),
        "verifies": facts.verifies,
        "broken": facts.broken,
        "said_by": facts.said_by,
        "updates": facts.updates,
        "size_bytes": facts.size_bytes,
        "dependents": list(facts.dependents),
        "unread": list(facts.unread),
        "files": None if known.files is None else [file.plain() for file in known.files],
        "statements": [{**said.plain(), "at": at} for at, said in known.statements],
    }
