"""`raykit plan new`: a plan for a recipe, or one that goes on from weights that are there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_root
from raykit.errors import InvalidInput, NotFoundError, PlanError
from raykit.ids import safe_name

if TYPE_CHECKING:
    from raykit.plan import Lock, LockedBase
    from raykit.store.base import ObjectStore


def new(
    recipe: Annotated[str | None, typer.Option("--recipe", help="The recipe, as module:Class.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Go on from the weights of an experiment, or of a registered candidate.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("plan.toml"),
    name: Annotated[str | None, typer.Option("--name", help="The plan's name.")] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Write a plan: for a recipe from the start, or from weights that are there.

    What raykit proposes is a line marked (p), what the recipe proposes (r), what the base's own plan said (b); what
    only you can say is a line marked <- yours. No threshold of quality is ever proposed.

    Raises:
        InvalidInput: neither --recipe nor --from; the file exists already, or cannot be written.
        PlanError: the recipe cannot be found or made, or what it proposes cannot be written.
        NotFoundError: there is no such base.
        UnsafeNameError: the name is not a safe one.
        CorruptError: what is stored of the base does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if recipe is None and base is None:
        raise InvalidInput(
            "a plan is for a recipe, or goes on from weights",
            field="--recipe, --from",
            remedy="raykit plan new --recipe MODULE:CLASS   or   raykit plan new --from RUN",
        )
    if base is not None:
        _continue(base, recipe, out, name, root, as_json=as_json)
        return
    assert recipe is not None
    from raykit.plan.template import plan_text
    from raykit.train.find_recipe import load_recipe, recipe_folder

    found = load_recipe(recipe, recipe_folder(recipe, out))
    chosen = safe_name(name or _free_name(_name_of(recipe), root))
    text = plan_text(
        name=chosen,
        recipe=recipe,
        params=_params_of(found),
        proposes=_proposes(found, recipe),
        has_fields=hasattr(found, "fields"),
    )
    _report(out, text, chosen, root, as_json=as_json)


def _report(
    out: Path, text: str, name: str, root: str, *, as_json: bool, extra: tuple[tuple[str, str], ...] = ()
) -> None:
    from raykit.plan.template import open_judgements

    _write_new(out, text)
    count = open_judgements(text)
    if as_json:
        output.print_json({"plan": str(out), "name": name, "judgements": count})
        return
    lines = [*extra, ("wrote", f"{out}, {count} lines marked <- yours need your judgement")]
    lines.append(("next", f"fill them in, then   raykit plan check {out}{at_root(root)}"))
    output.print_lines(output.facts(lines).splitlines())


# --- for a recipe -------------------------------------------------------------------------------------------


def _name_of(recipe: str) -> str:
    """`recipe:DigitsVae` as `digits-vae`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", recipe.rpartition(":")[2])
    return words.replace("_", "-").strip("-").lower()


def _free_name(wanted: str, root: str) -> str:
    """The name, or the next one that no experiment of the store has."""
    from raykit.cli.options import open_root

    taken = set(open_root(root).experiments())
    numbered = (f"{wanted}-{n}" for n in range(2, len(taken) + 3))
    return next(name for name in (wanted, *numbered) if name not in taken)


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


def _proposes(recipe: object, spec: str) -> Mapping[str, Any]:
    """What the recipe proposes for its plans, if it does."""
    from raykit.plan.template import toml_value

    found = getattr(recipe, "proposes", {})
    try:
        if not isinstance(found, Mapping):
            raise TypeError("it is not a table")
        toml_value(found)
    except TypeError as error:
        raise PlanError(
            f"what {spec} proposes cannot be written: {error}",
            field="recipe.proposes",
            rule='a table of plan tables: { "run": { "batch": 64 } }',
        ) from error
    return found


# --- from weights -------------------------------------------------------------------------------------------


def _continue(
    base: str, recipe: str | None, out: Path, name: str | None, root: str, *, as_json: bool
) -> None:
    from raykit.cli.options import open_root
    from raykit.plan.template import continuation_text
    from raykit.read.bases import base_facts, resolve_base

    store = open_root(root).store
    locked = resolve_base(store, base)
    lock = _lock_of(store, locked)
    facts = base_facts(store, locked)
    if lock is None and recipe is None:
        raise InvalidInput(
            f"{base} was made elsewhere: nothing here says by which recipe",
            field="--recipe",
            rule="the recipe whose model these weights are of",
            remedy=f"raykit plan new --from {base} --recipe MODULE:CLASS",
        )
    if lock is None:
        assert recipe is not None
        _continue_adopted(base, recipe, out, name, root, facts.updates or 0, as_json=as_json)
        return
    settings = _as_trained(store, lock, locked) | ({"recipe": recipe} if recipe else {})
    chosen = safe_name(name or _free_name(f"{lock.name}-next", root))
    text = continuation_text(
        name=chosen,
        candidate=base,
        settings=settings,
        trained=facts.updates or 0,
        asks_why=bool(settings.get("pools")),
    )
    invested = (
        ""
        if not facts.accelerator_ms
        else f", {facts.accelerator_ms / 3_600_000:.2f} accelerator-hours invested"
    )
    extra = (
        ("base", f"{base} = update {locked.update:,} (sha256 {locked.manifest[:8]}){invested}"),
        ("rows", _rows(store, locked, lock, settings, out)),
    )
    _report(out, text, chosen, root, as_json=as_json, extra=extra)


