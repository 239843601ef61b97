"""What a check of a store found, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raykit.cli import look, output

if TYPE_CHECKING:
    from raykit.store.check import Report

LISTED = 20


def report_lines(report: Report) -> Iterator[str]:
    """What a check found."""
    counts = report.counts
    looked = f"{output.count(counts.get('objects', 0))} objects, {output.size(counts.get('bytes', 0))}"
    depth = (
        "every byte read" if report.read_data else "records read, data by size only (--read-data reads all)"
    )
    yield f"{report.url}: {looked}; {depth}"
    parts = ["experiments", "accounts", "runs", "entries", "segments", "rows", "commits"]
    parts += [part for part in ("candidates", "sets", "units") if counts.get(part)]
    yield "  " + ", ".join(f"{output.count(counts.get(part, 0))} {part}" for part in parts)
    for n, finding in enumerate(report.findings[:LISTED], start=1):
        yield f"{n:>2}  {finding.invariant}  {finding.found}"
        yield f"    at     {finding.key}"
        yield f"    rule   {finding.rule}"
    yield from _more(len(report.findings))
    orphans = "named by nothing, left by a writer that was killed; harmless"
    yield from _listed("orphan", orphans, report.orphans)
    stranded = "part of something that is damaged or gone, as said above: keep it until that is restored"
    yield from _listed("stranded object", stranded, report.stranded)
    yield from _listed("unknown file", "not raykit's", report.unknown)
    yield (
        look.many(len(report.findings), "broken promise")
        if report.findings
        else "whole: no promise is broken"
    )


def _listed(what: str, why: str, items: Sequence[tuple[str, int]]) -> Iterator[str]:
    if items:
        yield f"  {look.many(len(items), what)}: {why}"
        yield from (f"    {key}  {output.size(size_bytes)}" for key, size_bytes in items[:LISTED])
        yield from _more(len(items))


def _more(count: int) -> Iterator[str]:
    if count > LISTED:
        yield f"    and {output.count(count - LISTED)} more (--json lists all)"
