"""A search as text: its table of trials, the pick and what it rests on, who is waited for. Pure; reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raykit.cli import look, output
from raykit.cli import money as show_money

if TYPE_CHECKING:
    from raykit.read.search import RowRead, SearchRead

MOST_ROWS = 40
"""Rows that are shown of a long table, if nobody asks for more."""
MOST_COLUMNS = 5
"""So many searched parameters have a column each; of more there is one column for all."""
MOST_TOLD = 5
TOLD_WHY = frozenset({"failed", "stopping", "censored-by-budget"})
"""Of these rows the table says why."""
FULL, LIVE_MARK, EMPTY = "\u2588", "\u2593", "\u2591"
DROP = ("TIME", "TRIES", "SEED", "UPDATE", "COST")
"""What a narrow terminal does without, the first first."""


# --- one line -----------------------------------------------------------------------------------------------


def status_row(read: SearchRead) -> tuple[str, ...]:
    """A search as one line of `raykit status`, in its columns."""
    best = read.best
    return (
        read.experiment,
        read.state,
        read.progress,
        look.NONE,
        look.NONE,
        look.NONE,
        look.NONE if best is None else f"{read.metric} {look.number(best.value)}",
        qc_cell(read),
        show_money.spent(read.money),
        read.health,
    )


def status_rows(read: SearchRead, *, trials: bool) -> list[tuple[str, ...]]:
    """A search in the columns of `raykit status`; with `trials`, its begun rows under it."""
    under = [_trial_row(read, row) for row in read.rows if row.attempts] if trials else []
    return [status_row(read), *under]


def _trial_row(read: SearchRead, row: RowRead) -> tuple[str, ...]:
    billed = bool(read.registration.total_worst)
    return (
        f"  {row.run}",
        row.status,
        f"{output.count(row.update)}/{output.count(read.registration.updates)}",
        look.NONE,
        look.NONE,
        look.NONE,
        look.NONE if row.value is None else f"{read.metric} {reported(row)}",
        look.NONE,
        output.money(row.spent, read.unit) if billed else look.NONE,
        look.NONE if row.ended else row.health,
    )


def qc_cell(read: SearchRead) -> str:
    """`8 ok · 1 fail`, over all rows."""
    if read.qc is None:
        return look.NONE
    words = (("passed", "ok"), ("failed", "fail"), ("unjudged", "not judged"), ("open", "open"))
    counts = {**read.qc, "passed": read.qc["passed"] - read.qc.get("unjudged", 0)}
    parts = [f"{output.count(counts[key])} {word}" for key, word in words if counts.get(key)]
    return f" {output.DOT} ".join(parts) or look.NONE


def wants(read: SearchRead, now: float, at: str = "") -> Iterator[str]:
    """Who or what a search waits for, and the commands that go on; nothing if it waits for nobody."""
    yield from map(output.clean, _wants(read, now, at))


def _wants(read: SearchRead, now: float, at: str) -> Iterator[str]:
    name = read.experiment
    if read.state == "cancelled":
        yield f"  {name} {read.words}"
    elif read.live:
        held = "" if read.place is None else f" by process {read.place.pid} on {read.place.host}"
        yield f"  {name} is held{held}: {_live_words(read, now)}"
    elif read.waits_for is not None:
        yield f"  {name} {read.words if read.pick_due is None else read.pick_due.words}"
        if read.commands:  # one after the other: before the first is done, the next is refused
            yield f"  -> {'      then      '.join(f'{command}{at}' for command in read.commands)}"
    yield from _trouble(read, at)
    if read.money is not None:
        yield from show_money.pending(read.money, at)


def _live_words(read: SearchRead, now: float) -> str:
    heard = [row.heard_at for row in read.at_work if row.heard_at is not None]
    shown = [_far(row) for row in read.at_work[:MOST_TOLD]]
    rows = ", ".join(shown) or _between(read)
    more = f" and {len(read.at_work) - MOST_TOLD} more" if len(read.at_work) > MOST_TOLD else ""
    last = f", last heard {look.ago(max(heard), now)}" if heard else ""
    pausing = f"; {read.words}" if read.state == "pausing" else ""
    return f"{rows}{more}{last}{pausing}"


def _between(read: SearchRead) -> str:
    """What its driver does while no row is at work."""
    if not read.done:
        return "no row is at work yet"
    return "every row has its end" if read.done == len(read.rows) else "between two rows"


def _far(row: RowRead) -> str:
    """How far a row at work is; before its first update it starts, and its gates run."""
    if row.status == "ending":
        return f"row {row.row} ending"
    return f"row {row.row} at {output.count(row.update)}" if row.update else f"row {row.row} starting"


def _trouble(read: SearchRead, at: str) -> Iterator[str]:
    """Rows that failed while the search is not at its end, and rows whose history is not well."""
    if read.complete or read.state == "cancelled":
        return
    sick = [row for row in read.rows if not row.ended and row.health not in ("ok", "unknown")]
    failed = [row for row in read.rows if row.status == "failed"]
    for row in [*sick, *failed][:MOST_TOLD]:
        why = f": {row.detail}" if row.detail else ""
        word = row.status if row.ended else row.health
        yield f"  {read.experiment} row {row.row} {word}{why}"
        yield f"  -> raykit logs {read.experiment} --trial {row.row}{at}"


def unreadable(name: str, why: str, at: str) -> Iterator[str]:
    """A search whose records are damaged."""
    yield output.clean(f"  {name} cannot be read: {why}")
    yield f"  -> raykit check --read-data{at}"


# --- all of them --------------------------------------------------------------------------------------------


def all_of_them(reads: Sequence[SearchRead], now: float, at: str) -> Iterator[str]:
    """One line a search."""
    if not reads:
        yield "no plan here has [search]"
        yield f"  -> raykit search PLAN{at}"
        return
    rows = [
        (
            read.experiment,
            read.state,
            read.progress,
            look.NONE if read.best is None else f"{read.metric} {look.number(read.best.value)}",
            read.pick_words or look.NONE,
            show_money.spent(read.money),
        )
        for read in reads
    ]
    headers = ("SEARCH", "STATE", "TRIALS", "BEST", "PICK", "SPENT")
    yield from output.fitting(headers, rows, drop=("BEST", "SPENT"), columns=output.width()).split("\n")
    for read in reads:
        yield from wants(read, now, at)


# --- one, whole ---------------------------------------------------------------------------------------------


def whole(read: SearchRead, *, most: int | None, columns: int | None, at: str) -> Iterator[str]:
    """Everything about one search. `most` bounds the rows that are shown; None shows all of them."""
    yield f"{read.experiment} {output.DOT} {read.words} {output.DOT} {read.progress}"
    yield from _facts(list(facts(read)))
    yield ""
    shown = chosen(read, most)
    yield from rows_table(read, shown, columns).split("\n")
    left = len(read.rows) - len(shown)
    if left:
        yield f"  and {look.many(left, 'more row')}: --all shows every one, --limit N so many"
    if any(_bracketed(row) for row in shown):
        yield "  in brackets: reported so far, or by a row that cannot be picked"
    if any("@" in value_cell(row) for row in shown):
        yield "  @: the update that a value is from, where its row has come further"
    if any(row.status == "censored-by-budget" for row in shown):
        yield "  censored-by-budget: cut off, by money or by a cancel"
    yield ""
    yield from pick_lines(read, at)
    yield from wants(read, read.now, at)


def _facts(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in pairs)
    yield from (f"  {name:<{width}}  {text}" for name, text in pairs)


def facts(read: SearchRead) -> Iterator[tuple[str, str]]:
    """What was registered, and what it has come to."""
    said = read.registration
    if read.decision:
        yield "decides", read.decision
    yield "believes", said.hypothesis
    yield "predicts", said.predicts
    worthwhile = "" if read.worthwhile is None else f"; worthwhile from {read.worthwhile:g}"
    yield "metric", f"{said.metric}, the {'least' if said.mode == 'min' else 'most'} is best{worthwhile}"
    yield "space", space_words(said.space)
    yield "draws", draws_words(said.sampler, said.scheduler, said.concurrent)
    yield "rows", read.summary
    yield "cost", cost_words(read)
    if read.qc is not None:
        yield "qc", f"{qc_cell(read)}, {output.count(read.qc.get('unreviewed', 0))} to review"
    yield "registered", f"sha256 {output.short(read.digest)}, plan {output.short(said.plan)}"


def cost_words(read: SearchRead) -> str:
    """What it has cost so far against the worst, and what is reserved beyond that for rows at work."""
    said = read.registration
    if not said.total_worst:
        return "not billed"
    row = output.amount(said.row_worst, read.unit)
    worst = output.amount(said.total_worst, read.unit)
    more = read.cost - read.spent
    open_ = f"; {output.amount(more, read.unit)} more is reserved for rows at work" if more else ""
    return f"{output.amount(read.spent, read.unit)} of at most {worst}, {row} a row{open_}"


def space_words(space: Mapping[str, Mapping[str, Any]]) -> str:
    """`lr 0.0001 to 0.05 (log); width 16, 32 or 64`."""
    return "; ".join(f"{name} {span_words(span)}" for name, span in space.items())


def span_words(span: Mapping[str, Any]) -> str:
    """The values of one parameter."""
    form, values = next((form, values) for form, values in span.items() if values is not None)
    if form == "choice":
        texts = [value_text(value) for value in values]
        return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
    low, high = (value_text(value) for value in values)
    return f"{low} to {high}" + {"loguniform": " (log)", "integer": " (whole)"}.get(form, "")


def draws_words(sampler: Mapping[str, Any], scheduler: Mapping[str, Any] | None, concurrent: int) -> str:
    """Who draws the settings, who stops trials early, and how many are at work at once."""
    drawn = f"{sampler['name']}, seed {sampler['seed']}"
    return f"{drawn}; {stops_words(scheduler)}; {output.count(concurrent)} at once"


def stops_words(scheduler: Mapping[str, Any] | None) -> str:
    """Who stops trials early, and from when on."""
    if scheduler is None:
        return "nobody stops a trial early"
    more = ""
    if scheduler.get("reduction"):
        more = f", one in {scheduler['reduction']} goes on"
    elif scheduler.get("least"):
        more = f", once {scheduler['least']} trials have reported"
    return f"{scheduler['name']} stops trials from update {output.count(scheduler['grace_updates'])}{more}"


# --- the table ----------------------------------------------------------------------------------------------


def chosen(read: SearchRead, most: int | None) -> list[RowRead]:
    """The rows to show, in their order: those at work, the best, what failed, then the first."""
    if most is None or len(read.rows) <= most:
        return list(read.rows)

    def worth(row: RowRead) -> tuple[int, float, int]:
        if not row.ended and row.begun_at is not None:
            return 0, 0.0, row.row
        if row.counts:
            return 1, read.order(row.value), row.row
        return (2 if row.status == "failed" else 3), 0.0, row.row

    first = sorted(read.rows, key=worth)[:most]
    return sorted(first, key=lambda row: row.row)


def rows_table(read: SearchRead, rows: Sequence[RowRead], columns: int | None) -> str:
    """The table of trials."""
    names = list(read.registration.space)
    spread = len(names) <= MOST_COLUMNS
    settings = tuple(names) if spread else ("SETTING",)
    value = read.metric
    billed = bool(read.registration.total_worst)
    headers = ("ROW", *settings, "SEED", "STATUS", "UPDATE", value, "COST", "TRIES", "TIME", "")
    cells = [
        (
            row_name(row),
            *(setting_cells(row, names) if spread else (setting_text(row),)),
            str(row.seed),
            row.status,
            output.count(row.update) if row.attempts else look.NONE,
            value_cell(row),
            output.amount(row.spent, read.unit) if billed and row.spent else look.NONE,
            str(row.attempts) if row.attempts else look.NONE,
            look.NONE if (took := row.took_s) is None else output.duration(took),
            ", ".join(notes(read, row)),
        )
        for row in rows
    ]
    right = ("ROW", "SEED", "UPDATE", value, "COST", "TRIES", "TIME")
    drop = DROP if billed else ("COST", *DROP)
    if not billed:
        headers, cells = _without(headers, cells, "COST")
    return output.fitting(headers, cells, right=right, drop=drop, columns=columns)


def _without(
    headers: tuple[str, ...], cells: list[tuple[str, ...]], name: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    at = headers.index(name)
    return headers[:at] + headers[at + 1 :], [row[:at] + row[at + 1 :] for row in cells]


def row_name(row: RowRead) -> str:
    """`9`, or `9 = 4` for a repeat of row 4."""
    return str(row.row) if row.repeats is None else f"{row.row} = {row.repeats}"


def setting_cells(row: RowRead, names: Sequence[str]) -> tuple[str, ...]:
    """A cell for each searched parameter."""
    if row.params is None:
        return tuple(look.NONE for _ in names)
    return tuple(value_text(row.params[name]) if name in row.params else look.NONE for name in names)


def setting_text(row: RowRead) -> str:
    """`lr = 0.003, width = 32`."""
    if row.params is None:
        return later(row)
    return ", ".join(f"{name} = {value_text(value)}" for name, value in row.params.items())


def later(row: RowRead) -> str:
    """What a row gets its setting from, that has none yet."""
    if row.rank is None:
        return "drawn later"
    ordinal = {1: "", 2: "2nd ", 3: "3rd "}.get(row.rank, f"{row.rank}th ")
    return f"repeats the {ordinal}best"


def value_text(value: object) -> str:
    """A parameter as it can be read in a table: six digits are enough to tell settings apart."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value_cell(row: RowRead) -> str:
    """The metric; in brackets where it can never be picked."""
    return f"({reported(row)})" if _bracketed(row) else reported(row)


