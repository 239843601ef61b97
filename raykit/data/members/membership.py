"""A stored split as its readers use it, and its comparison with the data of today.

Members are known by id. A dataset that lists its rows in another order still finds them; one that lost a
row, gained one or changed one is told apart member by member, and a resume can then refuse by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raykit.data.members.source import Source
from raykit.data.members.split import Grouping, Policy, Role, divide, grouped
from raykit.errors import GateError, NotFoundError, PlanError
from raykit.ids import Digest
from raykit.records import Count, Positive, Record, Versioned

MAX_EXAMPLES = 5
_USED_TO: dict[Role, str] = {
    "development": "select",
    "calibration": "fit temperatures and thresholds, never to select",
    "report_only": "report on frozen choices, never to select",
    "benchmark": "score by the benchmark's registered rule",
    "sealed": "test once, after all choices are frozen",
}
_TOGETHER: dict[Grouping, str] = {
    "content": "rows of equal content",
    "group": "the dataset's groups",
    "none": "nothing, each row stands alone",
}
_LIMITS = (
    "This counts equal items and does not show that the roles are independent: near duplicates, pretraining "
    "data and unnamed identities were not looked at, and strata do not remove dependence."
)


class RoleRecord(Record):
    """The members of one role, and the file that lists them."""

    rows: Positive
    groups: Positive
    contents: Positive
    """How many different contents; fewer than `rows` when items repeat."""
    strata: dict[str, Positive]
    members: Digest
    """sha256 of the canonical JSON [[id, group, stratum, sha256], ...] in the order of ids: the same whatever
    library wrote the file."""
    sha256: Digest
    size_bytes: Positive


class Overlap(Record):
    """What two roles have in common, counted from the members themselves."""

    roles: tuple[Role, Role]
    contents: Count
    rows: tuple[Count, Count]
    """Rows of each role whose exact content is also in the other."""
    groups: Literal[0] = 0
    """Groups in both: verified to be none."""

    def __str__(self) -> str:
        (first, second), (first_rows, second_rows) = self.roles, self.rows
        return f"{first} {first_rows:,} rows and {second} {second_rows:,} rows"


class SplitManifest(Versioned):
    """Who is in which split. Its digest is the split's name; it is written last, and never replaced."""

    policy: Policy
    rows: Positive
    roles: dict[Role, RoleRecord]
    overlaps: tuple[Overlap, ...]
    """Every pair of roles, also those with nothing in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A verified split: its manifest, and per role the columns id, group, stratum and sha256 by id."""

    digest: str
    manifest: SplitManifest
    tables: Mapping[Role, pa.Table]

    def rows(self, role: Role) -> int:
        """How many members `role` has, exactly.

        Raises:
            NotFoundError: there is no split of that role.
        """
        return self._record(role).rows

    def indices(self, role: Role, source: Source) -> NDArray[np.int64]:
        """Where each member of `role` is in `source`, in the order of ids.

        Raises:
            NotFoundError: there is no split of that role.
            GateError: a member is not in `source` any more; `compare` says what else differs.
        """
        self._record(role)
        ids = self.tables[role]["id"]
        at = pc.index_in(ids, value_set=source.table["id"].combine_chunks())
        if at.null_count:
            missing = ids.filter(pc.is_null(at)).to_pylist()
            raise GateError(
                f"{len(missing):,} of {len(ids):,} members of {role} are not in the data: {_named(missing)}",
                field="dataset.ids",
                value=missing[:MAX_EXAMPLES],
                rule=f"the members of split {self.digest[:12]}",
                remedy="bring the rows back, or start a run of its own with a split of its own",
            )
        indices: NDArray[np.int64] = source.table["index"].take(at).to_numpy()
        return indices

    def describe(
        self,
        role: Role,
        *,
        rows: str = "rows",
        gradients: str = "training gradients",
        selects: str | None = None,
    ) -> str:
        """What `role` is, exactly: how many of what, held out from what, used for what.

        Raises:
            NotFoundError: there is no split of that role.
            PlanError: the words call it validation, or say that a role other than development selects.
        """
        _refuse_validation(rows, gradients, selects or "")
        count = f"{self.rows(role):,} {rows}"
        if selects is not None and role != "development":
            raise PlanError(
                f"{role} never selects",
                field=f"splits.{role}",
                value=selects,
                rule="development selects",
                remedy=f"select {selects} on the development split",
            )
        if role == "train":
            return f"{count} used for {gradients} only"
        used_to = _USED_TO[role] if selects is None else f"select {selects}"
        return f"{count} held out from {gradients} and used to {used_to}"

    def overlap(self) -> str:
        """What was counted between the roles, and what that does not show."""
        found = "; ".join(str(shared) for shared in self.manifest.overlaps if shared.contents) or "none"
        together = _TOGETHER[self.manifest.policy.group]
        return (
            f"Exact content in two roles: {found}. Groups in two roles: none; kept together: {together}. "
            f"Compared: {self.manifest.rows:,} rows. {_LIMITS}"
        )

    def _record(self, role: Role) -> RoleRecord:
        if role not in self.manifest.roles:
            raise NotFoundError(
                f"this split has no {role}", value=role, rule=f"one of {', '.join(self.manifest.roles)}"
            )
        return self.manifest.roles[role]


