"""The top of the page: what is asked, how it stands, what it has cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raykit.read.dossier import Checkpoint
from raykit.read.money import Money
from raykit.read.page import Page
from raykit.report.page.tables import Table, cell, right
from raykit.report.page.words import NONE, amount, clean, duration, many, moment, name, number, percent

HEALTH_SIGNS = {"ok": "\u2713", "unknown": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number to see at a glance, and what it is held against."""

    name: str
    value: str
    notes: tuple[str, ...] = ()
    css: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the bar of money."""

    name: str
    amount: str
    percent: float
    css: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """The bar of money, and what there is to say beside it."""

    parts: tuple[Part, ...]
    says: str
    notes: tuple[str, ...]


def question(page: Page) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The decision; what would be a success, and what is done if the answer is no."""
    settings = page.settings
    decision = settings.get("decision")
    asked = clean(str(decision)) if decision else "what is to be decided is not known: no lock can be read"
    said = (("Success", _table(settings, "claim").get("success")), ("If no", settings.get("if_no")))
    return asked, tuple((name, clean(str(text))) for name, text in said if text)


def health(page: Page) -> tuple[str, str, str | None]:
    """Its sign, word and detail."""
    if page.search is not None:
        found = page.search.health
        return HEALTH_SIGNS.get(found, "!"), found, None
    if page.view is None:
        return "?", "unknown", None
    figures = page.view.figures
    detail = None if figures.health_detail is None else clean(figures.health_detail, 300)
    return HEALTH_SIGNS.get(figures.health, "!"), figures.health, detail


def class_state(page: Page) -> tuple[str, str, str] | None:
    """How much it is the run that was never interrupted: a sign, words, and a class; None before its first attempt."""
    found = None if page.view is None else page.view.exactness
    if page.view is None or found is None:
        return None
    if page.view.falls:
        return "\u2715", found.words, "bad"
    return ("\u2713" if found.basis == "replayed" else "\u25cb"), found.words, ""


def fallen(page: Page) -> tuple[str, ...]:
    """What has lowered its class, in words."""
    falls = () if page.view is None else page.view.falls
    return tuple(clean(f"{fall.to} since update {fall.update:,}: {fall.words}", 600) for fall in falls)


def qc_state(page: Page) -> tuple[str, str, str] | None:
    """Whether its examinations let anything rest on it: a sign, words, and a class; None without `[qc]`."""
    if page.qc is None:
        return None
    counts = page.qc.counts()
    if counts["failed"] or counts["parked"]:
        return "\u2715", f"QC: {counts['failed']:,} failed, {counts['parked']:,} parked", "bad"
    if page.qc.backlog.complete:
        return "\u2713", "QC examined and reviewed", ""
    return "\u25cb", "QC not complete", ""


def chosen(page: Page) -> Iterator[str]:
    """Which of its checkpoints people have approved, the one in production first; and what stands against it now."""
    production = page.registry.production
    ours = [each for each in page.registry.candidates.values() if each.said.experiment == page.experiment]
    found = [each for each in ours if each.approvals or each == production]
    for each in sorted(found, key=lambda each: each != production):
        where = "in production: " if each == production else ""
        approvals = "; ".join(
            f"approved for {event.use} by {name(event.person)}{' (scripted)' if event.scripted else ''}"
            for _, event in each.approvals
        )
        standing = None if page.qc is None else page.qc.backlog.of(each.manifest)
        against = None if standing is None else standing.why_not
        doubt = "" if against is None else f"; but no decision may rest on it: {clean(against, 300)}"
        yield f"{where}{name(each.name)}, update {each.said.update:,}, {approvals or each.state}{doubt}"


# --- now ----------------------------------------------------------------------------------------------------


def now(page: Page) -> Iterator[Figure]:
    """Development metric, updates, examinations, money."""
    view = page.view
    if page.search is not None:
        return  # its own room says how it stands
    if view is None:
        yield Figure(name="updates", value="0", notes=("nothing was launched",))
        return
    yield _development(page)
    planned = "" if view.updates is None else f" of {view.updates:,}"
    gone = (f"{many(view.superseded, 'update')} superseded, kept as cost",) if view.superseded else ()
    pace = (f"{view.figures.update_s:.3g} s an update",) if view.figures.update_s else ()
    yield Figure(name="updates", value=f"{view.update:,}{planned}", notes=(*pace, *gone))
    yield _examinations(page)
    yield cost(view.money)


def _development(page: Page) -> Figure:
    claim = _table(page.settings, "claim")
    development = page.view.figures.development if page.view is not None else None
    if development is None:
        return Figure(name="development", value=NONE, notes=("nothing is evaluated yet",))
    metric, scores = development.metric, page.scores()
    known = {update: value for update, value in scores.items() if value is not None}
    notes = [f"at update {development.update:,}"]
    first = known.get(0)
    if first is not None:
        notes.append(f"{number(first)} {_base_name(page)}")
    if metric == "ratio" or metric.startswith("ratio."):
        notes.append("no skill 1.0")
    if claim.get("worthwhile") is not None:
        notes.append(f"worthwhile {claim['worthwhile']}")
    selected = next((each for each in _checkpoints(page) if each.selected), None)
    if selected is not None:
        update = selected.commit.update
        notes.append(f"selected so far: update {update:,}, {number(scores.get(update))}")
    return Figure(
        name=f"development {clean(metric, 40)}", value=number(development.value), notes=tuple(notes)
    )


