"""The first ten items of the review: what is decided, with which weights, and what a choice throws away. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.plan import STARTS
from raykit.review import words
from raykit.review.evidence import Evidence
from raykit.review.options import weigh
from raykit.review.restart import pending, reasons
from raykit.review.rule import Flaw


def decision(evidence: Evidence) -> Iterator[Flaw]:
    """1: the result can change what is done."""
    plan = evidence.plan
    wanted = "what is done if the answer is no; it differs from what is done if it is yes"
    if plan.if_no is None:
        yield Flaw("if_no", "missing", wanted, asks=True)
        return
    if words.placeholder(plan.if_no):
        yield Flaw("if_no", f"{plan.if_no!r} is a blank that was not filled in", wanted, asks=True)
    elif words.same(plan.if_no, plan.decision) or words.same(plan.if_no, plan.claim.success):
        yield Flaw("if_no", "says the same as the decision, so that no result can change it", wanted)
    elif phrase := words.either_way(plan.if_no):
        yield Flaw("if_no", f"{phrase!r}: both outcomes do the same, so that the run decides nothing", wanted)


def surfaces(evidence: Evidence) -> Iterator[Flaw]:
    """2: every split has one role, and one surface selects."""
    plan = evidence.plan
    for role, count in evidence.rows.items():
        if count == 0:
            yield Flaw(
                f"data.{role}" if plan.data else f"splits.{role}",
                f"the {role} split holds no row",
                "rows in every split that the plan names",
            )
    if straddles(evidence):
        assert evidence.straddling is not None
        yield Flaw(
            "splits.why",
            f"missing, and {evidence.straddling.words}",
            "one sentence: why these rows may lie on both sides",
            'splits.group = "group" keeps groups together, "content" keeps equal rows together',
            asks=True,
        )
    for field, text in (("claim.success", plan.claim.success), ("decision", plan.decision)):
        if words.names([text.lower()], "validation"):
            yield Flaw(
                field,
                'says "validation", which elsewhere both selects and reports',
                "development (selects), or report_only (never selects)",
            )
    selection = plan.run.selection
    if plan.search is not None and selection is not None:
        searched = plan.search.metric.partition(".")[2]
        if searched != selection.metric:
            yield Flaw(
                "run.select",
                f"selects by {selection.metric}, and the search by {searched}",
                "one metric that selects",
            )


def straddles(evidence: Evidence) -> bool:
    """Whether rows that belong together are parted without a reason, in work that is paid for and has not begun."""
    splits, begun = evidence.plan.splits, evidence.seen is not None and evidence.seen.update is not None
    if evidence.straddling is None or splits is None or splits.why is not None:
        return False
    return evidence.money.billed and not begun


def artifact(evidence: Evidence) -> Iterator[Flaw]:
    """3: the base is one artifact, by its bytes, with a role."""
    if evidence.base_problem is not None:
        yield Flaw(
            "base.candidate",
            evidence.base_problem,
            "a registered candidate, an experiment, or EXPERIMENT@UPDATE, of this store",
        )


def states(evidence: Evidence) -> Iterator[Flaw]:
    """4: observed, recommended and approved are three states; a person approves by name, a script never for good."""
    base = evidence.base
    if base is None:
        return
    name = base.locked.candidate
    if base.approved_by is not None and not base.approved_by.strip():
        yield Flaw(
            "base.candidate", f"{name} counts as approved, and by nobody", "a person who approved it by name"
        )
    if base.scripted and base.production:
        yield Flaw(
            "base.candidate",
            f"{name} is the production candidate by the approval of a script",
            "an approval by a person, by name; what a script says is observed",
        )


def switch(evidence: Evidence) -> Iterator[Flaw]:
    """5: displacing a production candidate says what depends on it, and what it costs to make that again."""
    base, incumbent = evidence.base, evidence.incumbent
    if evidence.plan.category != "production-improvement" or incumbent is None:
        return
    if base is None or not _is(evidence, incumbent):
        yield Flaw(
            "base.candidate",
            f"{incumbent} is in production, and what depends on it is not weighed",
            f'base.candidate = "{incumbent}", so that its dependents and their cost are counted',
        )
    elif (
        base.dependents
        and base.cost is None
        and base.accelerator_ms is None
        and _retraining(evidence) is None
    ):
        yield Flaw(
            "base.candidate",
            f"{', '.join(base.dependents)} would have to be made again after {incumbent}, at a cost that nobody knows",
            "what it took to train it, or what it would cost today",
        )


def incumbent(evidence: Evidence) -> Iterator[Flaw]:
    """6: the incumbent is compared with, so that no challenger below the worthwhile effect displaces it."""
    name = evidence.incumbent
    if name is not None and not words.names(evidence.plan.claim.compare, name):
        yield Flaw(
            "claim.compare",
            f"does not name {name}, the registered production candidate",
            f"{name} among the comparators: below {evidence.plan.claim.worthwhile:g} "
            f"{evidence.plan.claim.metric} it stays",
        )


def preservation(evidence: Evidence) -> Iterator[Flaw]:
    """7: weights are kept whatever is selected, and what is built on is what was registered."""
    base = evidence.base
    if base is not None and base.declared and not base.verifies and evidence.chosen != "fresh":
        yield Flaw(
            "base.candidate",
            f"the files of {base.locked.candidate} do not match its manifest",
            "weights that verify",
            f"raykit checkpoints verify {base.locked.experiment}",
        )


def deltas(evidence: Evidence) -> Iterator[Flaw]:
    """8: the difference in rows is a number."""
    base = evidence.base
    unknown = base is not None and evidence.change is None and evidence.base_problem is None
    if base is not None and unknown and not evidence.passed_over:
        yield Flaw(
            "base.candidate",
            f"how many rows differ from those of {base.locked.candidate} is not known",
            "counts of rows added, removed and relabelled, by ids or by a recorded count of its rows",
            f'raykit counted PLAN --source "{base.locked.candidate}" --rows N --how "..." --by NAME',
        )


def reuse(evidence: Evidence) -> Iterator[Flaw]:
    """9: reuse was considered first: every cheaper option has a reason against it, in the store or in the plan."""
    base = evidence.base
    if base is None or not evidence.strict:
        return
    name = base.locked.candidate
    if not base.declared:
        yield Flaw(
            "base",
            f"{name} has {base.updates:,} trained updates for the same decision, and the plan does not name it",
            f'base.candidate = "{name}", and base.start: use | continue | replay | pilot | fresh',
            f"raykit plan new --from {base.locked.experiment} -o {base.locked.experiment}-next.toml",
        )
        return
    fields = dict(zip(STARTS, ("as_is", "continue", "replay", "pilot"), strict=False))
    for option in weigh(evidence):
        if option.chosen:
            return
        if option.possible and option.against is None:
            yield Flaw(
                f"base.against_{fields[option.option]}",
                "missing",
                f"one sentence against: {option.what} ({option.time}, "
                f"{words.cost(option.cost, evidence.money.unit)})",
                asks=True,
            )


def restart(evidence: Evidence) -> Iterator[Flaw]:
    """10: a paid restart is approved by itself, or verified to be small with the weights kept."""
    if pending(evidence):
        yield Flaw(
            "base.start",
            f"begins anew, and nobody has approved that: {', '.join(reasons(evidence, weigh(evidence)))}",
            "an approval of the restart by itself, or an account that stays below $5 with the weights kept",
        )


def _is(evidence: Evidence, incumbent: str) -> bool:
    base = evidence.base
    return base is not None and incumbent in (base.locked.candidate, base.locked.experiment)


def _retraining(evidence: Evidence) -> int | None:
    known = evidence.options.get("fresh")
    return None if known is None else known.cost
