"""What the commands on synthetic sets print: text made from what was read. Pure; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from raykit.cli import look, output, setlines
from raykit.cli.setlines import accounts, line
from raykit.pauses import way_on
from raykit.shards.units import rate

if TYPE_CHECKING:
    from raykit.data.exported import Exported
    from raykit.read.money import LineMoney
    from raykit.read.setview import Made, SetRead
    from raykit.records import CanaryPassed, Unit

MOST_LISTED = 8
MOST_REASONS = 6
UNIT_ORDER = ("published", "claimed", "retrying", "parked", "given-up", "open")


# --- several --------------------------------------------------------------------------------------------------

HEADERS = ("SET", "STATE", "ROWS", "PRODUCED", "FILTERED", "FAILED", "UNITS", "TEACHER", "MANIFEST")


def all_of_them(reads: Sequence[SetRead], columns: int | None, at: str) -> Iterator[str]:
    """One line for each set, and what each waits for."""
    if not reads:
        yield "no plan here has [generate], and no synthetic set was made"
        return
    right = ("ROWS", "PRODUCED", "FILTERED", "FAILED", "UNITS")
    drop = ("TEACHER", "FILTERED", "UNITS")
    rows = [_row(read) for read in reads]
    yield from output.fitting(HEADERS, rows, right=right, drop=drop, columns=columns).split("\n")
    for read in reads:
        if read.command is not None:
            yield f"  {read.id}: {read.words}"
            yield from setlines.way_on(read, at)


def _row(read: SetRead) -> tuple[str, ...]:
    made, none = read.made, look.NONE
    if made is None:
        rows = none if read.rows is None else output.count(read.rows)
        return (read.id, read.state, rows, none, none, none, none, read.teacher, none)
    digest = made.manifest_digest
    return (
        read.id,
        read.state,
        output.count(made.contract.rows),
        *(output.count(many) for many in (made.rows.produced, made.rows.filtered, made.rows.failed)),
        f"{output.count(made.units['published'])}/{output.count(made.units_total)}",
        f"{made.said.candidate}{' (scripted)' if made.scripted else ''}",
        none if digest is None else output.short(digest),
    )


# --- one set --------------------------------------------------------------------------------------------------


def whole(read: SetRead, money: LineMoney | None, unit: Unit, at: str) -> Iterator[str]:
    """Everything about one set."""
    yield f"{read.id} {output.DOT} {read.words}{_of_contract(read)}"
    made = read.made
    if made is None:
        asked = "as many as its inputs give" if read.rows is None else output.count(read.rows)
        yield f"  rows      {asked} requested; nothing is made yet"
        yield f"  teacher   {read.teacher}"
    else:
        yield from _rows(made)
        yield from _bounds(made)
        yield from _units(made)
        yield from _canary(made, unit)
        yield from _options(made, unit)
        yield from _attempts(made)
        yield from _end(made)
        yield from (f"  {name:<9} {text}" for name, text in _population(made))
    if money is not None:
        spent, kept = output.amount(money.actual, unit), output.amount(money.reserved, unit)
        planned = output.amount(money.planned, unit)
        yield f"  money     {spent} spent, {kept} reserved of {planned} for all synthetic sets of this plan"
    yield from _way_on(read, at)


def _of_contract(read: SetRead) -> str:
    if read.made is None:
        return ""
    before = f" after {look.many(read.contracts - 1, 'other')}" if read.contracts > 1 else ""
    scripted = f" {output.DOT} scripted" if read.made.scripted else ""
    return f" {output.DOT} contract {output.short(read.made.digest)}{before}{scripted}"


def _rows(made: Made) -> Iterator[str]:
    from raykit.shards.closing import shortfall

    short = f"; {shortfall(made.rows)}" if made.manifest is not None else ""
    yield f"  rows      {accounts(made)}{short}"
    told = made.reasons
    yield from _reasons("filtered", made.rows.filtered, told.filtered)
    yield from _reasons("failed", made.rows.failed, told.failed)
    if told.receipts < told.of:
        count, of = output.count(told.receipts), output.count(told.of)
        yield f"            as far as the newest {count} of {of} units tell; the manifest will have all"


def _bounds(made: Made) -> Iterator[str]:
    from raykit.shards.bounded import against

    told, name = made.bounded, "bad rows"
    for count in told.counts:
        yield f"  {name:<9} {against(count)}"
        name = ""
    if told.receipts < told.of:
        yield f"            in the newest {output.count(told.receipts)} of {output.count(told.of)} units"


def _reasons(what: str, many: int, reasons: Mapping[str, int]) -> Iterator[str]:
    if not many or not reasons:
        return
    shown = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    listed = ", ".join(f"{output.count(count)} {reason}" for reason, count in shown[:MOST_REASONS])
    more = (
        f" and {len(shown) - MOST_REASONS} more reasons (--json has all)" if len(shown) > MOST_REASONS else ""
    )
    yield f"  {what:<9} {listed}{more}"


def _units(made: Made) -> Iterator[str]:
    found = sorted(made.units.items(), key=lambda each: UNIT_ORDER.index(each[0]))
    parts = [f"{output.count(many)} {status}" for status, many in found if many]
    size = f", {output.size(made.size_bytes)}" if made.size_bytes else ""
    yield f"  units     {output.count(made.units_total)}: {', '.join(parts)}{size}"


def _canary(made: Made, unit: Unit) -> Iterator[str]:
    canary = made.canary
    if canary is None:
        yield "  canary    not passed yet: one worker makes the first units"
        return
    yield f"  canary    {_paced(canary)}"
    low, whole, high = (
        output.duration(each / 1000) for each in (canary.low_ms, canary.whole_ms, canary.high_ms)
    )
    cost = "not billed" if not canary.worst_cost else f"at most {output.amount(canary.worst_cost, unit)}"
    yield f"  projected {whole} ({low} to {high}) on one accelerator, {cost}"


def _paced(canary: CanaryPassed) -> str:
    pace = 1000 * canary.rows.requested / canary.took_ms if canary.took_ms else 0.0
    peak = f", peak {output.size(canary.peak_bytes)}" if canary.peak_bytes else ""
    rows = f"{look.many(canary.units, 'unit')}, {output.count(canary.rows.requested)} rows"
    return f"{rows}: {rate(pace)} rows/s{peak}"


def _options(made: Made, unit: Unit) -> Iterator[str]:
    """The ways of decoding that were measured before the contract was frozen, the one that was taken first."""
    from raykit.shards.options import idle_words

    options = made.said.options
    yield from (f"  decode    {line}" for line in idle_words(options))
    if len(options) < 2:
        return
    metrics = sorted({name for option in options for name in option.quality})
    rows = [
        (
            ("> " if n == 0 else "  ") + option.name,
            *(look.number(option.quality.get(name)) for name in metrics),
            rate(1000 * option.rows / option.took_ms) if option.took_ms else look.NONE,
            output.duration(option.whole_ms / 1000),
            output.amount(option.whole_cost, unit),
        )
        for n, option in enumerate(options)
    ]
    headers = ("OPTION", *(name.upper() for name in metrics), "ROWS/S", "WHOLE SET", "COST")
    yield f"  options   {_surface(made)}the first one was taken"
    yield from (f"    {text}" for text in output.table(headers, rows, right=headers[1:]).split("\n"))


def _surface(made: Made) -> str:
    return "" if made.said.surface is None else f"on {made.said.surface}; "


def _attempts(made: Made) -> Iterator[str]:
    tries = made.attempts
    if tries.failed:
        told = ", ".join(f"{output.count(count)} {kind}" for kind, count in tries.failed.items())
        yield f"  tries     {look.many(sum(tries.failed.values()), 'attempt')} came to nothing: {told}"
    for unit, failure in tries.newest:
        yield f"    unit {output.count(unit)}, try {failure.n}: {failure.kind}: {failure.message}"
    if tries.disputed:
        many = look.many(len(tries.disputed), "unit")
        yield f"  conflicts {many} had two different answers: the first one counts, the other is kept beside it"
    if made.parked:
        from raykit.shards.spans import shown

        yield f"  parked    {shown(made.parked)}"
    if made.defect is not None:
        yield f"  defect    {made.defect.words}"


def _end(made: Made) -> Iterator[str]:
    from raykit.shards.bounds import words

    if made.manifest_digest is None:
        return
    yield f"  manifest  {made.manifest_digest}"
    for finding in made.findings:
        yield f"  finding   {words(finding)}"
    if made.findings:
        yield "            whoever reads the set says why it is used all the same: despite"


def _population(made: Made) -> Iterator[tuple[str, str]]:
    """How the rows are made; long names and columns shortened to what fits a line."""
    short = {"normalization": "scale"}
    yield from ((short.get(name, name), text) for name, text in made.population)


def _way_on(read: SetRead, at: str) -> Iterator[str]:
    if read.state == "complete":
        yield f"  -> raykit generate export {read.id} DIR{at}"
    yield from setlines.way_on(read, at)
    if read.state == "parked":
        unit = 0 if read.made is None else min(read.made.parked)
        yield "  or, if its rows may count as failed:"
        yield f"  -> raykit generate give-up {read.id} --unit {unit} --reason ... --by NAME{at}"


# --- what an act has led to -----------------------------------------------------------------------------------


def after_launch(
    reads: Sequence[SetRead], pictures: Sequence[str], why: str | None, cost: str | None, at: str
) -> Iterator[str]:
    """How far the sets are once a launch has ended. `pictures` are where samples of those that are new lie."""
    for read in reads:
        yield line(read)
    if why is not None and not any(read.words in why for read in reads):  # else the set has said it
        yield f"  stopped   {why}"
    yield from (f"  samples   {place}" for place in pictures)
    if cost:
        yield f"  cost      {cost} for this launch"
    yield from dict.fromkeys(text for read in reads for text in _way_on(read, at))


def exported(done: Exported) -> Iterator[str]:
    """What was taken out of the store, and where it lies."""
    of = done.of.manifest
    yield (
        f"{done.of.name}: {output.count(done.rows)} rows in {look.many(len(done.files), 'file')}, "
        f"{output.size(done.size_bytes)}, at {done.folder}"
    )
    yield (
        f"  of        {output.count(of.rows.requested)} requested, {output.count(of.rows.filtered)} filtered, "
        + (f"{output.count(of.rows.failed)} failed; manifest {output.short(done.of.digest)}")
    )
    if of.scripted:
        yield "  scripted  a script has approved its teacher: not for production"
    if done.of.despite is not None and of.findings:
        yield f"  despite   {done.of.despite}"
    loader = "parquet" if done.form == "parquet" else "json"
    yield f'  open      datasets.load_dataset("{loader}", data_dir="{done.folder}")'


def retried(read: SetRead, units: Sequence[int], asked: Sequence[int] | None, at: str) -> Iterator[str]:
    """What may be tried again, or why nothing has to be."""
    from raykit.shards.spans import shown

    if units:
        yield f"{read.id}: {shown(units)} may be tried again."
        if read.pause is not None:
            yield f"  {read.pause.words}"
            yield f"  -> {way_on(read.pause)}{at}"
        yield f"  -> raykit generate PLAN{at}"
    elif asked is not None:
        yield f"{read.id}: {shown(asked)} {'is' if len(set(asked)) == 1 else 'are'} not parked; nothing was written."
    else:
        yield f"{read.id}: nothing is parked; nothing was written."


def gave_up(read: SetRead, units: Sequence[int], rows: int, at: str) -> Iterator[str]:
    """What was given up, and what closes the set."""
    from raykit.shards.spans import shown

    if not units:
        yield f"{read.id}: these units are given up already; nothing was written."
        return
    yield f"{read.id}: {shown(units)} given up: {output.count(rows)} rows count as failed."
    yield f"  -> raykit generate PLAN{at}"
