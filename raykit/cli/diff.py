"""`raykit diff`: what two runs were made of and what they came to, where they differ. Reads only, and needs no Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import look, output
from raykit.cli.options import DEFAULT_ROOT, Json, Root, open_root

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.read.search import RowRead

MOST_TEXT = 60

Run = Annotated[str, typer.Argument(metavar="RUN", help="experiment, or experiment/run.")]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="The run that it is held against.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two runs."""

    view: RunView
    settings: Mapping[str, Any]
    """Its plan with every default, and with its own setting where it is a trial."""
    row: RowRead | None
    """Of a trial: its row of the table."""


def diff(run: Run, other: Other, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Two runs compared: settings, code, data and environment where they differ, and what each has come to.

    Of two trials of one search that is their own settings. It says what differs, and not whether that matters: a
    difference between two runs may be that of their seeds.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: an experiment has several runs, or is a search.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.plan import differences

    found = open_root(root)
    one, two = _side(found, run), _side(found, other)
    changed = differences(one.settings, two.settings)
    made = [each for each in zip(_digests(one), _digests(two), strict=True) if each[0] != each[1]]
    first, second = dict(_came_to(one)), dict(_came_to(two))
    came = [(name, first.get(name), second.get(name)) for name in {**first, **second}]
    if as_json:
        output.print_json(
            {
                "run": one.view.id,
                "other": two.view.id,
                "settings": [{"field": f, "run": a, "other": b} for f, a, b in changed],
                "made_of": {a[0]: {"run": a[1], "other": b[1]} for a, b in made},
                "came_to": {name: {"run": a, "other": b} for name, a, b in came},
            }
        )
        return
    rows = [(field, _text(before), _text(after)) for field, before, after in changed]
    rows += [(name, _short(a), _short(b)) for (name, a), (_, b) in made]
    headers = ("FIELD", one.view.id, two.view.id)
    if one.view.id == two.view.id:
        print(f"  {one.view.id} is held against itself: it is one and the same run")
    elif rows:
        print(output.table(headers, rows))
    else:
        print(f"  {one.view.id} and {two.view.id} are made of the same")
    print()
    print(
        output.table(
            ("CAME TO", *headers[1:]), [(name, _came(name, a), _came(name, b)) for name, a, b in came]
        )
    )


def _side(found: ReadRoot, name: str) -> Side:
    from raykit.store.plans import read_setting

    view = found.run(name)
    settings = dict(view.lock.settings) if view.lock is not None else {}
    setting = read_setting(found.store, view.experiment, view.run)
    row = None
    if setting is not None:
        plan = settings.get("run")
        run = dict(plan) if isinstance(plan, Mapping) else {}
        run |= {"params": {**run.get("params", {}), **setting.params}, "seed": setting.seed}
        settings["run"] = run
    if view.row is not None and found.has_search(view.experiment):
        row = found.search(view.experiment).row(view.row)
    return Side(view=view, settings=settings, row=row)


def _digests(side: Side) -> Iterator[tuple[str, str | None]]:
    """What it is made of, by the names of its lock."""
    lock = side.view.lock
    for name in ("code", "data", "contract"):
        yield name, None if lock is None else getattr(lock, name)
    yield "host", side.view.attempts[-1].place.host if side.view.attempts else None


def _came_to(side: Side) -> Iterator[tuple[str, Any]]:
    view, development = side.view, side.view.figures.development
    yield "state", look.word(view)
    yield "health", view.health
    yield "update", view.update
    yield "ratio", view.ratio
    if development is not None:
        yield f"development {development.metric}", development.value
    yield "attempts", len(view.attempts)
    if side.row is not None:
        yield "row", f"{side.row.row}, {side.row.status}"
        yield "value", side.row.value
        yield "cost", side.row.cost


def _text(value: object) -> str:
    if value is None:
        return look.NONE
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 2]}.."


def _came(name: str, value: object) -> str:
    return output.amount(value) if name == "cost" and isinstance(value, int) else _text(value)


def _short(value: str | None) -> str:
    return look.NONE if value is None else output.short(value) if len(value) == 64 else value