def _refuse_validation(*words: str) -> None:
    for text in words:
        if "validation" in text.lower():
            raise PlanError(
                f"{text!r} says validation, which elsewhere both selects and reports",
                value=text,
                rule="say what the rows are and what they are used for",
                remedy="name the rows that are held out, from what, and what they select",
            )


def _named(ids: list[str]) -> str:
    return ", ".join(repr(name) for name in ids[:MAX_EXAMPLES]) + (", ..." if len(ids) > MAX_EXAMPLES else "")


class Change(NamedTuple):
    """One member that is not as it was stored."""

    id: str
    what: Literal["missing", "added", "content", "group", "stratum", "role"]
    was: str
    now: str

    def __str__(self) -> str:
        if self.what in ("missing", "added"):
            return f"{self.id!r} is {self.what}"
        return f"{self.id!r} has {self.what} {_short(self.now)}, stored {_short(self.was)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How the data of today differs from the stored members; `str()` is the sentence of a refusal."""

    stored_rows: int
    current_rows: int
    counts: Mapping[str, int]
    """Members per kind of change: missing, added, content, group, stratum, role."""
    examples: tuple[Change, ...]

    def __str__(self) -> str:
        rows = f"{self.stored_rows:,} members stored, {self.current_rows:,} rows now"
        counts = ", ".join(f"{count:,} {_COUNTED[what]}" for what, count in self.counts.items())
        return f"{rows}: {counts}; first: {'; '.join(map(str, self.examples))}"


_COUNTED = {
    "missing": "missing",
    "added": "added",
    "content": "with other content",
    "group": "in another group",
    "stratum": "in another stratum",
    "role": "that this version of the split code would give another role",
}


def compare(stored: Membership, current: Source) -> Difference | None:
    """What is different, or None when the data of today is, member by member, what was split.

    Equal data is also divided again: a split code that would give a member another role is a difference.

    Raises:
        PlanError: the stored policy cannot be applied to the data of today.
    """
    was = {member.id: member for table in stored.tables.values() for member in _members(table)}
    now = {member.id: member for member in _members(grouped(current, stored.manifest.policy.group))}
    changes = list(_changes(was, now)) or list(_moved(stored, current))
    if not changes:
        return None
    return Difference(
        stored_rows=len(was),
        current_rows=len(now),
        counts=dict(Counter(change.what for change in changes)),
        examples=tuple(changes[:MAX_EXAMPLES]),
    )


class _Member(NamedTuple):
    id: str
    group: str
    stratum: str
    sha256: str


def _members(table: pa.Table) -> Iterator[_Member]:
    columns = (table[name].to_pylist() for name in _Member._fields)
    return map(_Member._make, zip(*columns, strict=True))


def _changes(was: Mapping[str, _Member], now: Mapping[str, _Member]) -> Iterator[Change]:
    for name in sorted(was.keys() | now.keys()):
        old, new = was.get(name), now.get(name)
        if new is None:
            yield Change(name, "missing", "", "")
        elif old is None:
            yield Change(name, "added", "", "")
        elif old.sha256 != new.sha256:  # its group may follow from its content: one change, not two
            yield Change(name, "content", old.sha256, new.sha256)
        elif old.group != new.group:
            yield Change(name, "group", old.group, new.group)
        elif old.stratum != new.stratum:
            yield Change(name, "stratum", old.stratum, new.stratum)


def _moved(stored: Membership, current: Source) -> Iterator[Change]:
    again = divide(current, stored.manifest.policy)
    role_of = {name: role for role, table in again.items() for name in table["id"].to_pylist()}
    for role, table in stored.tables.items():
        for name in table["id"].to_pylist():
            if role_of[name] != role:
                yield Change(name, "role", role, role_of[name])


def _short(text: str) -> str:
    return text if len(text) < 32 else f"{text[:12]}.."
