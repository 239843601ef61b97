"""`raykit plan`: write a plan, judge it, explain it, and say what a change does to its approval."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_plan, at_root, name_plan
from raykit.errors import ApprovalError, InvalidInput, NotFoundError, PlanError, ReplanError, ReviewError

if TYPE_CHECKING:
    from raykit.fleet.evidence import Case
    from raykit.fleet.site import Site
    from raykit.plan import Lock, Plan
    from raykit.review import Review

PlanPath = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.")]


# --- check, show --------------------------------------------------------------------------------------------


def check(plan: PlanPath, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Judge a plan, say what it will do and may cost, and write its lock beside it.

    Every finding is reported at once. Nothing is started and nothing is spent.

    Raises:
        PlanError: a field of the plan, or of the recipe's params, is wrong or missing; `findings` has them all.
        ReviewError: items of the review have failed.
        ApprovalError: it begins anew beside weights that are there, and no person has approved that.
        ReplanError: its ceiling was edited since it was set aside in the ledger.
        NotFoundError: its base is not in the store.
        CorruptError: what is stored does not match its digests.
        InvalidInput: the lock cannot be written.
    """
    from raykit.cli import planview
    from raykit.read.planfile import lock_path

    with at_plan(plan):
        case, review, refusal = _judge(plan, root)
        if refusal is not None:
            if not as_json and not isinstance(refusal, PlanError):
                output.print_lines(planview.short(case, review))
            raise refusal
    lock = _judged(case, review)
    path = lock_path(plan)
    changed = _write_lock(path, lock.to_text())
    if as_json:
        output.print_json(
            {"lock": str(path), "sha256": lock.digest, "changed": changed, **planview.record(case, review)}
        )
        return
    output.print_lines(planview.short(case, review, lock))
    verb = "launch" if case.site.plan.search is None else "search"
    next_step = f"raykit {verb} {plan}{at_root(root)}"
    if case.site.plan.base is not None and case.site.plan.base.start == "use":
        next_step = f'raykit conclude {plan}{at_root(root)} --outcome no-full-run --says "..." --by NAME'
    if lock.not_yet:
        next_step = f"nothing yet: this version cannot run {'; '.join(lock.not_yet)}"
    print(f"\n  {'wrote' if changed else 'same as before:'}  {path};   next: {next_step}")


def show(plan: PlanPath, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Explain a plan whole: its statement, the alternatives, what changed, what it may cost. Writes nothing.

    With --json: the lock. What the review would refuse is said at the end, and refuses nothing here.

    Raises:
        PlanError: a field of the plan, or of the recipe's params, is wrong; `findings` has them all.
        NotFoundError: its base is not in the store.
        CorruptError: what is stored does not match its digests.
    """
    import sys

    from raykit.cli import planview

    with at_plan(plan):
        case, review, refusal = _judge(plan, root)
    if as_json:
        sys.stdout.write(_judged(case, review).to_text())
        return
    output.print_lines(planview.whole(case, review, _judged(case, review)))
    if refusal is not None:
        name_plan(refusal, plan)
        print("\n  a launch would be refused:")
        output.print_lines(
            f"  {line}" for line in output.error_lines(refusal) if not line.startswith("exit ")
        )


Refusal = PlanError | ReviewError | ApprovalError | ReplanError


def _judge(path: Path, root: str) -> tuple[Case, Review, Refusal | None]:
    """The plan's case and its review; and what the review refuses, with the lines of the file."""
    from raykit.plan import located
    from raykit.read.planfile import read_plan_file

    data, plan = read_plan_file(path)
    # only now: these load torch
    from raykit.fleet.evidence import gather
    from raykit.fleet.spending import require_same_ceiling
    from raykit.review import require_passed, review
    from raykit.train.find_recipe import recipe_folder

    try:
        case = gather(_placed(plan, data, recipe_folder(plan.recipe, path), root))
    except PlanError as error:
        raise located(error, data, where=str(path)) from error
    found = review(case.evidence)
    try:
        require_passed(case.evidence, found)
        if case.book is not None:
            require_same_ceiling(case.site, case.book)
    except PlanError as error:
        return case, found, located(error, data, where=str(path))
    except ReviewError as error:
        return case, found, located(error, data, where=str(path))
    except (ApprovalError, ReplanError) as error:
        return case, found, error
    return case, found, None


def _placed(plan: Plan, data: bytes, folder: Path, root: str) -> Site:
    """The plan in its store. A base that is not there is a finding about the plan."""
    from raykit.fleet.site import place

    try:
        return place(plan, data, folder, root)
    except NotFoundError as error:
        if error.field != "base.candidate":
            raise
        raise PlanError(
            error.message, field=error.field, value=error.value, rule=error.rule, remedy=error.remedy
        ) from error


def _judged(case: Case, review: Review) -> Lock:
    """The lock with what the review saw; one that was frozen in the store stays as it is."""
    from raykit.review import judged

    if case.lock.judged is not None:
        return case.lock
    return case.lock.model_copy(update={"judged": judged(case.evidence, review)})


def _write_lock(path: Path, text: str) -> bool:
    """Replace the lock in one step, unless it is the same already."""
    try:
        if path.exists() and path.read_bytes() == text.encode():
            return False
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", rule="the lock lies beside its plan"
        ) from error
    return True


