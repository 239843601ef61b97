"""A plan as people read it before they say yes: what it decides, the alternatives, what changed, what it may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raykit.cli import look, output, planqc, plansearch, plansets

if TYPE_CHECKING:
    from raykit.fleet.evidence import Case
    from raykit.plan import Lock, Option, Plan
    from raykit.review import Money, Review

DOT = f" {output.DOT} "


# --- short: `plan check` ------------------------------------------------------------------------------------


def short(case: Case, review: Review, lock: Lock | None = None) -> Iterator[str]:
    """The head, the alternatives, the cost and the stop: what a person decides by."""
    evidence = case.evidence
    yield _head(case, lock)
    yield ""
    if len(review.options) > 1:
        yield from options_table(review.options, evidence.money)
        yield ""
    yield from _facts(
        [
            *_change(case),
            *_so_far(case),
            ("trains", _trains(case)),
            ("length", _length(case.lock)),
            *_outside(case),
            *_rows_seen(case),
            ("stage", f"{evidence.stage}: {evidence.stage_why}"),
            ("cost", _cost(case.site.plan, evidence.money)),
            ("stops", _stops(case.site.plan)),
            ("review", f"{len(review.passed)} of 20 items hold"),
            *((("later", _later(case.lock)),) if case.lock.acts_later else ()),
        ]
    )
    yield from plansearch.block(case.site.plan, evidence.money)
    yield from planqc.block(case)
    yield from plansets.blocks(case.site)


def _facts(pairs: list[tuple[str, str]]) -> Iterator[str]:
    """A name and what it is, in lines that fit."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        yield from output.wrapped(f"{name:<{width}}  {text}", output.width(), hang=width + 2)


def record(case: Case, review: Review) -> dict[str, Any]:
    """The same for programs."""
    money = case.evidence.money
    return {
        "stage": case.evidence.stage,
        "worst": money.worst,
        "expected": money.expected,
        "ceiling": money.ceiling,
        "options": [option.plain() for option in review.options],
        "passed": list(review.passed),
        "limitations": list(review.limitations),
        "search": plansearch.record(case.site.plan, money),
        "qc": planqc.record(case),
        "sets": plansets.record(case.site),
        "not_yet": list(case.lock.not_yet or ()),
    }


# --- whole: `plan show` -------------------------------------------------------------------------------------


def whole(case: Case, review: Review, lock: Lock) -> Iterator[str]:
    """Everything that is known of a plan before it starts."""
    from raykit.review import statement

    plan, evidence = case.site.plan, case.evidence
    yield _head(case, lock)
    yield ""
    yield from _facts([*statement(evidence, review), *_so_far(case), ("claim", _claim(plan))])
    yield ""
    yield "  ALTERNATIVES"
    yield from options_table(review.options, evidence.money, whole=True)
    yield from hypotheses(case)
    if evidence.money.billed and evidence.money.lines:
        yield ""
        yield "  MONEY"
        yield from _lines(evidence.money)
    yield ""
    yield "  RUN"
    yield from _facts(_run(case))
    yield from plansearch.block(plan, evidence.money)
    yield from planqc.block(case)
    yield from plansets.blocks(case.site)


def options_table(options: tuple[Option, ...], money: Money, *, whole: bool = False) -> Iterator[str]:
    """One row for each option, the chosen one marked; with `whole`, what each tells, risks, keeps and discards."""
    rows = [
        (
            ("> " if option.chosen else "  ") + option.what,
            _KEEPS[option.option],
            option.repeats,
            "not known" if option.time_ms is None else option.time,
            _price(option, money),
        )
        for option in options
    ]
    table = output.table(("  OPTION", "KEEPS", "REPEATS", "TIME", "COST"), rows).splitlines()
    yield f"  {table[0]}"
    for option, line in zip(options, table[1:], strict=True):
        yield f"  {line}"
        if whole:
            yield from _cells(option)
        elif option.against:
            yield f"      not: {option.against}"
    recommended = next((option for option in options if option.recommended), None)
    if recommended is not None and len(options) > 1:
        agree = ", as chosen" if recommended.chosen else "; the plan has chosen another"
        yield f"    recommended: {recommended.what}{agree}"


