"""`raykit plan`: write a plan, judge it, explain it."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import Json
from raykit.errors import InvalidInput, PlanError
from raykit.ids import safe_name

if TYPE_CHECKING:
    from raykit.plan import Lock, Plan

PlanPath = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.")]


# --- new ----------------------------------------------------------------------------------------------------


def new(
    recipe: Annotated[str, typer.Option("--recipe", help="The recipe, as module:Class.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("plan.toml"),
    name: Annotated[
        str | None, typer.Option("--name", help="The plan's name; the recipe's by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a plan for a recipe.

    What raykit proposes is a line marked (p); what only you can say is a line marked <- yours. No threshold
    of quality is ever proposed.

    Raises:
        PlanError: the recipe cannot be found or made.
        UnsafeNameError: the name is not a safe one.
        InvalidInput: the file exists already, or cannot be written.
    """
    from raykit.plan.template import open_judgements, plan_text
    from raykit.train.recipe import load_recipe, recipe_folder

    found = load_recipe(recipe, recipe_folder(recipe, out))
    chosen = safe_name(name or _name_of(recipe))
    text = plan_text(
        name=chosen, recipe=recipe, params=_params_of(found), has_fields=hasattr(found, "fields")
    )
    _write_new(out, text)
    count = open_judgements(text)
    if as_json:
        output.print_json({"plan": str(out), "name": chosen, "judgements": count})
    else:
        print(f"  wrote  {out}, {count} lines marked <- yours need your judgement")
        print(f"  next   raykit plan check {out}")


def _name_of(recipe: str) -> str:
    """`recipe:DigitsVae` as `digits-vae`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", recipe.rpartition(":")[2])
    return words.replace("_", "-").strip("-").lower()


def _params_of(recipe: object) -> list[Any]:
    from raykit.plan.template import Param

    declared = getattr(recipe, "Params", None)
    if not (isinstance(declared, type) and dataclasses.is_dataclass(declared)):
        return []
    return [Param(field.name, _default(field)) for field in dataclasses.fields(declared) if field.init]


def _default(field: dataclasses.Field[Any]) -> object:
    """The field's default, or None where TOML has no word for it."""
    from raykit.plan.template import toml_value

    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    try:
        toml_value(default)
    except TypeError:
        return None
    return default


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInput(
            f"{path} exists already",
            field="--output",
            rule="a file that does not exist yet",
            remedy="raykit plan new -o another.toml",
        ) from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", field="--output") from error


# --- check, show --------------------------------------------------------------------------------------------


def check(plan: PlanPath, as_json: Json = False) -> None:
    """Judge a plan, say what it will do, and write its lock beside it.

    Every finding is reported at once. Nothing is started and nothing is spent.

    Raises:
        PlanError: a field of the plan, or of the recipe's params, is wrong; `findings` has them all.
        InvalidInput: the lock cannot be written.
    """
    parsed, lock = _judge(plan)
    path = _lock_path(plan)
    changed = _write_lock(path, lock.to_text())
    if as_json:
        output.print_json({"lock": str(path), "sha256": lock.digest, "changed": changed})
        return
    print("\n".join(_statement(parsed, lock)))
    print(f"\n  {'wrote' if changed else 'same as before:'}  {path};   next: raykit launch {plan}")


def show(plan: PlanPath, as_json: Json = False) -> None:
    """Explain a plan as `check` does, writing nothing. With --json: the lock.

    Raises:
        PlanError: a field of the plan, or of the recipe's params, is wrong; `findings` has them all.
    """
    parsed, lock = _judge(plan)
    if as_json:
        sys.stdout.write(lock.to_text())
    else:
        print("\n".join(_statement(parsed, lock)))


def read_plan(path: Path) -> tuple[bytes, Plan]:
    """A plan file, as bytes and as a plan.

    Raises:
        PlanError: the file cannot be read, or anything in it is wrong.
    """
    from raykit.plan import MAX_BYTES, load_plan

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # load_plan refuses what is longer, unread
    except OSError as error:
        raise PlanError(
            f"{path} cannot be read: {error.strerror}", field="PLAN", rule="a plan file"
        ) from error
    return data, load_plan(data, where=str(path))