def reported(row: RowRead) -> str:
    """The last evaluation of the development split, `0.131 @200`.

    The mark is of an earlier update than the one that the row has come to, since the two stand side by side.
    """
    if row.value is None:
        return look.NONE
    return f"{row.value:.4g}" + (f" @{row.at:,}" if row.at is not None and row.at != row.update else "")


def _bracketed(row: RowRead) -> bool:
    return row.value is not None and not row.counts


def notes(read: SearchRead, row: RowRead) -> Iterator[str]:
    """What else is to be said of a row."""
    if read.picked is not None and row.row == read.picked.row:
        yield "PICKED"
    if row.row == read.incumbent:
        yield "incumbent"
    if row.params is None and not row.ended:
        yield later(row)
    if not row.ended and row.health not in ("ok", "unknown"):
        yield row.health
    if row.status in TOLD_WHY and row.detail:
        yield row.detail


def one_row(read: SearchRead, n: int, at: str) -> Iterator[str]:
    """A row of a search, beside its run."""
    row = read.row(n)
    same = f", the setting of row {row.repeats} again" if row.repeats is not None else ""
    money = f", {output.amount(row.spent, read.unit)}" if read.registration.total_worst else ""
    value = "" if row.value is None else f", {read.metric} {value_cell(row)}"
    said = "".join(f", {note}" for note in notes(read, row))
    yield ""
    yield f"  row {n} of {len(read.rows):,} of the search {read.experiment}: {row.status}{value}{money}{said}"
    yield f"  setting   {setting_text(row)}; seed {row.seed}{same}"
    yield f"  -> raykit search status {read.experiment}{at}"