_KEEPS = {
    "use": "all",
    "continue": "weights",
    "replay": "weights",
    "pilot": "weights",
    "fresh": "nothing",
}


def _cells(option: Option) -> Iterator[str]:
    """Everything else that a row of the table says."""
    cells = [
        ("preserves", option.preserves),
        ("discards", option.discards),
        ("tells", option.value),
        ("risk", option.risk),
        *([("not", option.against)] if option.against else []),
    ]
    for label, text in cells:
        yield from output.wrapped(f"{label:<9}  {text}", output.width(), indent="      ", hang=11)


def _price(option: Option, money: Money) -> str:
    if not money.billed:
        return "not billed"
    return "not known" if option.cost is None else output.amount(option.cost, money.unit)


def _head(case: Case, lock: Lock | None) -> str:
    plan = case.site.plan
    parts = [f"  {plan.name}", plan.category.replace("-", " ")]
    if plan.base is not None:
        verb = {
            "use": "uses",
            "continue": "continues",
            "replay": "continues with replay",
            "pilot": "pilots",
            "fresh": "restarts beside",
        }
        parts.append(f"{verb[plan.base.start]} {plan.base.candidate}")
    if lock is not None:
        parts.append(f"lock {output.short(lock.digest)}")
    return DOT.join(parts)


def _outside(case: Case) -> list[tuple[str, str]]:
    """The code that a resume compares and the store does not keep."""
    from raykit.records import CODE_OF

    facts = {} if case.ready is None else case.ready.outside
    names = ", ".join(sorted(name.removeprefix(CODE_OF) for name in facts))
    return [("imports", f"{names}: not kept, and a resume over other code there is inexact")] if names else []


def _change(case: Case) -> list[tuple[str, str]]:
    from raykit.review import words

    evidence = case.evidence
    if evidence.base is None:
        return []
    found = []
    if evidence.change is not None:
        found.append(("rows", words.rows(evidence.change)))
    if evidence.settings:
        found.append(("settings", "; ".join(evidence.settings)))
    return found


def _so_far(case: Case) -> list[tuple[str, str]]:
    """What this very plan has done already."""
    seen = case.evidence.seen
    if seen is None or seen.update is None:
        return []
    changed = f"; {len(seen.changed)} settings were changed since" if seen.changed else ""
    return [("so far", f"{case.site.name} itself has trained {seen.update:,} updates here{changed}")]


def _rows_seen(case: Case) -> Iterator[tuple[str, str]]:
    """What a person should know of the rows: what is parted, what is no number, and a batch that has rows twice."""
    straddling, splits = case.evidence.straddling, case.site.plan.splits
    if straddling is not None and splits is not None:
        why = f"because: {one_line(splits.why)}" if splits.why else "and no reason is given (splits.why)"
        yield "parted", f"{straddling.words}; {why}"
    if case.ready is not None and (odd := case.ready.glance.nonfinite):
        named = ", ".join(repr(case.ready.source.table["id"][at].as_py()) for at in odd[:5])
        more = ", ..." if len(odd) > 5 else ""
        yield "not numbers", f"{look.many(len(odd), 'row')} with a value that is not finite: {named}{more}"
    train, batch = case.lock.rows.get("train", 0), case.lock.effective_batch
    if batch > train:
        yield "batch", f"{batch:,} examples of an update, of {train:,} training rows: some come twice in each"


