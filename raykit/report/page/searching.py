"""The search of the page: its table of trials, the charts, the pick with its evidence and what was left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from raykit.read.page import Page
from raykit.read.search import RowRead, RowStatus, SearchRead
from raykit.report.page.images import Picture, picture_of
from raykit.report.page.summary import Figure, Part
from raykit.report.page.tables import Cell, Links, Table, cell, right
from raykit.report.page.words import NONE, amount, clean, duration, number, percent
from raykit.store import layout

MAX_ROWS = 200
"""So many rows are on the page; the best of more are."""
MAX_PARAMETERS = 8
MAX_PICTURE_BYTES = 1_500_000

ALTS = {
    "trials.png": "Values of all rows in the order in which they began, with the best so far and the incumbent",
    "cost.png": "Value of each row against its cost, and the rows than which none is both better and cheaper",
    "parameters.png": "Value of each row against each searched parameter",
}
_PARTS: tuple[tuple[str, str, tuple[RowStatus, ...]], ...] = (
    ("completed", "produced", ("completed",)),
    ("stopped by the scheduler", "filtered", ("stopped-by-scheduler",)),
    ("failed", "failed-rows", ("failed",)),
    ("ended by a budget", "recovery", ("censored-by-budget", "refused-by-budget")),
    ("begun, without an end", "reserved", ("running", "stopping", "ending", "stopped")),
    ("open, or never started", "free", ("waiting", "never-started")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """A search as the page has it."""

    state: str
    css: str
    summary: str
    parts: tuple[Part, ...]
    """The bar of its rows."""
    facts: tuple[tuple[str, str], ...]
    pick: tuple[tuple[str, str], ...]
    """The pick, and what it rests on; empty as long as there is none."""
    noise: str | None
    """That the difference to the incumbent is inside the noise, where it is."""
    excluded: tuple[tuple[str, str], ...]
    """Rows that the pick left out, by why."""
    rows: Table
    registration: Cell
    pictures: tuple[Picture, ...]


def search_of(page: Page, links: Links, pictures: Mapping[str, bytes]) -> SearchPart | None:
    """The search of an experiment; None where there is none. `pictures` are its charts, by file."""
    read = page.search
    if read is None:
        return None
    key = layout.search_registration(read.experiment, read.registration.search)
    verdict = read.verdict
    return SearchPart(
        state=clean(read.words, 300),
        css="bad" if read.health not in ("ok", "unknown", "needs you") else "",
        summary=read.summary,
        parts=tuple(_parts(read)),
        facts=tuple((name, clean(text, 600)) for name, text in _facts(read)),
        pick=tuple((name, clean(text, 600)) for name, text in _pick(read)),
        noise=clean(verdict.words, 600) if verdict is not None and verdict.inside_noise else None,
        excluded=tuple((rows, clean(why, 300)) for why, rows in read.left_out.items()),
        rows=_rows(read, links),
        registration=links.digest(read.digest, key),
        pictures=tuple(
            picture
            for file, alt in ALTS.items()
            if (picture := picture_of(pictures.get(file), alt, most_bytes=MAX_PICTURE_BYTES)) is not None
        ),
    )


def figures_of(read: SearchRead) -> Iterator[Figure]:
    """How a search stands, at a glance: rows, the best value, examinations."""
    counts = read.counts
    notes = tuple(f"{many:,} {status}" for status, many in counts.items() if many)
    css = "bad" if counts["failed"] else ""
    yield Figure(name="trials ended", value=f"{read.done:,} of {len(read.rows):,}", notes=notes, css=css)
    yield _best(read)
    yield _examined(read)


def _best(read: SearchRead) -> Figure:
    name = f"best development {clean(read.metric, 40)}"
    if read.picked is not None:
        over = len(read.picked.values)
        notes = [f"row {read.picked.row}, picked", f"mean of {over} seeds" if over > 1 else "one seed"]
        if read.verdict is not None and read.verdict.inside_noise:
            notes.append("INSIDE THE NOISE")
        if read.worthwhile is not None:
            notes.append(f"worthwhile {read.worthwhile:g}")
        return Figure(name=name, value=number(read.picked.value), notes=tuple(notes))
    best = read.best
    if best is None:
        return Figure(name=name, value=NONE, notes=("no row is completed yet",))
    return Figure(name=name, value=number(best.value), notes=(f"row {best.row}, so far; nothing is picked",))


def _examined(read: SearchRead) -> Figure:
    if read.qc is None:
        return Figure(name="checkpoints examined", value=NONE, notes=("the plan has no [qc], or none began",))
    done = read.qc.get("passed", 0) + read.qc.get("failed", 0)
    words = ("failed", "open", "unreviewed")
    notes = tuple(f"{read.qc[word]:,} {word}" for word in words if read.qc.get(word))
    css = "bad" if read.qc.get("failed") else ""
    of = done + read.qc.get("open", 0)
    return Figure(name="checkpoints examined", value=f"{done:,} of {of:,}", notes=notes, css=css)


def _parts(read: SearchRead) -> Iterator[Part]:
    counts, whole = read.counts, len(read.rows)
    for name, css, statuses in _PARTS:
        many = sum(counts[status] for status in statuses)
        if many:
            yield Part(name=name, amount=f"{many:,}", percent=percent(many, whole), css=css)


def _facts(read: SearchRead) -> Iterator[tuple[str, str]]:
    said = read.registration
    yield "believes", said.hypothesis
    yield "predicts", said.predicts
    yield "metric", f"{said.metric}, the {'least' if said.mode == 'min' else 'most'} is best"
    if said.total_worst:
        worst = f"{amount(said.total_worst, said.unit)}, {amount(said.row_worst, said.unit)} a row"
        yield "cost", f"{amount(read.spent, said.unit)} of at most {worst}"
    else:
        yield "cost", "not billed"


def _pick(read: SearchRead) -> Iterator[tuple[str, str]]:
    picked = read.picked
    if picked is None:
        return
    row = read.rows[picked.row - 1]
    yield "picked", f"{read.pick_words}; observed, and nothing more"
    yield "setting", _setting(row)
    if len(picked.values) > 1:
        yield "seeds", ", ".join(number(value) for value in picked.values)
    if read.verdict is not None:
        yield "against", read.verdict.words
    if picked.candidate is not None:
        yield "weights", f"{picked.candidate}, role search-checkpoint: nobody has recommended or approved it"


def _setting(row: RowRead) -> str:
    if row.params is None:
        return NONE
    return ", ".join(f"{name} = {_value(value)}" for name, value in row.params.items())


def _value(value: object) -> str:
    return clean(f"{value:.6g}" if isinstance(value, float) else str(value), 60)


def _rows(read: SearchRead, links: Links) -> Table:
    names = list(read.registration.space)
    spread = names if len(names) <= MAX_PARAMETERS else []
    shown = list(read.rows)
    if len(shown) > MAX_ROWS:
        best = sorted(shown, key=lambda row: (not row.counts, read.order(row.value), row.row))[:MAX_ROWS]
        shown = sorted(best, key=lambda row: row.row)
    headers = (
        "row",  # what a narrow screen shows without being moved comes first
        clean(read.metric, 40),
        "end",
        *(clean(name, 40) for name in spread),
        *(() if spread else ("setting",)),
        "seed",
        "updates",
        *(("cost",) if read.registration.total_worst else ()),
        "tries",
        "time",
        "",
    )
    left = len(read.rows) - len(shown)
    note = (
        f"the best {len(shown):,} of {len(read.rows):,} rows: raykit search status --all has all"
        if left
        else None
    )
    return Table(
        caption="The registered table",
        headers=headers,
        rows=tuple(tuple(_row(read, row, spread, links)) for row in shown),
        note=note,
    )


def _row(read: SearchRead, row: RowRead, spread: list[str], links: Links) -> Iterator[Cell]:
    name = f"{row.row}" if row.repeats is None else f"{row.row} = {row.repeats}"
    picked = read.picked is not None and row.row == read.picked.row
    key = layout.run_record(read.experiment, row.run) if row.begun_at is not None else None
    yield Cell(text=name, css="selected" if picked else "", href=links.to(key), title=row.run)
    value = number(row.value) + (f" @{row.at:,}" if row.at is not None and row.at != row.update else "")
    yield right(value if row.counts or row.value is None else f"({value})")
    yield cell(row.status, _css(row))
    for parameter in spread:
        has = row.params is not None and parameter in row.params
        yield right(_value(row.params[parameter]) if has and row.params is not None else NONE)
    if not spread:
        yield cell(_setting(row))
    yield right(row.seed)
    yield right(f"{row.update:,}" if row.attempts else NONE)
    if read.registration.total_worst:
        yield right(amount(row.spent, read.unit) if row.spent else NONE)
    yield right(row.attempts or NONE)
    yield right(NONE if row.took_s is None else duration(row.took_s))
    yield cell(clean(", ".join(_notes(read, row)), 300), "w")


def _css(row: RowRead) -> str:
    return "t " + {"failed": "bad", "completed": "ok"}.get(row.status, "pending")


def _notes(read: SearchRead, row: RowRead) -> Iterator[str]:
    if read.picked is not None and row.row == read.picked.row:
        yield "picked"
    if row.row == read.incumbent:
        yield "incumbent"
    if not row.ended and row.health not in ("ok", "unknown"):
        yield row.health
    if row.detail and row.status != "never-started":
        yield row.detail
