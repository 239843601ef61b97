"""What a contract is made of, what differs between what was frozen and what would be now, and what may be reused.

draft_of(plan)         what plan, code, teacher and inputs say, before any producer was asked
Probed                 what the producer itself says
make_contract          both, as one frozen record
require_same           one contract from the first unit to the last
reusable               units of an earlier contract that count as they are
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raykit.errors import GateError, PlanError
from raykit.ids import DIGEST, Digest, canonical
from raykit.plan import Plan, differences
from raykit.plan.tables import Generate
from raykit.records import CODE_OF, Column, GenerationContract, InputsManifest, Reuse
from raykit.shards.bounds import RULES, completed, require_kinds
from raykit.shards.spans import Numbers, numbers_of, shown, spans_of
from raykit.shards.units import units_of

REVISION = 1
"""Of how rows are asked for, keyed, checked and written: raised when the same contract would come to other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything of a contract that is known before a producer was asked. The names are those of the contract."""

    experiment: str
    name: str
    teacher: Digest
    recipe: str
    params: Mapping[str, Any]
    code: Digest
    decode: Mapping[str, Any]
    seed: int
    revision: int = REVISION
    rules: int | None = RULES
    dtype: str
    autocast: str
    deterministic: bool
    threads: int
    batch_rows: int
    inputs: Digest | None
    samples: int
    rows: int
    unit_rows: int
    bounds: Mapping[str, float]
    """As the plan has them: what holds unsaid depends on the columns."""
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the real producer says of itself."""

    columns: tuple[Column, ...]
    """Of the set, raykit's own first."""
    normalization: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


# --- making one ---------------------------------------------------------------------------------------------


def draft_of(
    plan: Plan,
    name: str,
    *,
    teacher: Digest,
    code: Digest,
    inputs: InputsManifest | None,
    rules: int | None = RULES,
) -> Draft:
    """The draft of one set of a plan.

    `teacher` is the digest of the manifest of its checkpoint, `code` that of the recipe's frozen code, and `inputs`
    what the plan's inputs were copied to. A set under way keeps the `rules` of its contract.

    Raises:
        PlanError: the plan has no such set, asks for more rows than its inputs give, or has inputs that were not
            copied.
    """
    at = f"generate.{name}"
    target = plan.generate.get(name)
    if target is None:
        known = ", ".join(sorted(plan.generate)) or "the plan generates nothing"
        raise PlanError(f"the plan has no set {name!r}", field=at, rule=known)
    if target.inputs is not None and inputs is None:
        raise PlanError("its inputs were not read", field=f"{at}.inputs", value=target.inputs)
    run = plan.run
    return Draft(
        experiment=plan.name,
        name=name,
        teacher=teacher,
        recipe=plan.recipe,
        params=dict(run.params),
        code=code,
        decode=dict(target.decode),
        seed=target.seed,
        rules=rules,
        dtype=run.dtype.params,
        autocast=run.dtype.autocast,
        deterministic=run.deterministic,
        threads=run.threads,
        batch_rows=min(target.batch_rows or target.unit_rows, target.unit_rows),
        inputs=None if inputs is None else inputs.digest,
        samples=target.samples,
        rows=_rows(target, inputs, f"{at}.rows"),
        unit_rows=target.unit_rows,
        bounds=dict(target.bounds),
        exact=target.exact,
    )


def _rows(target: Generate, inputs: InputsManifest | None, at: str) -> int:
    """The rows that are asked for: as the plan says, or all that the inputs give."""
    if inputs is None:
        if target.rows is None:
            raise PlanError("says neither how many rows nor from which inputs", field=at)
        return target.rows
    most = inputs.rows * target.samples
    if target.rows is not None and target.rows > most:
        raise PlanError(
            f"asks for {target.rows:,} rows of {inputs.rows:,} inputs with {target.samples:,} samples each",
            field=at,
            value=target.rows,
            rule=f"at most {most:,}; or none, which is all of them",
        )
    return target.rows or most


def make_contract(
    draft: Draft, probed: Probed, *, follows: Digest | None = None, reuses: Reuse | None = None
) -> GenerationContract:
    """The contract of a draft and of what the producer says. The same two always give the same bytes.

    Raises:
        GateError: the plan has a bound for a kind of row that no column of the producer tells.
    """
    require_kinds(draft.bounds, probed.columns, at=f"generate.{draft.name}.bounds")
    return GenerationContract(
        **{each.name: getattr(draft, each.name) for each in fields(draft) if each.name != "bounds"},
        bounds=_bounds(draft, probed.columns),
        columns=probed.columns,
        normalization=dict(probed.normalization),
        facts=dict(probed.facts) if draft.exact else {},
        follows=follows,
        reuses=reuses,
    )


def _bounds(found: GenerationContract | Draft, columns: Sequence[Column]) -> dict[str, float]:
    """Every bound that holds for rows with these columns."""
    return completed(found.bounds, columns, rules=found.rules, from_inputs=found.inputs is not None)


# --- what differs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is not as it was frozen. None stands for what is not there."""

    field: str
    """As the plan has it: `generate.digits.decode.temperature`; or `code`, `teacher`, `facts.torch`."""
    was: Any
    now: Any

    @property
    def words(self) -> str:
        """`generate.digits.decode.temperature was 1.0, is 0.8`."""
        return f"{self.field} was {_shown(self.was)}, is {_shown(self.now)}"