def _trains(case: Case) -> str:
    plan, base = case.site.plan, case.evidence.base
    if plan.base is None or base is None:
        return f"{plan.recipe} from the start, nothing reused"
    at = f"update {base.locked.update:,} of {base.locked.experiment} (sha256 {output.short(base.locked.manifest)})"
    match plan.base.start:
        case "use":
            return f"nothing: {plan.base.candidate} is the result, {at}"
        case "fresh":
            return f"{plan.recipe} from the start; {plan.base.candidate} is kept and not used"
        case _:
            return f"{plan.recipe} from {' and '.join(plan.base.keep)} of {plan.base.candidate}, {at}"


def _cost(plan: Plan, money: Money) -> str:
    from raykit.budget.lines import CONFIRMATION, RECOVERY, SCRATCH

    bound = (
        f"ceiling below {output.amount(money.ceiling)}"
        if money.unit == "usd"
        else f"at most {output.amount(money.ceiling, money.unit)}"
    )
    if not money.billed:
        return f"this machine's own processors: not billed; {bound}"
    if money.refusal is not None:
        return f"worst {output.amount(money.worst, money.unit)}, and it does not fit: {money.refusal}"
    planned = {line.line: line.planned for line in money.lines}
    scratch = planned.get(SCRATCH, 0)
    recovery = planned.get(RECOVERY, 0) + scratch
    confirmation = output.amount(planned.get(CONFIRMATION, 0), money.unit)
    kept = f"kept back: confirmation {confirmation}, recovery {output.amount(recovery, money.unit)}"
    if scratch:
        kept += f" ({output.amount(scratch, money.unit)} of it for debugging)"
    guess = (
        " (a guess: nothing compatible was measured; what is known elsewhere: raykit measured --help)"
        if money.uncertain
        else ""
    )
    return DOT.join(
        [
            f"expected {output.amount(money.expected, money.unit)}{guess}",
            f"worst {output.amount(money.worst, money.unit)}",
            kept,
            bound,
            *_not_billed(plan, money),
        ]
    )


def _not_billed(plan: Plan, money: Money) -> Iterator[str]:
    """Work of a billed plan that costs nothing, and what would price it."""
    there = {"train": True, "qc": plan.qc is not None, "generate": bool(plan.generate)}
    for pool, what in (("train", "training"), ("qc", "checks"), ("generate", "sets")):
        if there[pool] and pool not in money.priced:
            price = "" if pool in plan.pools else f" (priced by [pools.{pool}])"
            yield f"{what} not billed{price}"


def _lines(money: Money) -> Iterator[str]:
    rows = [(line.line, str(line.purpose), output.amount(line.planned, money.unit)) for line in money.lines]
    rows.append(("total", "", output.amount(sum(line.planned for line in money.lines), money.unit)))
    yield from (
        f"  {line}"
        for line in output.table(("LINE", "PURPOSE", "PLANNED"), rows, right=("PLANNED",)).splitlines()
    )
    for pool, text in money.rates.items():
        yield f"  {pool}: {text}"


def hypotheses(case: Case) -> Iterator[str]:
    """What competes, and the tests that tell it apart, the most telling first; nothing without a diagnosis."""
    from raykit.review.diagnosis import rank

    diagnosis = case.site.plan.diagnosis
    if diagnosis is None:
        return
    yield ""
    yield "  HYPOTHESES"
    removed = set(case.evidence.seen.removed) if case.evidence.seen is not None else set()
    for name, hypothesis in diagnosis.hypotheses.items():
        mark = (
            "removed" if name in removed else f"dropped after {look.many(hypothesis.stop_after, 'failure')}"
        )
        yield f"  {name}: {one_line(hypothesis.says)} ({mark})"
    yield ""
    yield "  TESTS, the most telling first"
    for ranked in rank(diagnosis):
        test = diagnosis.tests[ranked.name]
        seen = ", done" if ranked.name in case.evidence.observed_tests else ""
        yield f"  {ranked.name}: {one_line(test.does)} ({test.cost_usd:.2f} USD{seen})"
        for name in diagnosis.hypotheses:
            yield f"    if {name}: {test.prediction(name)} -> {test.branch(name)}"


# --- the run ------------------------------------------------------------------------------------------------