def _base_name(page: Page) -> str:
    """What the score at update 0 is of, after it."""
    base = page.lock.base if page.lock is not None else None
    return "at update 0" if base is None else f"is what the base scored, {clean(base.candidate, 40)}"


def _checkpoints(page: Page) -> Sequence[Checkpoint]:
    return page.dossier.checkpoints if page.dossier is not None else ()


def _examinations(page: Page) -> Figure:
    if page.qc is None:
        why = "the plan has no [qc]" if not _table(page.settings, "qc") else "they cannot be read"
        return Figure(name="QC", value=NONE, notes=(why,))
    counts = page.qc.counts()
    done = counts["passed"] + counts["failed"]
    words = ("failed", "parked", "claimed", "retrying", "pending", "missing")
    notes = [f"{counts[word]:,} {word}" for word in words if counts[word]]
    if page.qc.unjudged:
        notes.append(f"{page.qc.unjudged:,} not judged: nothing was learned yet")
    if counts["unreviewed"]:
        notes.append(f"{counts['unreviewed']:,} not reviewed")
    if page.qc.oldest_s is not None:
        notes.append(f"the oldest open one waits since {duration(page.qc.oldest_s)}")
    if page.qc.pause is not None:
        notes.append(f"paused: {clean(page.qc.pause.pause.reason, 200)}")
    css = "bad" if counts["failed"] or counts["parked"] else ""
    return Figure(
        name="checkpoints examined", value=f"{done:,} of {counts['required']:,}", notes=tuple(notes), css=css
    )


def cost(money: Money | None) -> Figure:
    """What it has cost so far."""
    if money is None:
        return Figure(name="money", value=NONE, notes=("it has no budget here",))
    time = f"{money.accelerator_ms / 3_600_000:,.4g} accelerator-hours, {many(money.attempts, 'attempt')}"
    if not money.billed:
        return Figure(name="money", value="not billed", notes=("its rate is 0", time))
    below = "below" if money.unit == "usd" else "at most"
    return Figure(
        name="money",
        value=amount(money.actual, money.unit),
        notes=(f"of {below} {amount(money.ceiling, money.unit)}", time),
    )


# --- money --------------------------------------------------------------------------------------------------


def purse(page: Page) -> Purse | None:
    """Spent, reserved, kept back and free; None without a budget, no parts where nothing is billed."""
    money = page.money
    if money is None:
        return None
    if not money.billed:
        says = "not billed: its rate is 0, and what it uses costs nothing"
        return Purse(parts=(), says=says, notes=(f"account {money.account}", says))
    kept = {
        purpose: sum(max(0, line.remaining) for line in money.lines if line.purpose == purpose)
        for purpose in ("confirmation", "recovery")
    }
    free = max(0, money.remaining - sum(kept.values()))
    amounts = (
        ("spent", money.actual),
        ("reserved", money.reserved),
        ("confirmation, kept", kept["confirmation"]),
        ("recovery, kept", kept["recovery"]),
        ("free", free),
    )
    whole = sum(each for _, each in amounts) or 1
    parts = tuple(
        Part(
            name=name,
            amount=amount(each, money.unit),
            percent=percent(each, whole),
            css=name.partition(",")[0],
        )
        for name, each in amounts
    )
    words = ", ".join(f"{part.name} {part.amount}" for part in parts)
    return Purse(parts=parts, says=f"{words}.", notes=tuple(_purse_notes(money)))


def _purse_notes(money: Money) -> Iterator[str]:
    below = "below" if money.unit == "usd" else "at most"
    yield f"account {money.account}, ceiling {below} {amount(money.ceiling, money.unit)}"
    guess = ", a guess" if money.uncertain else ""
    planned = f"planned {amount(money.expected, money.unit)}{guess}"
    yield f"{amount(money.projected, money.unit)} expected at the end ({planned}){clean(money.leaves_out, 200)}"
    if money.idle:
        yield f"{amount(money.idle, money.unit)} idle: machines held while nobody worked"
    if money.overrun:
        yield f"overrun by {amount(money.overrun, money.unit)}: nothing more starts before a replan"
    if money.unknown:
        yield f"{many(len(money.unknown), 'lease')} whose end is not known, charged in full until it is"
    yield f"stops: {clean(money.stop_rule, 400)}"
    for rate in money.rates:
        source = f" ({clean(rate.source, 100)})" if rate.source else ""
        yield f"{clean(rate.pool, 40)}: {amount(rate.rate, 'usd')} an accelerator-hour{source}"


def budget(page: Page) -> Table | None:
    """Each line of the budget: planned, spent, reserved, left; None where nothing is billed."""
    money = page.money
    if money is None or not money.billed:
        return None
    rows = tuple(
        (
            cell(clean(line.line, 40)),
            cell(line.purpose),
            *(
                right(amount(each, money.unit) if each else NONE)
                for each in (line.planned, line.actual, line.reserved, line.remaining)
            ),
        )
        for line in money.lines
    )
    headers = ("line", "purpose", "planned", "spent", "reserved", "left")
    return Table(caption="", headers=headers, rows=rows)


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def heard(page: Page) -> str:
    """When the page was made, and when the run was last heard."""
    made = f"made {moment(page.made_at)}"
    if page.view is None or page.view.heard_at is None:
        return made
    return f"{made}; last heard {moment(page.view.heard_at)}"
