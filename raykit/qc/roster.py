"""The roster: which members of a split every checkpoint is scored on.

Who is drawn depends on the members alone, through the digest of each one's id and content: the same whatever the order
of the data, the seed of training, or the results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from raykit.errors import PlanError, some_of
from raykit.ids import Digest, digest_of
from raykit.plan.tables import Qc
from raykit.records import Roster, RosterUnit

MAX_NAMED = 8
"""How many strata a refusal names."""


def draw(qc: Qc, members: Iterable[RosterUnit], *, data: Digest) -> Roster:
    """The roster of `[qc]` from the members of its split; `data` is the digest of all splits.

    Raises:
        PlanError: the split has no members, or a stratum has fewer than its quota.
    """
    by_stratum: dict[str, list[RosterUnit]] = defaultdict(list)
    for member in members:
        by_stratum[member.stratum].append(member)
    quotas = _quotas(qc, {name: len(found) for name, found in by_stratum.items()})
    units = [unit for name in sorted(quotas) for unit in _drawn(by_stratum[name], quotas[name])]
    first = {unit.stratum: unit.id for unit in reversed(units)}
    return Roster(
        role=qc.roster.from_,
        data=data,
        stratum=qc.roster.stratum,
        quotas=dict(sorted(quotas.items())),
        left_out=tuple(sorted(by_stratum.keys() - quotas.keys())),
        units=tuple(units),
        shown=tuple(first[name] for name in sorted(quotas)),
    )


def _drawn(members: Sequence[RosterUnit], quota: int) -> list[RosterUnit]:
    chosen = sorted(members, key=lambda unit: digest_of(["roster", unit.id, unit.sha256]))[:quota]
    return sorted(chosen, key=lambda unit: unit.id)


def _quotas(qc: Qc, there: Mapping[str, int]) -> dict[str, int]:
    """By stratum: how many units, each of them there."""
    roster = qc.roster
    if not there:
        raise PlanError(
            f"the roster is empty: the {roster.from_} split has no members",
            field="qc.roster.from",
            value=roster.from_,
            rule="a split with members",
        )
    quotas = dict.fromkeys(there, roster.units) if isinstance(roster.units, int) else dict(roster.units)
    without = sorted(name for name in quotas if name not in there)
    if without:
        raise PlanError(
            f"stratum {some_of(without, MAX_NAMED)} of {roster.stratum} has no members in the {roster.from_} split",
            field="qc.roster.units",
            value=some_of(without, MAX_NAMED),
            rule=f"one of {some_of(sorted(there), MAX_NAMED)}",
            remedy="take it out of qc.roster.units, or draw the roster from a split that has it",
        )
    short = {name: there[name] for name, quota in sorted(quotas.items()) if there[name] < quota}
    if short:
        found = ", ".join(f"{name} has {count:,}" for name, count in list(short.items())[:MAX_NAMED])
        raise PlanError(
            f"{len(short)} of {len(quotas)} strata of {roster.stratum} have fewer members in the {roster.from_} "
            f"split than the roster wants: {found}",
            field="qc.roster.units",
            value=roster.units if isinstance(roster.units, int) else dict(roster.units),
            rule=f"at most {min(there[name] for name in quotas)} for each, or a table of what each has",
            remedy=f"units = {{ {', '.join(f'{_key(n)} = {min(q, there[n])}' for n, q in sorted(quotas.items()))} }}",
        )
    return quotas


def require_strata(qc: Qc, roles: Mapping[str, Counter[str]]) -> None:
    """Refuse a roster that says nothing of a stratum because its split has none of it.

    `roles` has, by split, how many members each stratum has.

    Raises:
        PlanError: a stratum of the training split has no members in the roster's split, and no quota leaves it out.
    """
    if not isinstance(qc.roster.units, int):
        return  # what it names is what was wanted
    lost = sorted(roles.get("train", Counter()).keys() - roles.get(qc.roster.from_, Counter()).keys())
    if lost:
        raise PlanError(
            f"stratum {some_of(lost, MAX_NAMED)} of {qc.roster.stratum} is trained on, and has no members in the "
            f"{qc.roster.from_} split",
            field="qc.roster.from",
            value=qc.roster.from_,
            rule="members of every stratum that is trained on",
            remedy="a larger share for that split, or a table qc.roster.units that names the strata you want",
        )


def _key(name: str) -> str:
    return f'"{name}"'