def _run(case: Case) -> list[tuple[str, str]]:
    plan, lock = case.site.plan, case.lock
    return [
        ("trains", _trains(case)),
        ("params", ", ".join(f"{key} = {_value(item)}" for key, item in plan.run.params.items()) or "none"),
        ("rows", _rows(lock)),
        ("length", _length(lock)),
        *_rows_seen(case),
        ("batch", _batch(plan, lock)),
        ("saves", _saves(plan, lock)),
        ("selects", plan.run.select or "nothing"),
        ("stops", _stops(plan)),
        ("resume", f"{plan.run.resume} or better, at most {plan.run.attempts} attempts"),
        *([("replay", "its last part, in another process, before it ends")] * (plan.run.replay == "end")),
        ("numbers", _numbers(plan)),
        ("gates", ", ".join(lock.gates)),
        ("cost", _cost(plan, case.evidence.money)),
        *([("later", _later(lock))] * bool(lock.acts_later)),
        *([("not yet", f"this version cannot run {'; '.join(lock.not_yet)}")] if lock.not_yet else []),
    ]


def one_line(text: str) -> str:
    """`text` without its line breaks."""
    return " ".join(text.split())


def _later(lock: Lock) -> str:
    return f"recorded, acts from a later version: {', '.join(lock.acts_later)}"


def _value(value: object) -> str:
    from raykit.plan.template import toml_value

    return toml_value(value)


def _claim(plan: Plan) -> str:
    claim = plan.claim
    return f"{one_line(claim.success)}; worthwhile from {claim.worthwhile:g} in {claim.metric}"


_AUTHORITY = {
    "development": " (selects)",
    "report_only": " (never selects)",
    "sealed": " (opens once)",
}


def _rows(lock: Lock) -> str:
    return DOT.join(f"{role} {output.count(n)}{_AUTHORITY.get(role, '')}" for role, n in lock.rows.items())


def _length(lock: Lock) -> str:
    examples = f"{output.count(lock.updates)} updates x {output.count(lock.effective_batch)} examples"
    return f"{examples} = {output.count(lock.samples)} samples = {lock.epochs:,.1f} epochs"


def _batch(plan: Plan, lock: Lock) -> str:
    run = plan.run
    parts = f"{lock.micro_batch} a micro-batch x {run.accumulate} accumulated x {run.workers} workers"
    return f"{lock.effective_batch} effective = {parts}"


def _saves(plan: Plan, lock: Lock) -> str:
    run = plan.run
    every = [output.count(n) for n in (run.checkpoint_every, run.evaluate_every, run.curves.every)]
    return DOT.join(
        [
            f"{output.count(lock.checkpoints)} checkpoints (update 0, every {every[0]}, the last)",
            f"{output.count(lock.evaluations)} evaluations (every {every[1]})",
            f"curves drawn {output.count(lock.curves)} times (every {every[2]}, {run.curves.smooth})",
        ]
    )


def _stops(plan: Plan) -> str:
    end = f"at {output.count(plan.run.updates)} updates"
    rule = plan.run.stopping
    if rule is None:
        searched = plan.search is not None and plan.search.scheduler is not None
        return f"{end}, or where the scheduler stops a trial" if searched else f"{end}, never earlier"
    better = f"without development.{rule.metric} better by more than {rule.min_delta:g} ({rule.mode})"
    return f"after {rule.patience} evaluations {better}, {end} at the latest"


def _numbers(plan: Plan) -> str:
    dtype = plan.run.dtype
    precision = f"parameters {dtype.params}, optimizer {dtype.optimizer}, autocast {dtype.autocast}"
    clip = f"gradients clipped at {plan.run.clip:g}" if plan.run.clip is not None else "gradients not clipped"
    kernels = (
        "deterministic kernels" if plan.run.deterministic else "kernels that need not repeat bit for bit"
    )
    return f"{precision}; {clip}; {kernels}; seed {plan.run.seed}"
