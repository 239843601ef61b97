"""What the page's numbers rest on: checkpoints, alternatives, gates, resumes, people's acts, digests. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raykit.candidates import Act
from raykit.plan import Judged
from raykit.qc.backlog import Standing
from raykit.read.dossier import Checkpoint, Dossier
from raykit.read.page import Page
from raykit.reconcile import falls_short
from raykit.records import Pinned, Retried, Reviewed
from raykit.report.page.tables import Cell, Links, Table, cell, newest, right
from raykit.report.page.words import NONE, amount, clean, duration, moment, name, number, short, size
from raykit.store import layout

MOST = 100

CHOSEN = "\u25b6 "
QC_WORDS = {"passed": "\u2713 passed", "failed": "\u2715 failed"}


# --- checkpoints --------------------------------------------------------------------------------------------


def checkpoints(page: Page, links: Links) -> Table | None:
    """Every checkpoint: what it is, how its examination went, who has looked at it, what it is a candidate for."""
    dossier = page.dossier
    if dossier is None or not dossier.checkpoints:
        return None
    scores = page.scores()
    qc = page.qc.backlog if page.qc is not None else None
    rows = [
        _checkpoint(each, qc.of(each.commit.sha256) if qc is not None else None, page, scores, links)
        for each in dossier.checkpoints
    ]
    shown, note = newest(rows, MOST)
    headers = (
        "update",
        "size",
        "committed",
        "class",
        "dev",
        "QC",
        "reviewed by",
        "candidate",
        "manifest",
        "",
    )
    return Table(caption="", headers=headers, rows=shown, note=note)


def _checkpoint(
    found: Checkpoint,
    standing: Standing | None,
    page: Page,
    scores: dict[int, float | None],
    links: Links,
) -> tuple[Cell, ...]:
    commit = found.commit
    if found.selected:
        mark = cell("\u25c0 selected so far", "selected")
    else:
        mark = cell("" if found.counts else "superseded, kept as cost")
    return (
        right(f"{commit.update:,}"),
        right(size(commit.size_bytes)),
        cell(moment(found.at), "t"),
        cell(f"{found.exactness.words}, {commit.reason}"),
        right(number(scores.get(commit.update))),
        _examined(standing, links),
        _reviewed(standing),
        _candidate(commit.sha256, page),
        links.digest(commit.sha256, commit.key),
        mark,
    )


def _examined(standing: Standing | None, links: Links) -> Cell:
    if standing is None:
        return cell(NONE)
    receipt = standing.receipt
    if receipt is None:
        return Cell(text=f"\u25cb {standing.status}", css="pending", title=f"request {standing.request.id}")
    word = "two answers" if standing.said.disputed else receipt.verdict
    if standing.turned_down:
        word = "failed"
    css = "bad" if standing.red or standing.turned_down else "ok"
    found = links.digest(receipt.digest, layout.qc_receipt(receipt.experiment, receipt.request))
    return Cell(text=QC_WORDS.get(word, f"\u2715 {word}"), css=css, href=found.href, title=found.title)


def _reviewed(standing: Standing | None) -> Cell:
    review = None if standing is None else standing.review
    if standing is None or standing.receipt is None:
        return cell(NONE)
    if review is None:
        return cell("nobody yet", "pending")
    event = review.event
    verdict = "" if event.verdict == "passed" else ": failed"
    text = f"{name(event.person)}{_scripted(event.scripted)}{verdict}"
    return Cell(text=text, css="ok" if event.verdict == "passed" else "bad", title=clean(event.note, 500))


def _candidate(manifest: str, page: Page) -> Cell:
    found = page.registry.of(manifest)
    if found is None:
        return cell(NONE)
    production = page.registry.production
    place = ", in production" if production is not None and production.name == found.name else ""
    rejected = ", rejected" if found.rejected is not None else ""
    approvals = found.approvals
    scripted = " (scripted)" if approvals and all(event.scripted for _, event in approvals) else ""
    return cell(f"{name(found.name)}: {found.state}{scripted}{rejected}{place}")


# --- alternatives -------------------------------------------------------------------------------------------


def alternatives(page: Page) -> Table | None:
    """The ways to reach the decision that were weighed before it was launched."""
    judged = _judged(page)
    if judged is None or not judged.options:
        return None
    rows = tuple(
        (
            cell((CHOSEN if each.chosen else "") + clean(each.what, 200), "selected" if each.chosen else ""),
            cell(clean(each.preserves, 200)),
            cell(clean(each.repeats, 200)),
            right(clean(each.time, 60)),
            right(NONE if each.cost is None else amount(each.cost, judged.unit)),
            cell(clean(each.value, 400)),
            cell(clean(each.risk, 400)),
            cell(_why_not(each.possible, each.against)),
        )
        for each in judged.options
    )
    headers = ("option", "keeps", "repeats", "time", "cost", "what it tells", "risk", "against it")
    return Table(caption="Alternatives, as they were weighed", headers=headers, rows=rows)


def _why_not(possible: bool, against: str | None) -> str:
    said = NONE if against is None else clean(against, 400)
    return said if possible else f"not possible: {said}"


def _judged(page: Page) -> Judged | None:
    return page.dossier.judged if page.dossier is not None else None


def row_changes(page: Page) -> str | None:
    """Rows against the base: exact counts, the base and the percentage beside them."""
    judged = _judged(page)
    rows = judged.rows if judged is not None else None
    if rows is None or not rows.before:
        return None
    parts = (("added", rows.added), ("removed", rows.removed), ("relabelled", rows.relabelled))
    changes = ", ".join(f"{count:,} {what} ({100 * count / rows.before:.1f} %)" for what, count in parts)
    return f"{rows.before:,} \u2192 {rows.after:,} rows: {changes} of {rows.before:,}"


# --- what ran -----------------------------------------------------------------------------------------------


def gates(page: Page) -> Table | None:
    """Every result of a gate, those that failed and were repaired too; of a search only those: each trial has some."""
    found = page.dossier.gates if page.dossier is not None else ()
    if page.search is not None:
        found = tuple(each for each in found if not each.result.passed)
    if not found:
        return None
    rows = [
        (
            cell(clean(each.result.gate, 60)),
            cell(
                "\u2713 passed" if each.result.passed else "\u2715 failed",
                "ok" if each.result.passed else "bad",
            ),
            cell(clean(each.result.scope, 200)),
            right(duration(each.result.took_s)),
            cell(clean(each.result.found, 400)),
            Cell(text=short(each.result.key), css="d", title=each.result.key),
        )
        for each in found
    ]
    shown, note = newest(rows, MOST)
    headers = ("gate", "", "on", "took", "found", "of what")
    return Table(caption="Gates before the run", headers=headers, rows=shown, note=note)


def attempts(page: Page, links: Links) -> Table | None:
    """Every attempt: where it began, how exactly, how it ended."""
    view = page.view
    if view is None or not view.attempts:
        return None
    rows = []
    for each in view.attempts:
        resume, ended = each.resume, each.ended
        start, css = "the start", ""
        manifest = cell(NONE)
        if resume is not None:
            css = "bad" if falls_short(each.exactness.exactness, resume.needed) else ""
            start = f"update {resume.update:,}"
            key = next(
                (c.commit.key for c in view.commits if c.commit.sha256 == resume.manifest_sha256), None
            )
            manifest = links.digest(resume.manifest_sha256, key)
        kind = "first start" if resume is None else f"{each.exactness.words}; the plan needs {resume.needed}"
        why = f": {clean(ended.detail, 300)}" if ended is not None and ended.detail else ""
        rows.append(
            (
                right(each.attempt),
                cell(moment(each.started_at), "t"),
                cell(name(each.place.host)),
                cell(start),
                cell(kind, css),
                manifest,
                cell(
                    "no end is known"
                    if ended is None
                    else f"{view.end_word(ended)} at update {ended.update:,}{why}"
                ),
            )
        )
    shown, note = newest(rows, MOST)
    headers = ("attempt", "started", "on", "from", "class of the resume", "its manifest", "end")
    return Table(caption="Attempts and resume receipts", headers=headers, rows=shown, note=note)


# --- people -------------------------------------------------------------------------------------------------


def approvals(page: Page) -> Table | None:
    """What people have allowed, ended and repaired."""
    dossier = page.dossier
    if dossier is None or not dossier.acts:
        return None
    unit = dossier.money.unit if dossier.money is not None else "usd"
    still = {True: "covers the plan as it is", False: "no longer covers the plan", None: ""}
    rows = [
        (
            cell(moment(act.at), "t"),
            cell(f"{name(act.person)}{_scripted(act.scripted)}"),
            cell(act.kind),
            cell(clean(act.what, 600)),
            right(NONE if act.covers is None else amount(act.covers, unit)),
            cell(still[act.current]),
        )
        for act in dossier.acts
    ]
    shown, note = newest(rows, MOST)
    headers = ("when", "who", "act", "what", "up to", "")
    return Table(caption="Approvals and other acts", headers=headers, rows=shown, note=note)


def reviews(page: Page) -> Table | None:
    """What people have said of receipts, requests and checkpoints."""
    if not page.reviews:
        return None
    updates = {
        each.receipt.digest: each.update
        for each in (*page.standings, *(page.qc.backlog.others if page.qc is not None else ()))
        if each.receipt is not None
    }
    rows = []
    for said in page.reviews:
        event = said.event
        match event:
            case Reviewed():
                which = [f"update {updates[d]:,}" if d in updates else short(d) for d in event.receipts]
                found = (f"reviewed: {event.verdict}", event.note, _several(which), event.scripted)
                digests = "\n".join(event.receipts)
            case Retried():
                what = f"request {short(event.request)}"
                found = ("tried again", event.reason, f"{what}, after attempt {event.after}", False)
                digests = event.request
            case Pinned():
                kept = "kept for good" if event.keep else "may go again"
                found, digests = (kept, event.reason, f"update {event.update:,}", False), event.manifest
            case _:
                continue
        act, why, what, scripted = found
        rows.append(
            (
                cell(moment(said.at), "t"),
                cell(f"{name(event.person)}{_scripted(scripted)}"),
                cell(act, "bad" if act.endswith("failed") else ""),
                Cell(text=what, title=digests[:2000]),
                cell(clean(why, 600)),
            )
        )
    shown, note = newest(rows, MOST)
    headers = ("when", "who", "act", "of what", "note")
    return Table(caption="Reviews", headers=headers, rows=shown, note=note)


def candidates(page: Page) -> Table | None:
    """What people have said of the candidates that this experiment made: observed, recommended, approved."""
    ours = [each for each in page.registry.candidates.values() if each.said.experiment == page.experiment]
    acts = {act.n: (each.name, act) for each in ours for act in each.acts}
    if not acts:
        return None
    rows = [_candidate_act(name_, act) for _, (name_, act) in sorted(acts.items())]
    shown, note = newest(rows, MOST)
    headers = ("when", "candidate", "act", "who", "why")
    return Table(caption="Candidates", headers=headers, rows=shown, note=note)


def _candidate_act(candidate: str, act: Act) -> tuple[Cell, ...]:
    said = act.event.plain()
    words = {"registered": said.get("role"), "approved": said.get("use"), "dependent": said.get("name")}
    what = words.get(said["event"])
    return (
        cell(moment(act.at), "t"),
        cell(name(candidate)),
        cell(said["event"] + (f": {name(what)}" if what else "")),
        cell(f"{name(said['person'])}{_scripted(bool(said.get('scripted')))}"),
        cell(clean(said.get("reason") or NONE, 600)),
    )


def _several(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])}, \u2026 {names[-1]} ({len(names)})"
    )


def _scripted(scripted: bool) -> str:
    return " (scripted)" if scripted else ""


# --- digests ------------------------------------------------------------------------------------------------


def digests(page: Page, links: Links) -> Table | None:
    """Every frozen input and record that the page is made from: its key, its digest, and whether the store has it."""
    rows = [*_inputs(page.dossier, links), *_examination_objects(page, links)]
    if not rows:
        return None
    return Table(caption="", headers=("what", "key", "sha256", "held"), rows=tuple(rows))


def _inputs(dossier: Dossier | None, links: Links) -> Iterator[tuple[Cell, ...]]:
    words = {"verified": "matches its digest", "there": "there by size, not read"}
    for item in dossier.frozen.inputs if dossier is not None else ():
        there = item.held in words
        yield (
            cell(clean(item.what, 80)),
            Cell(text=item.key, css="k", href=links.to(item.key) if there else None),
            cell(NONE if item.sha256 is None else item.sha256, "k"),
            cell(words.get(item.held, item.held.upper()), "" if there else "bad"),
        )


def _examination_objects(page: Page, links: Links) -> Iterator[tuple[Cell, ...]]:
    qc = page.qc
    if qc is None:
        return
    suite = qc.suite
    objects = (
        ("QC suite", layout.qc_suite(page.experiment, suite.digest), suite.digest),
        ("QC roster", layout.qc_roster(page.experiment, suite.roster), suite.roster),
    )
    for what, key, digest in objects:
        held = what == "QC suite" or page.roster is not None
        yield (
            cell(what),
            Cell(text=key, css="k", href=links.to(key) if held else None),
            cell(digest, "k"),
            cell("matches its digest" if held else "MISSING OR CHANGED", "" if held else "bad"),
        )