# --- the pick -----------------------------------------------------------------------------------------------


def pick_lines(read: SearchRead, at: str) -> Iterator[str]:
    """The pick with how many were tried, what it is against the incumbent, and every row that was left out."""
    picked = read.picked
    if picked is None:
        best = read.best
        if best is not None and not read.complete:
            so_far = f"row {best.row}: {read.metric} {reported(best)}"
            yield f"  so far    {so_far}; {_unpicked(read)}"
        return
    row = read.rows[picked.row - 1]
    yield f"  picked    {read.pick_words}; observed, and nothing more"
    yield f"  setting   {setting_text(row)}"
    if len(picked.values) > 1:
        yield f"  seeds     {', '.join(f'{value:.4g}' for value in picked.values)}"
    if read.verdict is not None:
        yield f"  against   {read.verdict.words}"
    for why, rows in read.left_out.items():
        yield f"  left out  {rows}: {why}"
    if picked.candidate is not None:
        yield f"  weights   {picked.candidate}, role search-checkpoint"
        yield f"  -> raykit candidates show {picked.candidate}{at}"


def _unpicked(read: SearchRead) -> str:
    """Why a search that is not complete has no pick, though it has a best row."""
    if read.state == "cancelled":
        return "what was cancelled is not picked from"
    if read.state == "out of budget":
        return "nothing is picked while rows wait for money"
    if read.done == len(read.rows):
        return "the pick is not made yet"
    return "nothing is picked before every row has ended"


# --- watch --------------------------------------------------------------------------------------------------


def band(read: SearchRead, columns: int) -> list[str]:
    """Ended, at work and open rows as one bar, and what there is of each."""
    width = max(10, min(50, columns - 30))
    whole = len(read.rows)
    done, live = width * read.done // whole, -(-width * len(read.at_work) // whole)
    bar = FULL * done + LIVE_MARK * min(live, width - done)
    return [f"  TRIALS {bar}{EMPTY * (width - len(bar))}  {read.progress}", f"         {read.summary}"]
