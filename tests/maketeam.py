"""The team's production model as it was made: `lm1b-07`, trained to update 95,000, and registered as `lm1b-prod`.

Its checkpoint has the model and the optimizer, tiny and whole; its plan is the one that trained it. Of its rows only
the last are there: those before have a segment whose bytes say where they went.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from makerun import RunMaker

from raykit.ids import digest_of
from raykit.plan import Plan, contract, load_plan
from raykit.records import Locked, Registered, Segment
from raykit.store import layout
from raykit.store.candidates import register
from raykit.store.local import LocalStore

UPDATES = 95_000
ROWS = 59_022_310
SHOWN = 250
"""How many of its rows are there: as many as its pace is told from."""
ACCELERATOR_S = 57.7 * 8 * 3600
BY = "mira"

_REFRESH = Path(__file__).parent / "users" / "refresh.toml"
_AS_IT_WAS = (
    ('name     = "lm1b-refresh-2026-11"', 'name     = "lm1b-07"'),
    ("Does lm1b-prod, continued on 5 % more documents, become", "Does a 1B model become"),
    ('"lm1b-prod", "unigram"', '"unigram"'),
    ("lr = 6e-5", "lr = 3e-4"),
    ("updates          = 14300", f"updates          = {UPDATES}"),
    ("wall_h           = 10 ", "wall_h           = 70 "),
    (', "s3://corp/docs-new@2026-11"]', "]"),
    ('mix         = { "docs@v7" = 0.75, "docs-new@2026-11" = 0.25 }    # constant over the run\n', ""),
    ("ceiling_usd = 900", "ceiling_usd = 5000"),
    ('"> base + 0.01"', '"> 4"'),
)


def _plan_text() -> str:
    text = _REFRESH.read_text()
    before, _, rest = text.partition("[base]")
    text = before + rest[rest.index("[data]") :]
    for old, new in _AS_IT_WAS:
        assert old in text, old
        text = text.replace(old, new)
    return text


class Trained(RunMaker):
    """Writes `lm1b-07`."""

    counted = {"train": ROWS, "development": 20_000, "report_only": 20_000, "sealed": 20_000}
    accelerator_s = ACCELERATOR_S

    def skip(self, updates: int) -> None:
        """The first updates, without their rows."""
        key = layout.segment(self.experiment, self.run, self.attempt, "train", 1, updates)
        stored = self.store.put_new(key, b"archived 2026-08\n")
        segment = Segment(
            series="train",
            attempt=self.attempt,
            first=1,
            last=updates,
            key=key,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )
        self.say([segment])
        self.update = updates

    @property
    def plan(self) -> Plan:
        return load_plan(self.plan_file(), where="lm1b-07.toml")

    def plan_file(self) -> bytes:
        return _plan_text().encode()

    def settings(self) -> dict[str, Any]:
        return self.plan.plain()

    def freeze(self) -> Locked:
        self.contract = digest_of(contract(self.plan))
        return super().freeze()


def make_production(root: Path) -> None:
    """`lm1b-prod` in the store at `root`."""
    maker = Trained(LocalStore(root), experiment="lm1b-07", updates=UPDATES)
    maker.seconds_per_update = 2.19
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.skip(UPDATES - SHOWN)
    maker.rows(SHOWN, every=SHOWN)
    maker.look()
    commit = maker.commit("final")
    maker.end("completed")
    maker.release("completed")
    register(
        maker.store,
        Registered(
            candidate="lm1b-prod",
            role="production-candidate",
            origin="run",
            manifest=commit.sha256,
            key=commit.key,
            experiment="lm1b-07",
            update=commit.update,
            person=BY,
        ),
        at=maker.at,
    )
