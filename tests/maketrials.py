"""A search whose trials are examined: its table, its log, and a run with [qc] for every trial that began. No money.

    maker = TrialsMaker(store)              # four trials, of which none has begun
    first = maker.begin(1)                  # a QcMaker whose run is trial-001, with a checkpoint at update 0
    first.rows(10); first.look(); first.commit()
    maker.trained(2)                        # trial 2 from its beginning to update 40

Every checkpoint of `trained` is committed one second after the one before it; trials that begin one after the other
therefore have their oldest checkpoints in that order.
"""

from __future__ import annotations

from typing import Any

from makeqc import QcMaker
from makerun import START_AT

from raykit.records import Begun, Record, SearchEntry, SearchRegistration, Setting, TableRow
from raykit.search import SEARCH, run_of
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.search import register


class TrialsMaker:
    """Writes a search and its trials, as its process would."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        experiment: str = "digits-lr",
        trials: int = 4,
        width: int = 8,
        at: float = START_AT,
        **traits: Any,
    ) -> None:
        """`traits` are attributes of every trial's maker: `on_failure="stop"`."""
        self.store = store
        self.experiment = experiment
        self.at = at
        self.traits = traits
        self.table = tuple(
            TableRow(row=n, seed=n, params={"width": width * n, "lr": 0.001 * n})
            for n in range(1, trials + 1)
        )
        self.runs: dict[int, QcMaker] = {}
        self.log: Log[SearchEntry] = Log(
            store, layout.search_log(experiment, SEARCH), SearchEntry, by="maker"
        )
        self.register()

    def register(self) -> None:
        locked = self.of(1).lock_plan()
        self.registration = SearchRegistration(
            experiment=self.experiment,
            search=SEARCH,
            plan=locked.plan,
            contract=locked.contract,
            code=locked.code,
            data=locked.data,
            hypothesis="a higher rate reaches as far",
            predicts="the ratio falls with lr",
            metric="development.ratio",
            mode="min",
            sampler={"name": "random", "seed": 7},
            space={
                "lr": {"loguniform": [1e-4, 5e-2]},
                "width": {"choice": sorted({row.params["width"] for row in self.table if row.params})},
            },
            concurrent=len(self.table),
            updates=40,
            attempts=3,
            unit="usd",
            row_worst=0,
            total_worst=0,
            rows=self.table,
        )
        register(self.store, self.registration)

    @property
    def suite(self) -> str:
        """The digest of the one suite."""
        return self.runs[1].suite.digest

    def of(self, row: int) -> QcMaker:
        """The maker of a row's run."""
        if row not in self.runs:
            maker = QcMaker(self.store, experiment=self.experiment, run=run_of(row), at=self.at)
            for name, value in self.traits.items():
                assert hasattr(maker, name), name
                setattr(maker, name, value)
            registered = self.table[row - 1]
            maker.setting = Setting(params=dict(registered.params or {}), seed=registered.seed)
            self.runs[row] = maker
        return self.runs[row]

    def begin(self, row: int) -> QcMaker:
        """The row is begun, and its run has its checkpoint at update 0."""
        maker = self.of(row)
        maker.at = max(maker.at, self.at)
        maker.freeze()
        maker.prefix = f"t{row}-"
        self.say(Begun(row=row, launch=f"{maker.prefix}launch-1", place=maker.place))
        maker.launch()
        maker.begin()
        self.at = max(self.at, maker.at)
        return maker

    def commit(self, row: int, updates: int = 10) -> None:
        """So many updates more, and a checkpoint."""
        maker = self.runs[row]
        maker.at = max(maker.at, self.at)
        maker.rows(updates)
        maker.look()
        maker.commit("final" if maker.update == maker.updates else "cadence")
        self.at = maker.at

    def trained(self, row: int) -> QcMaker:
        """The row from its beginning to its end."""
        maker = self.begin(row)
        while maker.update < maker.updates:
            self.commit(row)
        maker.end("completed")
        maker.release("completed")
        self.at = maker.at
        return maker

    def say(self, *events: Record) -> None:
        """Append to the log of the search."""
        self.at += 1.0
        self.log.append(lambda entries: events, at=self.at)