# --- diff ---------------------------------------------------------------------------------------------------


def diff(
    plan: PlanPath,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="A second plan file; else what the store has locked."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What differs between a plan and its newest lock, or between two plan files; whether an approval still covers it.

    A change before any result was seen is an amendment, one after that a deviation.

    Raises:
        PlanError: a plan file is wrong.
        NotFoundError: the plan was never locked, neither in this store nor beside its file.
        CorruptError: what is stored, or the lock beside the file, is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.plan import consequential, differences, ends_approval
    from raykit.read.planfile import read_plan_file
    from raykit.read.sizing import ceiling_of

    _, given = read_plan_file(plan)
    if other is not None:
        was, now, name = given, read_plan_file(other)[1], f"{plan} -> {other}"
        covered, seen = None, None
    else:
        was, now, name = _locked_plan(given.name, root, plan), given, f"{given.name}: its lock -> {plan}"
        covered, seen = _approval(given.name, root), _seen_update(given.name, root)
    changed = differences(was.plain(), now.plain())
    ends = ends_approval(
        consequential(was, ceiling=ceiling_of(was)), consequential(now, ceiling=ceiling_of(now))
    )
    kind = "amendment" if not seen else "deviation"
    rows = [
        (
            field,
            _value(before),
            _value(after),
            "ends an approval" if _within(field, ends) else "still covered",
        )
        for field, before, after in changed
    ]
    if as_json:
        output.print_json(
            {
                "changed": [{"field": f, "was": b, "now": a} for f, b, a in changed],
                "ends_approval": ends,
                "approved_by": covered,
                "kind": None if other is not None or not changed else kind,
                "seen_update": seen,
            }
        )
        return
    if not rows:
        print(f"  {name}: nothing differs")
        return
    print(output.table(("FIELD", "WAS", "NOW", "APPROVAL"), rows))
    if other is None:
        at = "nothing had been seen" if not seen else f"results to update {seen:,} had been seen"
        print(f"  {kind}: {at}")
    if not ends:
        print(
            f"  still covered by what {output.clean(covered)} approved"
            if covered
            else "  an approval would still cover it"
        )
    else:
        print(f"  not covered: {', '.join(ends)}")


def _within(field: str, ends: list[str]) -> bool:
    return any(field == end or field.startswith(f"{end}.") or end.startswith(f"{field}.") for end in ends)


def _value(value: object) -> str:
    from raykit.plan.template import toml_value

    if value is None:
        return "-"
    try:
        text = toml_value(value)
    except TypeError:
        text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _locked_plan(name: str, root: str, path: Path) -> Plan:
    """The plan of the newest lock: of the store, or else of the one that `plan check` left beside the file."""
    from raykit.cli.options import open_root
    from raykit.plan import Lock, Plan
    from raykit.store.plans import newest_lock, read_plan

    store = open_root(root).store
    locked = newest_lock(store, name)
    from raykit.read.planfile import lock_path

    beside = lock_path(path)
    if locked is None and beside.is_file():
        lock = Lock.from_bytes(beside.read_bytes(), str(beside))
        return Plan.model_validate_json(json.dumps(dict(lock.settings)))
    if locked is None:
        raise NotFoundError(
            f"{name} was never locked in {store.url}",
            field="PLAN",
            value=name,
            rule=f"a plan that was launched or checked ({beside} is not there), or two plan files",
            remedy=f"raykit plan check {path}{at_root(root)}   or   raykit plan diff OLD.toml NEW.toml",
        )
    return read_plan(store, name, locked.plan)


def _approval(name: str, root: str) -> str | None:
    """The person whose approval of this plan is the newest; None if nobody approved it."""
    from raykit.cli.options import open_root
    from raykit.records import Approved
    from raykit.store.accounts import account_of
    from raykit.store.ledger import Ledger

    store = open_root(root).store
    account = account_of(store, name)
    if account is None:
        return None
    ledger = Ledger(store, account, by="reader")
    ledger.refresh()
    found = [
        event.person
        for entry in ledger.entries
        for event in entry.events
        if isinstance(event, Approved) and event.experiment == name
    ]
    return found[-1] if found else None


def _seen_update(name: str, root: str) -> int:
    import raykit
    from raykit.cli.options import open_root

    store = open_root(root).store
    return max((view.update for view in raykit.open(store).runs() if view.experiment == name), default=0)


def named_values(values: dict[str, Any]) -> str:
    """`width = 32, lr = 0.001`."""
    return ", ".join(f"{key} = {_value(item)}" for key, item in values.items()) or "none"
