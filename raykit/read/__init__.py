"""Reading a store from Python: what is there, how it goes, and every verified row.

    root = raykit.open("./store")
    for run in root.runs():
        print(run.id, run.state, run.health, run.update, run.ratio)
    table = root.history("digits-vae")          # rows 1 to N, each segment's digest checked before it is parsed
    table.to_pandas().plot(x="update", y="ratio")
    search = root.search("digits-lr")           # the registered table of trials, the pick, who is waited for
    search.to_pandas().plot.scatter(x="params.lr", y="value", logx=True)

Needs neither ray nor torch, writes nothing, and works while the runs go on.
"""

from __future__ import annotations

from raykit.read.money import AccountMoney, Money
from raykit.read.reader import RunReader
from raykit.read.root import Root, open
from raykit.read.rows import RowTable
from raykit.read.view import (
    AttemptView,
    CommitView,
    Development,
    FleetView,
    Health,
    PauseView,
    RunView,
    State,
)

__all__ = [
    "AccountMoney",
    "AttemptView",
    "CommitView",
    "Development",
    "FleetView",
    "Health",
    "Money",
    "PauseView",
    "Root",
    "RowTable",
    "RunReader",
    "RunView",
    "State",
    "open",
]
