"""Searches that train nothing: a plan of the tiny recipe with a table, and objectives for its rows."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from raykit.records import Setting

TINY = Path(__file__).parent / "tiny"

SEARCH = """
[search]
hypothesis = "A higher rate reaches as far in fewer updates."
predicts   = "If true, the ratio falls with lr above 0.01; if false it is flat."
sampler    = {{ name = "{sampler}", seed = 7 }}
trials     = {trials}
{repeats}
concurrent = {concurrent}
{scheduler}
metric     = "development.{metric}"
mode       = "min"

[search.space]
lr = {{ loguniform = [1e-3, 1e-1] }}
"""


def write_plan(
    folder: Path,
    *,
    trials: int = 4,
    concurrent: int = 2,
    sampler: str = "random",
    repeats: str = "",
    scheduler: str = "",
    metric: str = "ratio",
    name: str = "tiny",
    updates: int = 20,
    select: bool = True,
    more: str = "",
) -> Path:
    """The tiny plan with a table of trials, its recipe beside it."""
    plan = (TINY / "plan.toml").read_text()
    plan = plan.replace('name     = "tiny"', f'name     = "{name}"')
    plan = plan.replace("updates          = 20", f"updates          = {updates}")
    if not select:
        plan = plan.replace('select           = "min development.ratio"\n', "")
    table = SEARCH.format(
        trials=trials,
        concurrent=concurrent,
        sampler=sampler,
        repeats=repeats,
        scheduler=scheduler,
        metric=metric,
    )
    head, budget, tail = plan.partition("[budget]")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.py").write_text((TINY / "recipe.py").read_text())
    path = folder / "plan.toml"
    path.write_text(head + table + more + "\n" + budget + tail)
    return path


def value_of(setting: Setting, update: int, updates: int) -> float:
    """What a setting comes to after so many updates: the best `lr` is 0.02."""
    far = abs(math.log10(setting.params["lr"] / 0.02))
    return round(0.2 + far + (updates - update) / updates + 0.001 * setting.seed, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Reports every `every` updates, after `pause_s` each."""

    updates: int = 20
    every: int = 5
    pause_s: float = 0.1
    calls: str | None = None
    """A file that gets a line for every report that is made."""

    def __call__(self, setting, after, report):
        for update in range(after + self.every, self.updates + 1, self.every):
            time.sleep(self.pause_s)
            if self.calls is not None:
                with open(self.calls, "a") as file:
                    file.write(f"{os.getpid()} {setting.params['lr']} {setting.seed} {update}\n")
            report(update, self.value(setting, update))

    def value(self, setting, update):
        return value_of(setting, update, self.updates)
