"""A search's `[search]` table, its registration and its log's entries, in a few words. Nothing here is in a store.

search = a_search(trials=4, repeats=(2, (2, 3)))
state = play(search, begun(1), ended(1, 0.5), begun(2))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from makerun import ELSEWHERE

from raykit.ids import sha256
from raykit.plan.tables import Search
from raykit.records import Begun, Drawn, End, Record, RowEnded, Ruled, SearchEntry, SearchRegistration
from raykit.search import SearchState, fold, rows_of

D = sha256(b"one")
SPACE: Mapping[str, Mapping[str, Any]] = {
    "lr": {"loguniform": [1e-5, 1e-1]},
    "size": {"choice": [8, 16, "large"]},
    "depth": {"integer": [1, 9]},
    "tilt": {"uniform": [-1.0, 1.0]},
}
RUN_SEED = 1
UPDATES = 40


def a_search(
    *,
    trials: int = 4,
    sampler: str = "random",
    seed: int = 7,
    repeats: tuple[int, Sequence[int]] | None = None,
    concurrent: int = 2,
    space: Mapping[str, Mapping[str, Any]] = SPACE,
    **more: Any,
) -> Search:
    """The table of a plan, as it is read."""
    table = {
        "hypothesis": "A higher rate gets as far in fewer updates.",
        "predicts": "If true, the ratio falls with lr; if false it is flat.",
        "sampler": {"name": sampler, "seed": seed},
        "trials": trials,
        "concurrent": concurrent,
        "metric": "development.ratio",
        "mode": "min",
        "space": space,
        **more,
    }
    if repeats is not None:
        table["repeats"] = {"top": repeats[0], "seeds": list(repeats[1])}
    return Search.model_validate_json(json.dumps(table))


def registered(search: Search, **changes: Any) -> SearchRegistration:
    """What it is registered as, read back as a store has it."""
    found = SearchRegistration(
        experiment="lr",
        search="main",
        plan=D,
        contract=D,
        code=D,
        data=D,
        hypothesis=search.hypothesis,
        predicts=search.predicts,
        metric=search.metric,
        mode=search.mode,
        sampler=search.sampler.plain(),
        scheduler=None if search.scheduler is None else search.scheduler.plain(),
        space={name: span.plain() for name, span in search.space.items()},
        concurrent=search.concurrent,
        updates=UPDATES,
        attempts=3,
        unit="usd",
        row_worst=3_450_000,
        total_worst=3_450_000 * search.rows,
        rows=rows_of(search, RUN_SEED),
    ).model_copy(update=changes)
    return SearchRegistration.from_bytes(found.to_bytes(), "it")


def entry(n: int, *events: Record) -> SearchEntry:
    """One entry of its log."""
    return SearchEntry(n=n, prev=None if n == 1 else D, at=float(n), by="driver", nonce="n", events=events)


def begun(row: int, launch: str | None = None) -> Begun:
    return Begun(row=row, launch=launch or f"launch-{row}", place=ELSEWHERE)


def ruled(row: int, update: int = 10, value: float = 0.9) -> Ruled:
    return Ruled(row=row, update=update, value=value, why="below the top third")


def ended(row: int, value: float | None = None, end: End = "completed", **more: Any) -> RowEnded:
    """An end; completed if nothing else is said."""
    unbegun = end in ("refused-by-budget", "never-started")
    said = {
        "update": 0 if unbegun else UPDATES,
        "cost": 0 if unbegun else 100,
        "attempts": 0 if unbegun else 1,
        "value": value,
        "at": None if value is None else UPDATES,
        **more,
    }
    return RowEnded(row=row, end=end, **said)


def drawn(row: int, params: Mapping[str, Any], repeats: int | None = None) -> Drawn:
    return Drawn(row=row, params=params, by="optuna.tpe" if repeats is None else "rank", repeats=repeats)


def play(search: Search | SearchRegistration, *events: Record) -> SearchState:
    """What a log of these events, one an entry, leads to."""
    registration = registered(search) if isinstance(search, Search) else search
    return fold(registration, [entry(n, event) for n, event in enumerate(events, start=1)])
