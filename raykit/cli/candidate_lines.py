"""What the terminal says of candidates. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raykit.budget.amounts import shown
from raykit.candidates.evidence import SELECTS
from raykit.candidates.rules import UNRECOMMENDED, usable_for
from raykit.cli import look, output
from raykit.qc.backlog import name_of
from raykit.records import CandidateApproved, Dependent, Preserved, Recommended, Registered, Switched

if TYPE_CHECKING:
    from raykit.candidates.registry import Act, Candidate, Registry
    from raykit.read.candidates import CandidateRead, Examination
    from raykit.records import Depends, Inventory, Surface

HOUR_MS = 3_600_000
UNKNOWN = "not known"
GENERATE = "raykit generate PLAN"


def surfaces(found: Sequence[Surface]) -> str:
    """`development.ratio selects, report_only.ratio reports`."""
    told = [f"{each.name} {'selects' if each.may_select else 'reports'}" for each in found]
    return ", ".join(told) or "none registered"


def where(candidate: Candidate) -> str:
    """`digits@40`, or where adopted weights are from."""
    return candidate.where if candidate.said.origin == "run" else candidate.said.source or "made elsewhere"


def by(person: str, scripted: bool) -> str:
    """Who has said it."""
    return f"{person}, scripted" if scripted else person


# --- all of them --------------------------------------------------------------------------------------------


def listing(registry: Registry, examinations: Sequence[Examination], *, at: str) -> Iterator[str]:
    """Every candidate, what people have decided of it, and which one is in production."""
    rows = [
        (
            each.name,
            each.said.role,
            each.state,
            each.approvals[-1][1].use if each.approvals else look.NONE,
            _qc(found),
            where(each),
            output.short(each.manifest),
            ", ".join(_notes(registry, each)),
        )
        for each, found in zip(registry.candidates.values(), examinations, strict=True)
    ]
    yield from output.fitting(
        ("NAME", "ROLE", "STATE", "FOR", "QC", "WEIGHTS", "MANIFEST", ""),
        rows,
        drop=("MANIFEST", "WEIGHTS", "QC"),
        columns=output.width(),
    ).splitlines()
    if registry.production is None:
        yield "  nothing is in production"
    yield f"  -> raykit candidates show {next(iter(registry.candidates))}{at}"


def _qc(found: Examination) -> str:
    if not found.possible:
        return "not examined here"
    if found.standing is None:
        return "not on the cadence"
    if found.standing.receipt is None:
        return found.standing.status
    if found.standing.red:
        return "failed"
    review = found.standing.review
    return "unreviewed" if review is None else f"reviewed: {review.event.verdict}"


def _notes(registry: Registry, candidate: Candidate) -> Iterator[str]:
    if registry.production is not None and registry.production.name == candidate.name:
        yield "in production"
    if candidate.rejected is not None:
        yield "rejected"
    if candidate.preserved is not None:
        yield "preserved"


# --- one of them --------------------------------------------------------------------------------------------


def lines(found: CandidateRead, *, at: str) -> Iterator[str]:
    """One candidate, whole."""
    candidate = found.candidate
    yield f"{candidate.name}: {headline(found)}"
    yield from output.facts(list(_facts(found))).splitlines()
    yield ""
    yield from output.facts(list(_stages(found))).splitlines()
    if found.inventory.items or found.inventory.unread:
        yield ""
        yield from dependents(found.inventory)
    yield ""
    yield from output.table(("WHEN", "BY", "WHAT", ""), [_act(act) for act in candidate.acts]).splitlines()
    yield from way_on(found, at)


def headline(found: CandidateRead) -> str:
    """What people have decided of it, each thing for itself."""
    candidate = found.candidate
    told: list[str] = [candidate.state]
    if candidate.approvals:
        told += [f"for {event.use} by {by(event.person, event.scripted)}" for _, event in candidate.approvals]
    if candidate.rejected is not None:
        told.append(f"rejected by {candidate.rejected[1].person}")
    if found.production:
        told.append("in production")
    if candidate.preserved is not None:
        told.append(f"preserved by {candidate.preserved[1].person}")
    return ", ".join(told)


def rests_on(found: CandidateRead) -> str:
    """What was decided of it rests on: comparisons, receipts, or why somebody goes on without."""
    candidate = found.candidate
    acts: list[Recommended | CandidateApproved] = [event for _, event in candidate.recommendations]
    acts += [event for _, event in candidate.approvals]
    receipts = dict.fromkeys(digest for event in acts for digest in event.receipts)
    told = [found.stages.comparison] if found.evidence else []
    told += [f"QC receipt {output.short(digest)} of these weights" for digest in receipts]
    told += dict.fromkeys(
        f"nothing that was examined: {event.unexamined}" for event in acts if event.unexamined is not None
    )
    return "; ".join(told) or "nothing was decided"


def _facts(found: CandidateRead) -> Iterator[tuple[str, str]]:
    said, facts = found.candidate.said, found.facts
    yield "role", said.role
    made_here = said.origin == "run"
    yield "weights", f"{found.candidate.where}, {said.key}" if made_here else said.source or UNKNOWN
    if made_here and said.source is not None:
        yield "found", said.source
    yield "manifest", f"sha256 {said.manifest}"
    yield "decision", said.decision or UNKNOWN
    updates = UNKNOWN if facts.updates is None else output.count(facts.updates)
    rows = UNKNOWN if facts.rows is None else output.count(facts.rows)
    data = "" if said.data is None else f", members {output.short(said.data)}"
    yield "trained", f"{updates} updates on {rows} rows{data}"
    if made_here:
        yield "class", UNKNOWN if found.exactness is None else found.exactness.words
    yield "surfaces", surfaces(said.surfaces)
    yield "size", UNKNOWN if facts.size_bytes is None else output.size(facts.size_bytes)
    yield "invested", replacement(found)
    kept = found.candidate.preserved
    yield (
        "kept",
        f"for good, says {kept[1].person}: {kept[1].reason}"
        if kept is not None
        else "as a registered candidate",
    )


def replacement(found: CandidateRead) -> str:
    """What it took, and what it would take to replace it."""
    facts = found.facts
    time_ = (
        "accelerator time not known"
        if facts.accelerator_ms is None
        else f"{facts.accelerator_ms / HOUR_MS:,.4g} accelerator-hours"
    )
    cost = (
        "cost to retrain not known" if facts.cost is None else f"to retrain {shown(facts.cost, facts.unit)}"
    )
    said = f", as {facts.said_by} says" if facts.said_by is not None else ""
    return f"{time_}, {cost}{said} (replacement cost, not evidence of quality)"


def _stages(found: CandidateRead) -> Iterator[tuple[str, str]]:
    stages, apart = found.stages, found.apart
    yield "preparation", stages.preparation
    yield "optimization", stages.optimization
    yield "verification", stages.verification
    yield "comparison", stages.comparison
    yield "serving", stages.serving
    told = {
        "valid file": apart.valid_file,
        "completed job": apart.completed_job,
        "lower loss": apart.lower_loss,
        "useful model": apart.useful,
    }
    words = {True: "yes", False: "no", None: UNKNOWN}
    on = f" (approved by a person, on {apart.useful_on})" if apart.useful_on is not None else ""
    yield "apart", ", ".join(f"{name} {words[is_so]}" for name, is_so in told.items()) + on


def _act(act: Act) -> tuple[str, str, str, str]:
    event = act.event
    match event:
        case Registered():
            what = f"as {event.role}" + (", correcting what was said before" if event.corrects else "")
        case CandidateApproved():
            what = f"for {event.use}: {event.reason}"
        case Dependent():
            what = f"{event.kind} {event.name}"
        case Switched():
            what = f"{event.from_ or 'nothing'} -> {event.to}: {event.reason}"
        case Preserved():
            what = f"{'for good' if event.keep else 'may go'}: {event.reason}"
        case _:
            what = event.reason
    return look.moment(act.at), by(event.person, getattr(event, "scripted", False)), event.event, what


def way_on(found: CandidateRead, at: str) -> Iterator[str]:
    """The command that comes next, and what stands in it for something."""
    command = following(found)
    yield f"  -> {command}{at}"
    if command == GENERATE:
        yield f'     PLAN is the plan file with name = "{found.candidate.said.experiment}"'


def following(found: CandidateRead) -> str:
    """The command that comes next: one that its role, its state and its QC let pass."""
    candidate, examination = found.candidate, found.examination
    if examination.possible and not examination.usable:
        return f"raykit qc status {examination.experiment}"
    match candidate.state:
        case "observed":
            return _first(candidate, examination)
        case "recommended":
            without = "" if examination.possible else " --unexamined ..."
            return (
                f"raykit candidates approve {candidate.name} --use generation{without} --reason ... --by NAME"
            )
        case "approved":
            return _after_approval(found)


def _first(candidate: Candidate, examination: Examination) -> str:
    """What may be said of a candidate of which nothing was decided."""
    said = candidate.said
    if said.role in UNRECOMMENDED or (not examination.possible and said.role != "base"):
        return "raykit candidates list"
    if not examination.possible and candidate.rejected is None:
        return f"raykit candidates approve {said.candidate} --use generation --unexamined ... --reason ... --by NAME"
    surface = next((each.name for each in said.surfaces if each.may_select), None)
    if surface is None:
        return (
            f"raykit candidates register {said.candidate} {candidate.where} --role {said.role} "
            f"--surface {SELECTS}.METRIC=selects --correct --by NAME"
        )
    without = "" if examination.possible else " --unexamined ... --value V --how ..."
    return f"raykit candidates recommend {said.candidate} --surface {surface}{without} --reason ... --by NAME"


def _after_approval(found: CandidateRead) -> str:
    """To production, where nothing but a person's word is missing; else to the sets that wait for it."""
    candidate = found.candidate
    said = candidate.said
    if found.production or found.decisive is False or usable_for(candidate, "production") is None:
        sets = () if found.view is None else found.view.sets
        waits = any(read.waits_for == "a launch of its plan" for read in sets)
        return GENERATE if waits and usable_for(candidate, "generation") else "raykit candidates list"
    if found.examination.scripted:
        standing = found.examination.standing
        name = said.experiment if standing is None else name_of(standing, str(said.experiment))
        return f"raykit qc review {name} --update {said.update} --verdict passed --note ... --by NAME"
    return f"raykit candidates switch {candidate.name} --reason ... --by NAME"