def _continue_adopted(
    base: str, recipe: str, out: Path, name: str | None, root: str, trained: int, *, as_json: bool
) -> None:
    from raykit.plan.template import plan_text
    from raykit.train.find_recipe import load_recipe, recipe_folder

    found = load_recipe(recipe, recipe_folder(recipe, out))
    chosen = safe_name(name or _free_name(f"{base}-next", root))
    text = plan_text(
        name=chosen,
        recipe=recipe,
        params=_params_of(found),
        proposes=_from_adopted(base, _proposes(found, recipe)),
        has_fields=hasattr(found, "fields"),
        base=base,
    )
    extra = (
        (
            "base",
            f"{base}, made elsewhere: its history is absent here ({trained:,} updates, as its people say)",
        ),
    )
    _report(out, text, chosen, root, as_json=as_json, extra=extra)


def _from_adopted(base: str, proposes: Mapping[str, Any]) -> dict[str, Any]:
    """What the recipe proposes, compared with the weights that it goes on from."""
    claim = dict(proposes.get("claim") or {})
    others = [each for each in claim.get("compare", ()) if each != base]
    claim["compare"] = [base, *others]
    return {"category": "production-improvement", **proposes, "claim": claim}


def _lock_of(store: ObjectStore, base: LockedBase) -> Lock | None:
    """The lock that the base was trained by; None if it was made elsewhere."""
    from raykit.store.plans import newest_stored_lock

    return None if base.origin == "adopted" else newest_stored_lock(store, base.experiment)


def _as_trained(store: ObjectStore, lock: Lock, base: LockedBase) -> dict[str, Any]:
    """The plan that trained the base, as its people wrote it: of a trial, without the search, and with its setting."""
    from raykit.read.candidates import run_of_key
    from raykit.store.plans import read_setting

    written = _as_written(store, lock)
    setting = read_setting(store, base.experiment, run_of_key(base.key))
    if setting is None:
        return written
    run = written.get("run", {})
    params = {**run.get("params", {}), **setting.params}
    rest = {name: table for name, table in written.items() if name != "search"}
    return {**rest, "run": {**run, "params": params, "seed": setting.seed}}


def _as_written(store: ObjectStore, lock: Lock) -> dict[str, Any]:
    """The plan of a lock as its people wrote it: in their order, without what they left to defaults."""
    import tomllib

    from raykit.store import layout
    from raykit.store.plans import newest_lock

    locked = newest_lock(store, lock.name)
    assert locked is not None
    return tomllib.loads(store.get(layout.plan(lock.name, locked.plan, "plan.toml")).decode("utf-8"))


def _rows(store: ObjectStore, base: LockedBase, lock: Lock, settings: Mapping[str, Any], out: Path) -> str:
    """How the rows of today differ from those of the base, if the recipe's data can be opened from here."""
    from raykit.data.members import compare
    from raykit.data.members import load as load_members
    from raykit.plan import RowChange
    from raykit.read.candidates import run_of_key
    from raykit.review import words
    from raykit.store.plans import newest_lock, read_run_plan
    from raykit.train.find_recipe import load_recipe, recipe_folder
    from raykit.train.inputs import describe_dataset, open_dataset
    from raykit.train.params import check_params

    locked = newest_lock(store, base.experiment)
    if locked is None or lock.settings.get("data"):
        return "not looked at"
    try:
        plan = read_run_plan(store, base.experiment, run_of_key(base.key), locked.plan)
        recipe = load_recipe(settings["recipe"], recipe_folder(settings["recipe"], out))
        source = describe_dataset(open_dataset(recipe, check_params(recipe, plan.run.params), plan))
        members = load_members(store, base.experiment, locked.data)
    except (PlanError, NotFoundError) as error:
        return f"not looked at: {error.message}; write the plan beside its recipe, or say --recipe"
    found = compare(members, source)
    counts = {} if found is None else found.counts
    added, removed = counts.get("added", 0), counts.get("missing", 0)
    before = members.manifest.rows
    return words.rows(
        RowChange(
            before=before,
            after=before + added - removed,
            added=added,
            removed=removed,
            relabelled=counts.get("content", 0),
        )
    )


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