def _judge(path: Path) -> tuple[Plan, Lock]:
    from raykit.plan import located, require_supported

    data, plan = read_plan(path)
    require_supported(plan)
    # only now: these load torch
    from raykit.train.prepare import prepare
    from raykit.train.recipe import recipe_folder

    try:
        return plan, prepare(plan, data, recipe_folder(plan.recipe, path)).lock
    except PlanError as error:
        raise located(error, data, where=str(path)) from error


def _lock_path(plan: Path) -> Path:
    return (
        plan.with_suffix(".lock") if plan.suffix not in ("", ".lock") else plan.with_name(plan.name + ".lock")
    )


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


# --- the statement ------------------------------------------------------------------------------------------


def _statement(plan: Plan, lock: Lock) -> Iterator[str]:
    """What the run is, what it takes and what it reuses, before anybody says yes."""
    dot = f" {output.DOT} "
    yield dot.join([f"  {plan.name}", plan.category.replace("-", " "), f"lock {output.short(lock.digest)}"])
    yield ""
    yield output.facts(
        [
            ("decides", _one_line(plan.decision)),
            ("if no", _one_line(plan.if_no or "not said")),
            ("claim", _claim(plan)),
            ("trains", f"{plan.recipe} from the start, nothing reused, nothing discarded"),
            (
                "params",
                ", ".join(f"{key} = {_value(item)}" for key, item in plan.run.params.items()) or "none",
            ),
            ("rows", _rows(lock)),
            ("length", _length(lock)),
            ("batch", _batch(plan, lock)),
            ("saves", _saves(plan, lock)),
            ("selects", plan.run.select or "nothing"),
            ("stops", _stops(plan)),
            ("resume", f"{plan.run.resume} or better, at most {plan.run.attempts} attempts"),
            ("numbers", _numbers(plan)),
            ("gates", ", ".join(lock.gates)),
            ("cost", _cost(plan)),
            *(
                [("later", f"recorded, acts from a later version: {', '.join(lock.acts_later)}")]
                * bool(lock.acts_later)
            ),
        ]
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _value(value: object) -> str:
    from raykit.plan.template import toml_value

    return toml_value(value)


def _claim(plan: Plan) -> str:
    claim = plan.claim
    return (
        f"{_one_line(claim.success or claim.metric)}; worthwhile from {claim.worthwhile:g} in {claim.metric}"
    )


_AUTHORITY = {
    "development": " (selects)",
    "report_only": " (never selects)",
    "sealed": " (opens once)",
}


def _rows(lock: Lock) -> str:
    dot = f" {output.DOT} "
    return dot.join(f"{role} {output.count(n)}{_AUTHORITY.get(role, '')}" for role, n in lock.rows.items())


def _length(lock: Lock) -> str:
    examples = f"{output.count(lock.updates)} updates x {output.count(lock.effective_batch)} examples"
    return f"{examples} = {output.count(lock.samples)} samples = {lock.epochs:,.1f} epochs"


def _batch(plan: Plan, lock: Lock) -> str:
    run = plan.run
    parts = f"{lock.micro_batch} a micro-batch x {run.accumulate} accumulated x {run.workers} workers"
    return f"{lock.effective_batch} effective = {parts}"


def _saves(plan: Plan, lock: Lock) -> str:
    run, dot = plan.run, f" {output.DOT} "
    every = [output.count(n) for n in (run.checkpoint_every, run.evaluate_every, run.curves.every)]
    return dot.join(
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
        return f"{end}, never earlier"
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


def _cost(plan: Plan) -> str:
    from raykit.budget.amounts import shown
    from raykit.budget.lines import plan_lines
    from raykit.read.sizing import ceiling_of, fixed_of, scratch_of, sized, unit_of

    train, ceiling = sized(plan, None, None), ceiling_of(plan)
    unit = unit_of(plan)
    bound = "no ceiling given"
    if plan.budget is not None:
        bound = f"ceiling below ${shown(ceiling)}" if unit == "usd" else f"at most {shown(ceiling, unit)}"
    if train.rate == 0:
        return f"this machine's own processors: not billed; {bound}"
    lines = plan_lines(
        ceiling=ceiling, train=train, fixed=fixed_of(plan), scratch=scratch_of(plan), unit=unit
    )
    parts = ", ".join(f"{line.line} {shown(line.planned, unit)}" for line in lines)
    guess = " (a guess: no run of this plan is measured yet)" if train.uncertain and not train.capped else ""
    each = f"{train.accelerators} x {shown(train.rate, unit)} an hour ({train.source})"
    return f"at worst {parts}{guess}; {bound}; {each}"
