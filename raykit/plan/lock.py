"""What is computed from a plan: the contract that shapes the weights, and the lock that is sealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from raykit.errors import PlanError
from raykit.ids import Digest, Name, digest_of, sha256
from raykit.plan.judged import Judged, LockedBase
from raykit.plan.model import Plan
from raykit.plan.tables import Generate
from raykit.records import Count, Positive, Versioned

GATES: tuple[str, ...] = ("first", "resume")
"""The gates that every first start of a run goes through, in order."""


# --- the contract -------------------------------------------------------------------------------------------


def contract(plan: Plan) -> dict[str, Any]:
    """Exactly the part of a plan that shapes the trained weights.

    In it, because another value gives other weights:

    - `recipe` and `run.params`: the model, its objective and its optimizer.
    - `splits`, `data`, `base`: what it learns from, and what it starts with.
    - `run.updates`: learning-rate schedules depend on the length of the run.
    - `run.batch`, `run.accumulate`, `run.workers`: which samples meet in one update, and in which order their
      gradients are summed. The last two change bits, not the samples.
    - `run.seed`, `run.clip`, `run.dtype`, `run.deterministic`, `run.shard`: randomness, and arithmetic.
    - `run.evaluating`, where it is given: which modules keep dropout off, and the statistics that they have.
    - `run.stop`: when the run ends. A rule counts evaluations, so `run.evaluate_every` is part of a rule, and
      of nothing else.

    Not in it: `evaluate_every` (an evaluation changes no weight), `checkpoint_every`, `keep_checkpoints` and
    `loss_window_min` (nor does a save), `select` (it chooses among weights), `attempts`, `wall_h` and
    `resume` (how a run is carried through), `loader_workers`, `flush_s` and `hold_s` (speed and patience),
    `threads` and `device` (facts of the machine, which a resume compares by themselves), and everything that
    people read.
    """
    run = plan.run
    return {
        "recipe": plan.recipe,
        "splits": _splits(plan),
        "data": plan.data.plain() if plan.data else None,
        "base": _base(plan),
        "run": {
            "updates": run.updates,
            "batch": run.batch,
            "accumulate": run.accumulate,
            "workers": run.workers,
            "shard": run.shard,
            "seed": run.seed,
            "params": dict(run.params),
            "clip": run.clip,
            "dtype": run.dtype.plain(),
            "deterministic": run.deterministic,
            "stop": _stop(plan),
            **({} if run.evaluating is None else {"evaluating": list(run.evaluating)}),
        },
    }


def _splits(plan: Plan) -> dict[str, Any] | None:
    """How the data are divided, without the reason that people give for it."""
    if plan.splits is None:
        return None
    return {key: value for key, value in plan.splits.plain().items() if key != "why"}


def _base(plan: Plan) -> dict[str, Any] | None:
    """The base without the reasons that people give for it."""
    if plan.base is None:
        return None
    return {"candidate": plan.base.candidate, "start": plan.base.start, "keep": list(plan.base.keep)}


def _stop(plan: Plan) -> str | dict[str, Any] | None:
    rule = plan.run.stopping
    if rule is None:
        return "never" if plan.run.stop == "never" else None
    return {
        "metric": f"development.{rule.metric}",
        "mode": rule.mode,
        "patience": rule.patience,
        "min_delta": rule.min_delta,
        "evaluate_every": plan.run.evaluate_every,
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Where two contracts differ, as `("run.params.lr", 0.001, 0.002)`; None stands for what is not there."""
    was, now = _flat("", old), _flat("", new)
    fields = [*was, *(field for field in now if field not in was)]
    return [
        (field, was.get(field), now.get(field))
        for field in fields
        if not _same(was.get(field), now.get(field))
    ]


