"""The synthetic sets of the page: what became of their rows, how they are made, and what they look like. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raykit.read.page import Page
from raykit.read.setview import Made, SetRead
from raykit.records import Unit
from raykit.report.page.images import Picture, picture_of
from raykit.report.page.summary import Part
from raykit.report.page.tables import Cell, Links, Table, cell, right
from raykit.report.page.words import NONE, amount, clean, duration, many, number, percent, size
from raykit.shards.bounded import against
from raykit.shards.bounds import words
from raykit.shards.closing import shortfall
from raykit.shards.spans import shown
from raykit.shards.units import rate
from raykit.store import layout

MAX_SAMPLES_BYTES = 1_500_000
"""A larger picture stays in the store."""
MOST_REASONS = 12

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPart:
    """One set as the page has it."""

    name: str
    state: str
    css: str
    parts: tuple[Part, ...]
    """The bar of its rows; none before a contract."""
    accounts: str
    notes: tuple[str, ...]
    bad: tuple[str, ...]
    """What stands against using it."""
    manifest: Cell | None
    contract: Cell | None
    facts: Facts
    """How its rows are made: which population they stand for."""
    options: Table | None
    tries: Table | None
    samples: Picture | None


def sets_of(page: Page, links: Links, samples: Mapping[str, bytes]) -> list[SetPart]:
    """Every set. `samples` are pictures of their rows, by name."""
    money = page.view.money if page.view is not None else None
    unit: Unit = "usd" if money is None else money.unit
    return [_part(each, links, samples.get(each.name), unit) for each in page.sets]


def waiting(page: Page) -> str:
    """Sets of which nothing has begun, for the foot of the timeline."""
    found = [each for each in page.sets if each.made is None]
    return "; ".join(f"generate {clean(each.name, 60)}: {clean(each.words, 200)}" for each in found)


def _part(read: SetRead, links: Links, samples: bytes | None, unit: Unit) -> SetPart:
    made = read.made
    wrong = read.state in ("parked", "out of budget") or (made is not None and (made.findings or made.defect))
    css = "bad" if wrong else ""
    if made is None:
        asked = "as many rows as its inputs give" if read.rows is None else many(read.rows, "row")
        return SetPart(
            name=clean(read.id, 300),
            state=clean(read.words, 300),
            css=css,
            parts=(),
            accounts=f"{asked} requested; nothing is made yet",
            notes=(f"teacher: {clean(read.teacher, 100)}",),
            bad=(),
            manifest=None,
            contract=None,
            facts=(),
            options=None,
            tries=None,
            samples=None,
        )
    where = (read.experiment, read.name, made.digest)
    manifest = made.manifest_digest
    return SetPart(
        name=clean(read.id, 300),
        state=clean(read.words, 300),
        css=css,
        parts=tuple(_bar(made)),
        accounts=_accounts(made),
        notes=tuple(_notes(made, unit)),
        bad=tuple(_against(made)),
        manifest=None if manifest is None else links.digest(manifest, layout.generation_manifest(*where)),
        contract=links.digest(made.digest, layout.generation_contract(*where)),
        facts=tuple((name, clean(text, 600)) for name, text in made.population),
        options=_options(made, unit),
        tries=_tries(made),
        samples=_samples(read, samples),
    )


def _samples(read: SetRead, data: bytes | None) -> Picture | None:
    return picture_of(data, f"Rows of {clean(read.id, 200)} as pictures", most_bytes=MAX_SAMPLES_BYTES)


# --- rows -----------------------------------------------------------------------------------------------------


def _bar(made: Made) -> Iterator[Part]:
    rows, whole = made.rows, made.contract.rows
    for name, css, count in (
        ("produced", "produced", rows.produced),
        ("filtered", "filtered", rows.filtered),
        ("failed", "failed-rows", rows.failed),
        ("not yet made", "free", whole - rows.requested),
    ):
        if count or name in ("produced", "failed"):
            yield Part(name=name, amount=f"{count:,}", percent=percent(count, whole), css=css)


def _accounts(made: Made) -> str:
    rows = made.rows
    counts = f"{rows.produced:,} produced, {rows.filtered:,} filtered, {rows.failed:,} failed"
    if made.manifest is None:
        return f"{rows.requested:,} of {made.contract.rows:,} rows accounted for: {counts}"
    return f"{rows.requested:,} requested, {counts}; {shortfall(rows)}"


def _notes(made: Made, unit: Unit) -> Iterator[str]:
    units = made.units
    states = ", ".join(f"{count:,} {status}" for status, count in units.items() if count)
    yield f"{many(made.units_total, 'unit')}: {states}, {size(made.size_bytes)}"
    for what, reasons in (("filtered", made.reasons.filtered), ("failed", made.reasons.failed)):
        if reasons:
            listed = [
                f"{count:,} {clean(reason, 200)}" for reason, count in list(reasons.items())[:MOST_REASONS]
            ]
            yield f"{what}: {', '.join(listed)}"
    told = made.bounded
    if told.counts:
        some = f", in the newest {told.receipts:,} of {told.of:,} units" if told.receipts < told.of else ""
        yield f"bad rows{some}: {'; '.join(map(against, told.counts))}"
    if made.reasons.receipts < made.reasons.of:
        yield f"reasons as far as {made.reasons.receipts:,} of {made.reasons.of:,} units tell"
    canary = made.canary
    if canary is None:
        yield "the canary has not passed yet"
        return
    pace = f"{rate(1000 * canary.rows.requested / canary.took_ms)} rows/s" if canary.took_ms else "no pace"
    low, whole, high = (duration(ms / 1000) for ms in (canary.low_ms, canary.whole_ms, canary.high_ms))
    cost = "not billed" if not canary.worst_cost else f"at most {amount(canary.worst_cost, unit)}"
    yield (
        f"canary: {many(canary.units, 'unit')}, {canary.rows.requested:,} rows at {pace}; projected {whole} "
        f"({low} to {high}) on one accelerator, {cost}"
    )


def _against(made: Made) -> Iterator[str]:
    if made.scripted:
        yield "scripted: only a script has approved its teacher; not for production"
    yield from (words(finding) for finding in made.findings)
    if made.defect is not None:
        yield clean(made.defect.words, 600)
    if made.parked:
        yield f"parked, a person is needed: {shown(made.parked)}"
    if made.attempts.disputed:
        yield f"two different answers: {shown(made.attempts.disputed)}"


# --- tables -----------------------------------------------------------------------------------------------------


def _options(made: Made, unit: Unit) -> Table | None:
    """The ways of decoding as they were measured on the real producer before the contract was frozen."""
    options = made.said.options
    if len(options) < 2:  # the plan's own alone: there was nothing to choose from
        return None
    metrics = sorted({name for option in options for name in option.quality})
    rows = tuple(
        (
            cell(("\u25b6 " if n == 0 else "") + clean(option.name, 60), "selected" if n == 0 else ""),
            cell(_decode(option.decode)),
            *(right(number(option.quality.get(name))) for name in metrics),
            right(rate(1000 * option.rows / option.took_ms) if option.took_ms else NONE),
            right(duration(option.whole_ms / 1000)),
            right(amount(option.whole_cost, unit) if option.whole_cost else NONE),
        )
        for n, option in enumerate(options)
    )
    names = (clean(name, 40) for name in metrics)
    headers = ("option", "decode", *names, "rows/s", "whole set", "cost")
    surface = "" if made.said.surface is None else f", their quality on {clean(made.said.surface, 60)}"
    return Table(caption=f"Ways of decoding, as they were measured{surface}", headers=headers, rows=rows)


def _decode(decode: Mapping[str, object]) -> str:
    return clean(", ".join(f"{name} = {value}" for name, value in decode.items()), 200) or NONE


def _tries(made: Made) -> Table | None:
    tries = made.attempts
    if not tries.newest:
        return None
    rows: Sequence[tuple[Cell, ...]] = [
        (
            right(f"{unit:,}"),
            right(failure.n),
            cell(failure.kind),
            cell(clean(failure.worker, 60)),
            cell(clean(failure.message, 400)),
        )
        for unit, failure in tries.newest
    ]
    told = ", ".join(f"{count:,} {kind}" for kind, count in tries.failed.items())
    return Table(
        caption=f"Attempts that came to nothing: {told}",
        headers=("unit", "try", "kind", "worker", "what it said"),
        rows=tuple(rows),
        note="the newest: raykit generate status --json has more"
        if sum(tries.failed.values()) > len(rows)
        else None,
    )