# --- what depends on it -------------------------------------------------------------------------------------


def dependents(inventory: Inventory) -> Iterator[str]:
    """What stays valid without a candidate and what falls, and what making it again comes to."""
    from raykit.read.candidates import redo

    if inventory.items:
        rows = [_item(item) for item in inventory.items]
        yield from output.table(("WORK", "NAME", "", "COST", "TIME", "WHY"), rows).splitlines()
    else:
        yield f"  nothing is known to depend on {inventory.candidate}"
    for receipt in inventory.receipts:
        yield f"  stays in any case: QC receipt {output.short(receipt)}, which is of these very weights"
    if inventory.unread:
        yield f"  may depend on it, too: {', '.join(inventory.unread)} (their plans cannot be read)"
    again = redo(inventory)
    if again.count:
        cost = _known(shown(again.cost), again.unpriced, again.count)
        delay = _known(output.duration(again.time_ms / 1000), again.untimed, again.count)
        yield f"  without it {again.count} of {len(inventory.items)} fall: making that again costs {cost}"
        yield f"  and takes, one after the other, {delay}"


def _known(total: str, unknown: int, count: int) -> str:
    """A sum, and of how many of its parts nobody has said anything."""
    if unknown == count:
        return "what nobody has said"
    return total if not unknown else f"{total}, and of {unknown} of them nobody has said it"


def _item(item: Depends) -> tuple[str, ...]:
    return (
        item.kind,
        item.name,
        "falls" if item.falls else "stays",
        UNKNOWN if item.cost is None else shown(item.cost),
        UNKNOWN if item.time_ms is None else output.duration(item.time_ms / 1000),
        item.why,
    )