def _flat(prefix: str, value: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flat |= _flat(f"{prefix}{key}.", item)
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def _same(a: Any, b: Any) -> bool:
    return digest_of(a) == digest_of(b)  # 1 == 1.0 == True in Python, and not to a recipe


# --- what an approval covers --------------------------------------------------------------------------------


def projection(plan: Plan, *, ceiling: int, base: LockedBase | None = None) -> Digest:
    """The digest of the consequential part of a plan: what an approval names."""
    return digest_of(consequential(plan, ceiling=ceiling, base=base))


def consequential(plan: Plan, *, ceiling: int, base: LockedBase | None = None) -> dict[str, Any]:
    """The part of a plan that an approval covers; another value of anything in it ends the approval.

    The decision, the base by its bytes and how it starts, the data, what is trained (the contract), the metric and
    how much of it matters, what is compared, when it stops, and the ceiling as it stands now. A tag, a cadence or a
    curve that changes leaves an approval good.
    """
    found: dict[str, Any] = {
        "name": plan.name,
        "decision": plan.decision,
        "category": plan.category,
        "contract": contract(plan),
        "metric": plan.claim.metric,
        "worthwhile": plan.claim.worthwhile,
        "success": plan.claim.success,
        "compare": list(plan.claim.compare),
        "select": plan.run.select,
        "thresholds": plan.qc.plain()["fail"] if plan.qc is not None else None,
        "search": plan.search.plain() if plan.search is not None else None,
        "ceiling": ceiling,
    }
    if plan.comparison is not None:
        found["arms"] = plan.comparison.plain()
    if plan.protocol is not None:
        found["protocol"] = plan.protocol.plain()
    if plan.diagnosis is not None:
        found["diagnosis"] = plan.diagnosis.plain()
    if plan.generate:
        found["generate"] = {name: _of_a_set(target) for name, target in sorted(plan.generate.items())}
    if base is not None:
        found["base"] = base.manifest
    return found


def _of_a_set(target: Generate) -> dict[str, Any]:
    """What of a synthetic set an approval covers: not how its work is divided and carried through."""
    carried = {"unit_rows", "batch_rows", "wall_h", "canary_units", "deadline_s", "tries", "memory_gb", "why"}
    since = {"seed", "options", "quality", "exact", "input_mb"}  # unknown to older approvals
    plain = target.model_dump(mode="json", exclude=carried, exclude_none=True)
    usual = Generate(unit_rows=1, bounds={"failed": 0.0}).model_dump(mode="json")
    return {key: value for key, value in plain.items() if key not in since or value != usual[key]}


_SHOWN_AS = {
    "metric": "claim.metric",
    "worthwhile": "claim.worthwhile",
    "success": "claim.success",
    "compare": "claim.compare",
    "select": "run.select",
    "thresholds": "qc.fail",
    "ceiling": "budget",
    "arms": "comparison",
    "base": "base.candidate",
}
"""Where the plan says what the consequential part calls otherwise."""


def ends_approval(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The fields of a plan that make of one consequential part another: each of them ends an approval."""
    found = []
    for field, _, _ in differences(old, new):
        first, dot, rest = field.removeprefix("contract.").partition(".")
        own = _SHOWN_AS.get(first, first) if not field.startswith("contract.") else first
        found.append(own + (dot + rest if not field.startswith("base") else ""))
    return found


def decision_digest(plan: Plan) -> Digest:
    """The decision that a plan is for, whatever its spaces and capitals."""
    return digest_of_decision(plan.decision)


def digest_of_decision(text: str) -> Digest:
    """The decision that is written as `text`."""
    return digest_of(" ".join(text.lower().split()))


# --- what this version does not do --------------------------------------------------------------------------


def not_yet(plan: Plan) -> list[str]:
    """What the plan asks for that this version cannot do, so that it is judged and locked, and does not launch."""
    run = plan.run
    asked = {
        "[data]: rows from anywhere but the recipe": plan.data,
        "[comparison]: arms that are trained side by side": plan.comparison,
        "[pools]: nodes with labels for the rows of a search": plan.search is not None
        and any(pool.nodes for pool in plan.pools.values()),
        'run.shard = "fsdp2": sharded parameters': run.shard != "ddp",
    }
    return [what for what, given in asked.items() if given]


def recorded(plan: Plan) -> list[str]:
    """What the plan asks for that is written down and acts from a later version; it stops no launch."""
    asked = {
        **{f"pools.{name}": pool for name, pool in sorted(plan.pools.items()) if name == "search"},
        "notify": plan.notify,
        "run.keep_checkpoints": plan.run.keep_checkpoints,
    }
    return [what for what, given in asked.items() if given is not None]


def require_supported(plan: Plan) -> None:
    """Let only a plan go on that this version can do whole: nothing is silently left out.

    Raises:
        PlanError: it asks for something that is not in this version.
    """
    if missing := not_yet(plan):
        raise PlanError(
            f"{plan.name} needs what this version does not do: {'; '.join(missing)}",
            field=missing[0].partition(":")[0],
            rule="a plan that this version can run whole; it can be checked, shown and locked as it is",
            remedy="take these out of the plan",
        )


# --- the lock -----------------------------------------------------------------------------------------------


class Lock(Versioned):
    """What is sealed when a plan is launched: all that was left unsaid, and all that follows from it."""

    name: Name
    plan_sha256: Digest
    """Digest of the bytes of the plan's file."""
    settings: Mapping[str, Any]
    """The plan with every default made visible."""
    contract: Digest
    code: Digest
    data: Digest
    rows: Mapping[Name, Count]
    """Rows of each role."""
    updates: Positive
    samples: Positive
    """Examples that the whole run trains on, counted each time."""
    epochs: float
    micro_batch: Positive
    effective_batch: Positive
    """micro-batch x accumulate x workers: the examples of one update."""
    checkpoints: Positive
    """Commits of the run, the one before the first update and the last one included."""
    evaluations: Positive
    curves: Positive
    gates: tuple[Name, ...]
    acts_later: tuple[str, ...]
    """Recorded; acts from a later version."""
    not_yet: tuple[str, ...] | None = None
    """What keeps this version from launching it."""
    shared: Digest | None = None
    """Digest of the shared file that some of its tables are from."""
    base: LockedBase | None = None
    """The weights that training starts from."""
    suite: Digest | None = None
    """What every checkpoint on the cadence of `[qc]` is asked; None without `[qc]`."""
    judged: Judged | None = None
    """What the review saw and came to; None before there was one."""

    @property
    def bare(self) -> Lock:
        """The lock without what the review saw: all that follows from the plan, the code and the data alone."""
        return self.model_copy(update={"judged": None})

    @property
    def digest(self) -> str:
        """The lock's identity: the digest of its canonical bytes, however it is laid out."""
        return sha256(self.to_bytes())

    def to_text(self) -> str:
        """The lock for people: the same JSON, one key a line."""
        return json.dumps(self.plain(), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def make_lock(
    plan: Plan,
    *,
    code: Digest,
    data: Digest,
    rows: Mapping[str, int],
    base: LockedBase | None = None,
    suite: Digest | None = None,
) -> Lock:
    """Compute the lock, as yet unjudged. The same inputs always give the same bytes.

    Raises:
        ValueError: `rows` has no training row.
    """
    run = plan.run
    if rows.get("train", 0) < 1:
        raise ValueError("a lock needs the number of training rows")
    samples = run.updates * run.batch
    return Lock(
        name=plan.name,
        plan_sha256=plan.sha256,
        settings=_settings(plan),
        contract=digest_of(contract(plan)),
        code=code,
        data=data,
        rows=dict(rows),
        updates=run.updates,
        samples=samples,
        epochs=samples / rows["train"],
        micro_batch=run.micro_batch,
        effective_batch=run.micro_batch * run.accumulate * run.workers,
        checkpoints=1 + _times(run.updates, run.checkpoint_every),
        evaluations=1 + _times(run.updates, run.evaluate_every),
        curves=_times(run.updates, run.curves.every),
        gates=GATES,
        acts_later=tuple(recorded(plan)),
        not_yet=tuple(not_yet(plan)) or None,
        shared=plan.shared.sha256 if plan.shared else None,
        base=base,
        suite=suite,
    )


def _times(updates: int, every: int) -> int:
    """How often something happens that happens at each multiple and at the end."""
    return -(-updates // every)


def _settings(plan: Plan) -> dict[str, Any]:
    settings = plan.plain()
    if plan.run.stopping is not None:
        settings["run"]["stop"]["mode"] = plan.run.stopping.mode
    return settings
