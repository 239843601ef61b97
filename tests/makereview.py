"""Plans and the evidence around them, as a review gets it: the digits plan, and three of a language-model team."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from raykit.ids import sha256
from raykit.plan import LockedBase, Looked, Plan, RowChange, RunSeen, Start, load_plan
from raykit.records import Concluded, Line, Noted
from raykit.review import (
    Base,
    Evidence,
    Incident,
    Measurement,
    Money,
    Negative,
    OptionCost,
    Pilot,
    stage_of,
)

ROOT = Path(__file__).parents[1]
USERS = ROOT / "tests" / "users"
H = 3_600_000
USD = 1_000_000


def plan_at(path: Path) -> Plan:
    return load_plan(
        path.read_bytes(), where=path.name, shared=lambda name: (path.parent / name).read_bytes()
    )


def with_(plan: Plan, changes: Mapping[str, Any]) -> Plan:
    """The plan with other values at dotted keys; None takes a key out. Rules across keys are not asked."""
    raw = json.loads(json.dumps(plan.plain()))
    for key, value in changes.items():
        here = raw
        *tables, last = key.split("/") if "/" in key else key.split(".")
        for table in tables:
            here = here.setdefault(table, {})
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    return Plan.model_validate_json(json.dumps(raw))


def planned(evidence: Evidence, changes: Mapping[str, Any] | None = None, **keys: Any) -> Evidence:
    """The evidence for a changed plan; dots in keyword names are double underscores."""
    named = {key.replace("__", "."): value for key, value in keys.items()}
    plan = with_(evidence.plan, {**(changes or {}), **named})
    stage, why = stage_of(plan)
    return replace(evidence, plan=plan, stage=stage, stage_why=why)


def paid(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, money=replace(evidence.money, **changes))


def based(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.base is not None
    return replace(evidence, base=replace(evidence.base, **changes))


def lines(total: float, **planned: float) -> tuple[Line, ...]:
    rest = total - sum(planned.values())
    purposes = {"train": "target", "confirmation": "confirmation", "recovery": "recovery"}
    return tuple(
        Line(line=name, purpose=purposes.get(name, "overhead"), planned=round(amount * USD))
        for name, amount in {**planned, "recovery": rest}.items()
    )


# --- a plan on this machine ---------------------------------------------------------------------------------


def digits() -> Evidence:
    plan = plan_at(ROOT / "jobs" / "digits" / "plan.toml")
    stage, why = stage_of(plan)
    return Evidence(
        plan=plan,
        stage=stage,
        stage_why=why,
        rows={"train": 1258, "development": 270, "report_only": 269},
        gates=("first", "resume"),
        money=Money(
            unit="usd",
            ceiling=USD,
            lines=lines(1.0, train=0.0, confirmation=0.0),
            worst=0,
            expected=0,
            expected_ms=60_000,
            uncertain=True,
            charged=0,
            account="digits-vae",
            account_ceiling=5 * USD,
            rates={"train": "this machine's own CPUs: not billed"},
            billed=False,
            priced=frozenset(),
        ),
        looked=Looked(store="store"),
        options={"fresh": OptionCost(updates=2000, time_ms=60_000, accelerator_ms=60_000, cost=0)},
    )


# --- a production model that is continued -------------------------------------------------------------------

PROD = LockedBase(
    candidate="lm1b-prod",
    origin="run",
    experiment="lm1b-07",
    update=95_000,
    attempt=1,
    manifest=sha256(b"lm1b-07"),
    key="experiments/lm1b-07/runs/main/checkpoints/update-00095000/1/manifest.json",
)


def refresh() -> Evidence:
    plan = plan_at(USERS / "refresh.toml")
    stage, why = stage_of(plan)
    return Evidence(
        plan=plan,
        stage=stage,
        stage_why=why,
        rows={"train": 61_975_428, "development": 20_000, "report_only": 20_000, "sealed": 20_000},
        gates=("first", "resume"),
        money=Money(
            unit="usd",
            ceiling=900 * USD,
            lines=lines(
                900.0,
                gates=30.14,
                train=307.67,
                qc=22.26,
                generate=140.59,
                compare=5.64,
                storage=10.0,
                confirmation=307.67,
            ),
            worst=516_300_000,
            expected=354 * USD,
            expected_ms=int(8.7 * H),
            uncertain=False,
            charged=351_160_000,
            account="corp-lm",
            account_ceiling=900 * USD,
            rates={"train": "2.99 (invoice 2026-10, billed by the node)"},
            billed=True,
            priced=frozenset({"train", "qc", "generate"}),
        ),
        looked=Looked(
            store="s3://corp/rk",
            runs=(RunSeen(experiment="lm1b-07", state="completed", update=95_000, updates=95_000),),
        ),
        base=Base(
            locked=PROD,
            role="production-candidate",
            production=True,
            approved_by="mira",
            updates=95_000,
            accelerator_ms=int(57.7 * 8 * H),
            cost=1380 * USD,
            accelerators=8,
            rows=59_022_310,
            dependents=("targets-v3", "export-2026-09"),
            noise=0.0011,
        ),
        change=RowChange(before=59_022_310, after=61_975_428, added=2_953_118, removed=0, relabelled=0),
        settings=("run.updates: 95000 -> 14300", "run.params.lr: 0.0003 -> 6e-05"),
        options=_costs(),
        pilot=Pilot(
            experiment="lm1b-pilot", updates=1_000, effect="-0.004 +/- 0.002 bits per byte", decided=False
        ),
        incumbent="lm1b-prod",
        plan_approved=True,
        measured=(Measurement(what="generate", time_ms=18 * H, units=40_000, how="canary 2026-11-20"),),
    )


def _costs() -> dict[Start, OptionCost]:
    def cost(updates: int, hours: float, usd: float) -> OptionCost:
        return OptionCost(
            updates=updates,
            time_ms=int(hours * H),
            accelerator_ms=8 * int(hours * H),
            cost=round(usd * USD),
        )

    return {
        "use": OptionCost(updates=0, time_ms=0, accelerator_ms=0, cost=0),
        "continue": cost(14_300, 8.7, 208.1),
        "replay": cost(14_300, 8.7, 208.1),
        "pilot": cost(1_000, 0.6, 14.55),
        "fresh": cost(99_750, 60.6, 1449.0),
    }


def fresh() -> Evidence:
    """The same plan, from scratch."""
    return planned(refresh(), {"base.start": "fresh", "base.keep": None})


def fresh_with_reasons() -> Evidence:
    """The same, with all that a fresh start has to say, and approved."""
    said = {
        "base.against_continue": "The old tokenizer's rows would stay in the moments: 3 % of tokens differ.",
        "base.against_replay": "The same, at a fixed share.",
        "base.reason": "0.02 bits per byte, measured at 100M from both starts.",
        "base.because": "uniform-exposure",
        "base.invalid_without": "Any statement about how often each source was seen.",
    }
    return replace(planned(fresh(), said), restart_approved=True)


# --- a search ------------------------------------------------------------------------------------------------


def search() -> Evidence:
    plan = plan_at(USERS / "search.toml")
    stage, why = stage_of(plan)
    return Evidence(
        plan=plan,
        stage=stage,
        stage_why=why,
        rows={"train": 61_975_428, "development": 20_000},
        gates=("first", "resume"),
        money=Money(
            unit="usd",
            ceiling=60 * USD,
            lines=lines(60.0, train=41.44, confirmation=3.45),
            worst=41_440_000,
            expected=27 * USD,
            expected_ms=7 * H,
            uncertain=False,
            charged=0,
            account="corp-lm",
            account_ceiling=900 * USD,
            rates={"train": "2.99 (invoice 2026-10, billed by the node)"},
            billed=True,
            priced=frozenset({"train"}),
        ),
        looked=Looked(store="s3://corp/rk"),
        options={"fresh": OptionCost(updates=1500, time_ms=H // 2, accelerator_ms=2 * H, cost=6 * USD)},
    )


def comparing() -> Evidence:
    """Two widths, trained side by side from the start."""
    return planned(
        digits(),
        category="causal-comparison",
        comparison={
            "arms": {"base": {}, "wide": {"params.width": 64}},
            "varies": "params.width",
            "detectable": 0.005,
            "tie": "cheaper",
        },
    )


# --- what was learned ----------------------------------------------------------------------------------------


def negative(outcome: str, *same: str) -> Negative:
    concluded = Concluded(
        outcome=outcome,
        says="more width did nothing",
        decision=sha256(b"decision"),
        contract=sha256(b"contract"),
        update=2000,
        person="ada",
    )
    return Negative(experiment="digits-wide", concluded=concluded, same=same)


def noted(kind: str, says: str) -> Incident:
    return Incident(experiment="lm1b-06", noted=Noted(kind=kind, says=says, person="mira"))
