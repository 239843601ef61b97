"""Dividing a source among roles, by whole groups and nothing but (seed, group).

The same members come out in whatever order the dataset lists its rows. Strata are filled in proportion, one
after the other, and what whole groups leave over in one is made up for in the next; with one stratum every
role ends within one group of its fraction. Stratifying balances what is counted: it does not make groups
independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from raykit.data import randomness
from raykit.data.members.source import Source
from raykit.errors import PlanError
from raykit.records import Record

Role = Literal["train", "development", "calibration", "report_only", "benchmark", "sealed"]
"""What a split may be used for. It has exactly one role, for good."""

ROLES: tuple[Role, ...] = get_args(Role)

Grouping = Literal["content", "group", "none"]
"""Which rows stay together: those of equal content, those of one of the dataset's groups, or none."""

GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

_TWO_SETS = "development = ... (selects), or report_only = ... (never selects)"
_REMEDIES = {
    "validation": _TWO_SETS,
    "valid": _TWO_SETS,
    "val": _TWO_SETS,
    "dev": "development = ... (selects)",
    "test": "sealed = ... (opens once, after all choices are frozen)",
}


class Policy(Record):
    """How a source was divided. `policy()` makes one from what a plan says."""

    fractions: dict[Role, Annotated[float, Field(gt=0, le=1)]]
    group: Grouping
    seed: int


def check_role(name: str) -> Role:
    """`name`, if it is a role.

    Raises:
        PlanError: it is not; "validation" is refused because elsewhere it both selects and reports.
    """
    for role in ROLES:
        if name == role:
            return role
    why = ""
    if _REMEDIES.get(name) is _TWO_SETS:
        why = ': elsewhere "validation" both selects and reports, and those must be two sets'
    raise PlanError(
        f"{name} is not a role here{why}",
        field=f"splits.{name}",
        value=name,
        rule=f"one of {', '.join(ROLES)}",
        remedy=_REMEDIES.get(name, "name the split by what it may decide"),
    )


def policy(fractions: Mapping[str, float], group: str | None, seed: int) -> Policy:
    """The policy that a plan's `[splits]` states.

    Raises:
        PlanError: a name that is no role, fractions that do not sum to 1, or a grouping that is not stated.
    """
    for name, fraction in fractions.items():
        check_role(name)
        if not 0 < fraction <= 1:
            raise PlanError(
                f"the fraction of {name} is {fraction}",
                field=f"splits.{name}",
                value=fraction,
                rule="more than 0 and at most 1",
                remedy="leave out a split that is to have no rows",
            )
    total = math.fsum(fractions.values())
    if abs(total - 1) > 1e-9:
        raise PlanError(
            f"the fractions sum to {total:.10g}",
            field="splits",
            value=total,
            rule="1, so that every row has exactly one role",
            remedy="name every part of the data, also the part that is only kept",
        )
    return Policy(
        fractions={role: float(fractions[role]) for role in ROLES if role in fractions},
        group=_check_grouping(group),
        seed=seed,
    )


def _check_grouping(group: str | None) -> Grouping:
    for grouping in GROUPINGS:
        if group == grouping:
            return grouping
    raise PlanError(
        "the rows that must stay together are not stated" if group is None else f"group is {group!r}",
        field="splits.group",
        value=group,
        rule='"content" (equal items), "group" (the dataset\'s own groups) or "none" (each row by itself)',
        remedy='group = "content" keeps exact copies of an item on one side',
    )


def split(
    source: Source, fractions: Mapping[str, float], group: str | None, seed: int
) -> dict[Role, pa.Table]:
    """The members of each role, with the columns of the source, in the order of their ids.

    Raises:
        PlanError: the policy is refused, the dataset has no groups to keep together, or a role is empty.
    """
    return divide(source, policy(fractions, group, seed))


def divide(source: Source, chosen: Policy) -> dict[Role, pa.Table]:
    """`split` for a policy that is already one.

    Raises:
        PlanError: the dataset has no groups to keep together, or a role would be empty.
    """
    rows = grouped(source, chosen.group)
    groups = _groups(rows)
    role_of = _assigned(groups, chosen)
    _refuse_empty(chosen, groups, role_of)
    return {role: _rows_of(role, rows, role_of) for role in ROLES if role in chosen.fractions}


def grouped(source: Source, group: Grouping) -> pa.Table:
    """The rows of `source` with the group that the policy gives them, in the order of their ids.

    Raises:
        PlanError: the policy goes by the dataset's groups, and it has none.
    """
    table = source.table.sort_by("id")
    column = table["group"]
    if group == "content":
        column = table["sha256"]
    elif group == "none":
        column = table["id"]
    elif column.null_count:
        raise PlanError(
            'the policy is group = "group", but the dataset names no groups',
            field="splits.group",
            value=group,
            rule="a group for every row",
            remedy='give the dataset a `groups` column, or say group = "content" or group = "none"',
        )
    return table.set_column(table.schema.get_field_index("group"), "group", column)


class _Group(NamedTuple):
    name: str
    stratum: str
    rows: int


def _groups(rows: pa.Table) -> list[_Group]:
    """Each group with its size; one that spans strata counts in the one that holds most of it."""
    counts = rows.group_by(["group", "stratum"], use_threads=False).aggregate([([], "count_all")])
    parts: dict[str, list[tuple[int, str]]] = {}
    for row in counts.to_pylist():
        parts.setdefault(row["group"], []).append((-row["count_all"], row["stratum"]))
    return [_Group(name, min(part)[1], -sum(count for count, _ in part)) for name, part in parts.items()]


def _assigned(groups: Iterable[_Group], chosen: Policy) -> dict[str, Role]:
    strata: dict[str, list[_Group]] = {}
    for group in groups:
        strata.setdefault(group.stratum, []).append(group)
    role_of: dict[str, Role] = {}
    # In the order of ROLES, not of the policy: ties go to the first, whatever order a plan names them in.
    need = {role: 0.0 for role in ROLES if role in chosen.fractions}
    for stratum in sorted(strata, key=lambda name: _place(chosen.seed, "stratum", name)):
        rows = sum(group.rows for group in strata[stratum])
        for role in need:
            need[role] += chosen.fractions[role] * rows
        for group in sorted(strata[stratum], key=lambda group: _place(chosen.seed, "group", group.name)):
            neediest = max(need, key=lambda role: need[role])
            role_of[group.name] = neediest
            need[neediest] -= group.rows
    return role_of


def _place(seed: int, kind: str, name: str) -> tuple[bytes, str]:
    return randomness.material(16, "split", seed, kind, name), name


def _refuse_empty(chosen: Policy, groups: list[_Group], role_of: Mapping[str, Role]) -> None:
    filled = set(role_of.values())
    for role in ROLES:
        if role not in chosen.fractions or role in filled:
            continue
        rows, largest = sum(group.rows for group in groups), max(group.rows for group in groups)
        raise PlanError(
            f"{role} would be empty: {chosen.fractions[role]} of {rows:,} rows, in {len(groups):,} groups "
            f"of up to {largest:,} rows",
            field=f"splits.{role}",
            value=chosen.fractions[role],
            rule="a fraction that whole groups can fill",
            remedy="give the role more, or leave it out",
        )


def _rows_of(role: Role, rows: pa.Table, role_of: Mapping[str, Role]) -> pa.Table:
    mine = pa.array([group for group, of in role_of.items() if of == role], pa.string())
    return rows.filter(pc.is_in(rows["group"], value_set=mine)).combine_chunks()