def changes(contract: GenerationContract, draft: Draft, probed: Probed | None = None) -> tuple[Change, ...]:
    """What differs between what was frozen and what would be frozen now.

    Without `probed`, what only the producer can say is not compared.
    """
    columns = contract.columns if probed is None else probed.columns
    was, now = _in_words_of_plan(contract, columns), _in_words_of_plan(draft, columns)
    if probed is not None:
        facts = _comparable(contract, probed) if draft.exact and contract.exact else contract.facts
        was |= _of_producer(contract.columns, contract.normalization, contract.facts)
        now |= _of_producer(probed.columns, probed.normalization, facts)
    found = differences(_without_empty(was), _without_empty(now))
    return tuple(Change(field=name, was=a, now=b) for name, a, b in found)


def _comparable(contract: GenerationContract, probed: Probed) -> dict[str, str]:
    """What is found now, but for code from outside that an older contract does not bind."""
    known = contract.facts
    return {k: v for k, v in probed.facts.items() if k in known or not k.startswith(CODE_OF)}


def _without_empty(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An empty table differs from one with keys by those keys alone."""
    return {name: value for name, value in settings.items() if value != {}}


def _in_words_of_plan(found: GenerationContract | Draft, columns: Sequence[Column]) -> dict[str, Any]:
    at = f"generate.{found.name}"
    return {
        "name": found.experiment,
        "teacher": found.teacher,
        "code": found.code,
        "revision": found.revision,
        "rules of bad rows": found.rules,
        "recipe": found.recipe,
        "run.params": found.params,
        "run.dtype.params": found.dtype,
        "run.dtype.autocast": found.autocast,
        "run.deterministic": found.deterministic,
        "run.threads": found.threads,
        **{
            f"{at}.{name}": getattr(found, name)
            for name in ("inputs", "rows", "samples", "unit_rows", "batch_rows", "seed", "decode")
        },
        f"{at}.bounds": _bounds(found, columns),
        f"{at}.exact": found.exact,
    }


def _of_producer(
    columns: Iterable[Column], normalization: Mapping[str, Any], facts: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "columns": [f"{column.name}: {column.type}" for column in columns],
        "normalization": normalization,
        "facts": facts,
    }


def _shown(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return value[:12] if DIGEST.fullmatch(value) else repr(value)
    return canonical(value).decode()


def require_same(
    contract: GenerationContract, draft: Draft, probed: Probed | None = None, *, files: str = ""
) -> None:
    """Let a set only go on under the contract that it was begun with. `files` says which files of the code differ.

    Raises:
        GateError: something differs; the message names each field, with what was frozen and what is now.
    """
    found = changes(contract, draft, probed)
    if not found:
        return
    only = found[0] if len(found) == 1 else None
    raise GateError(
        f"{contract.experiment}/{contract.name} was frozen otherwise: "
        + "; ".join(
            f"{change.words} ({files})" if change.field == "code" and files else change.words
            for change in found
        ),
        field=", ".join(change.field for change in found),
        value=None if only is None else only.now,
        rule="one contract from the first unit to the last",
        remedy='go back to what was frozen; or, deliberately: raykit generate PLAN --changed "why" --by NAME '
        "(with --reuse, units that are published count as they are)",
    )


# --- what may be reused ---------------------------------------------------------------------------------------


def reusable(old: GenerationContract, new: GenerationContract, published: Iterable[int]) -> Reuse | None:
    """All units of `old` that `new` may count as they are; None if there is none.

    `published` are the units of `old` that have a receipt.

    Raises:
        GateError: rows of the two are not the same kind of thing; the field says why.
    """
    _require_alike(old, new)
    numbers = numbers_of(published)
    numbers = numbers[_same_range(old, new, numbers)]
    return Reuse(contract=old.digest, units=spans_of(numbers)) if numbers.size else None


def require_reusable(
    old: GenerationContract, new: GenerationContract, published: Iterable[int], wanted: Iterable[int]
) -> Reuse:
    """Exactly the wanted units of `old`, which `new` may count as they are.

    Raises:
        GateError: rows of the two are not the same kind of thing, one of the units has no receipt, or other rows; or
            none is wanted.
    """
    _require_alike(old, new)
    numbers = numbers_of(wanted)
    if not numbers.size:
        raise GateError("no unit is named that could be reused", field="reuse", rule="at least one unit")
    missing = np.setdiff1d(numbers, numbers_of(published))
    if missing.size:
        raise GateError(
            f"{shown(missing)} of contract {old.digest[:12]} came to no receipt",
            field="reuse",
            rule="published units",
        )
    other = numbers[~_same_range(old, new, numbers)]
    if other.size:
        raise GateError(
            f"{shown(other)} would have other rows: {old.rows:,} rows were asked for, and now {new.rows:,}",
            field=f"generate.{new.name}.rows",
            value=new.rows,
            rule="units whose rows are the same in both",
        )
    return Reuse(contract=old.digest, units=spans_of(numbers))


def _require_alike(old: GenerationContract, new: GenerationContract) -> None:
    at = f"generate.{new.name}"
    for name, where in (
        ("experiment", "name"),
        ("name", at),
        ("inputs", f"{at}.inputs"),
        ("samples", f"{at}.samples"),
        ("unit_rows", f"{at}.unit_rows"),
        ("columns", "columns"),
    ):
        was, now = old.plain().get(name), new.plain().get(name)
        if was != now:
            raise GateError(
                f"no unit of contract {old.digest[:12]} can be reused: "
                + Change(field=where, was=was, now=now).words,
                field=where,
                value=now,
                rule="the same inputs, samples, unit_rows and columns",
            )


def _same_range(old: GenerationContract, new: GenerationContract, numbers: Numbers) -> NDArray[np.bool_]:
    """For each unit whether both contracts have it, with the same rows."""
    there = (numbers >= 0) & (numbers < min(units_of(old), units_of(new)))
    ends = np.minimum((numbers + 1) * old.unit_rows, old.rows)
    return np.asarray(there & (ends == np.minimum((numbers + 1) * new.unit_rows, new.rows)))
