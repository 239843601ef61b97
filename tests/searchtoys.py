"""Searches that train nothing: a plan of the tiny recipe with a table, and objectives for its rows."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raykit.errors import RaykitError
from raykit.fleet.door import StoreDoor
from raykit.fleet.search.job import Back, Handed
from raykit.records import Setting
from raykit.store import open_store

if TYPE_CHECKING:
    from raykit.fleet.purse import Purse
    from raykit.fleet.search.exchange import Exchange
    from raykit.fleet.search.opening import Opened

TINY = Path(__file__).parent / "tiny"

TABLE = """
[search]
hypothesis = "A higher rate reaches as far in fewer updates."
predicts   = "If true, the ratio falls with lr above 0.01; if false it is flat."
sampler    = {{ name = "{sampler}", seed = 7 }}
trials     = {trials}
{repeats}
concurrent = {concurrent}
{scheduler}
metric     = "development.ratio"
mode       = "min"

[search.space]
lr = {{ loguniform = [1e-3, 1e-1] }}
"""

PRICE = """
[pools.train]
gpus         = 0
usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}
"""

ASHA = 'scheduler = { name = "asha", grace_updates = 5, reduction = 2 }'
ONE_REPEAT = "repeats = { top = 1, seeds = [4] }"


def write_search(
    folder: Path,
    *,
    trials: int = 4,
    concurrent: int = 2,
    sampler: str = "random",
    repeats: str = "",
    scheduler: str = "",
    select: bool = False,
    rate: float | None = None,
    ceiling: float = 1.0,
    **run: str,
) -> Path:
    """The tiny plan with a table of trials, its recipe beside it; `run` are lines of its table [run].

    With a `rate` an hour of this machine costs something. Without `select` a row is worth its last evaluation: an
    objective has no checkpoints.
    """
    plan = (TINY / "plan.toml").read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}")
    if not select:
        plan = plan.replace('select           = "min development.ratio"\n', "")
    for key, value in run.items():
        lines = [line for line in plan.splitlines() if line.split("=")[0].strip() != key]
        lines.insert(lines.index("[run]") + 1, f"{key} = {value}")
        plan = "\n".join(lines) + "\n"
    table = TABLE.format(
        trials=trials, concurrent=concurrent, sampler=sampler, repeats=repeats, scheduler=scheduler
    )
    price = "" if rate is None else PRICE.format(rate=rate)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.py").write_text((TINY / "recipe.py").read_text())
    path = folder / "plan.toml"
    path.write_text(plan.replace("[budget]", f"{table}\n[budget]") + price)
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
    pause_s: float = 0.05
    calls: str | None = None
    """A file that gets a line for every report that was made."""
    nan_below: float = 0.0
    """A rate below which nothing is finite at the end."""
    raise_above: float = 1.0
    """A rate above which the objective fails at its second report."""
    die_in: str | None = None
    """A folder: each row that finds no file of its own there makes one, and kills its process at the second report."""

    def __call__(self, setting, after, report):
        for update in range(after + self.every, self.updates + 1, self.every):
            time.sleep(self.pause_s)
            if update == 2 * self.every:
                self.fail(setting)
            value = value_of(setting, update, self.updates)
            last = update == self.updates
            report(update, math.nan if last and setting.params["lr"] < self.nan_below else value)
            if self.calls is not None:
                with Path(self.calls).open("a") as file:
                    file.write(f"{os.getpid()} {setting.params['lr']} {setting.seed} {update}\n")

    def fail(self, setting):
        lr = setting.params["lr"]
        if lr > self.raise_above:
            raise ValueError(f"no rate as high as {lr} is allowed")
        if self.die_in is not None:
            mark = Path(self.die_in) / f"{lr}-{setting.seed}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), 9)


class Threads:
    """What a search runs on instead of a Ray: each start is a thread of this process, its door the ledger itself.

    `ended` is called with the run of every start that has ended, by its own thread.
    """

    checks = None
    pictures = ()

    def __init__(
        self, folder: Path, *, most: int = 2, ended: Callable[[str], None] = lambda run: None
    ) -> None:
        self.most = most
        self.storage = folder
        self.starts: list[str] = []
        """The run of every start, in order."""
        self._ended = ended
        self._threads: list[threading.Thread] = []
        self._exchange: Exchange | None = None

    def open(self, opened: Opened, exchange: Exchange) -> None:
        self._exchange = exchange
        self._root = opened.task.root
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        assert self._exchange is not None
        while not self._exchange.closed:
            handed = self._exchange.take(1.0)
            if handed is not None:
                self.starts.append(handed.run)
                thread = threading.Thread(target=self._run, args=(handed,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def door(self, purse: Purse) -> StoreDoor:
        attempts = purse.spending.attempts
        ledger = purse.spending.ledger
        return StoreDoor(open_store(self._root), ledger.account, attempts, by="test", hold_s=1.0)

    def turn(self) -> None:
        pass

    def _run(self, handed: Handed) -> None:
        assert self._exchange is not None
        back = Back()
        try:
            handed.job(self._exchange.heard)
        except RaykitError as error:
            back = Back(refused=f"{error.kind}: {error}")
        except ConnectionResetError:
            back = Back(lost="its process was lost")
        except Exception as error:  # whatever the objective raises
            back = Back(failed=f"{type(error).__name__}: {error}")
        self._ended(handed.run)
        self._exchange.came_back(handed.serial, back)

    def drain(self, stop: Callable[[], str | None], tell: Callable[[object], None]) -> None:
        pass

    def close(self, *, leaving: bool, abandoned: bool) -> None:
        if self._exchange is not None:
            self._exchange.close()
        for thread in self._threads:
            thread.join(30.0)

    def read(self) -> None:
        return None
