"""Bad rows: which kinds there are, how many there were, and whether that is more than a contract allows.

A bound is the greatest share that the plan accepts. One unit is a small sample: it breaks a bound only if its count
would hardly ever come up were the true share equal to the bound, so that no unit of a good set fails by chance. All
canary units together are judged more strictly, and the whole set as it is: its share is above the bound, or it is not.

    duplicates                     equal to an earlier row         of the rows that were produced
    empty                          a blank text, an empty list     of the rows that were produced
    nulls                          a null, at whatever depth       of the rows that were produced
    truncated, other flags         as their columns say            of the rows that were produced
    failed, nonfinite, filtered    not in the file                 of the rows that were requested

A kind of damage that the plan does not speak of has a bound all the same (`UNSAID`). `RULES` counts the versions of all
this: a contract holds its own, and one that was frozen before there were any goes on without nulls, blanks and bounds
that nobody said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from raykit.errors import GateError
from raykit.records import Column, GenerationContract, Rows, SetFinding

RULES = 2
"""Of what counts as a bad row, and of the bounds below. Contracts that say none are of the first rules."""

UNSAID: Mapping[str, float] = {
    "nulls": 0.0,
    "nonfinite": 0.01,
    "failed": 0.01,
    "empty": 0.01,
    "truncated": 0.05,
    "duplicates": 0.5,
}
"""What holds where a plan says nothing else of a kind. What a recipe's own filter puts aside is no damage. Rows made
from inputs may be equal as often as answers are: a label is one of few."""

UNIT_LEVEL = 1e-6
"""A unit breaks a bound if its count had a smaller probability than this at a share equal to the bound. Of a million
good units one is tried again for nothing."""

CANARY_LEVEL = 0.01
"""The same for all canary units together: they are judged once."""

NOT_IN_FILE = frozenset({"failed", "nonfinite", "filtered"})
"""Kinds whose rows are not in the file: their share is of the rows that were requested."""

OF_CONTENT = frozenset({"duplicates", "empty", "nulls"})
"""Kinds that are seen in the rows themselves. Any other kind is a column of flags."""

OWN_COLUMNS = frozenset({"row", "id", "sample"})
"""Columns that raykit adds."""

NOTHING = "nothing-produced"
"""The finding of a canary that came to no row at all."""

VARIABLE = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
LISTS = ("list<", "large_list<", "list_view<", "large_list_view<")

TINY = 1e-18
"""Terms of a sum that are smaller than this share of it change nothing."""


# --- chance -------------------------------------------------------------------------------------------------


def tail(found: int, of: int, share: float) -> float:
    """The probability that at least `found` of `of` independent rows are bad if each is with probability `share`.

    Exact up to rounding: logarithms of the largest term, and the sum of the others relative to it.

    Raises:
        ValueError: more were found than there are, or `share` is no probability.
    """
    if not 0 <= found <= of or not 0 <= share <= 1:
        raise ValueError(f"{found} of {of} with a share of {share}")
    if found == 0 or share == 1:
        return 1.0
    if share == 0:
        return 0.0
    odds = share / (1 - share)
    if found > of * share:
        return min(1.0, _sum(found, of, odds, share, up=True))
    return max(0.0, 1 - _sum(found - 1, of, odds, share, up=False))


def _sum(start: int, of: int, odds: float, share: float, *, up: bool) -> float:
    """The probability of `start` and of everything on its far side of the mean, where terms only shrink."""
    total, term, k = 1.0, 1.0, start
    while term > total * TINY and (k < of if up else k > 0):
        term *= (of - k) / (k + 1) * odds if up else k / (of - k + 1) / odds
        total += term
        k += 1 if up else -1
    return math.exp(_log_probability(start, of, share)) * total


def _log_probability(found: int, of: int, share: float) -> float:
    ways = math.lgamma(of + 1) - math.lgamma(found + 1) - math.lgamma(of - found + 1)
    return ways + found * math.log(share) + (of - found) * math.log1p(-share)


def broken(found: int, of: int, bound: float, level: float) -> bool:
    """Whether so many bad rows say that the true share is above the bound. One row breaks a bound of 0.

    Raises:
        ValueError: more were found than there are, or `bound` is no share.
    """
    return tail(found, of, bound) < level


# --- what is allowed ----------------------------------------------------------------------------------------


def completed(
    said: Mapping[str, float], columns: Sequence[Column], *, rules: int | None, from_inputs: bool
) -> dict[str, float]:
    """The bounds that a plan says, with one for every other kind of damage that such rows can have.

    Doing it again changes nothing. Under the first rules nothing holds unsaid.
    """
    if rules is None:
        return dict(said)
    found = {kind: most for kind, most in UNSAID.items() if _can_be(kind, columns, from_inputs)} | dict(said)
    if "failed" not in said:  # what is allowed not to be finite is allowed to fail
        found["failed"] = max(found["failed"], found["nonfinite"])
    return found


def _can_be(kind: str, columns: Sequence[Column], from_inputs: bool) -> bool:
    theirs = [column for column in columns if column.name not in OWN_COLUMNS]
    match kind:
        case "empty":
            return any(_may_be_empty(column.type) for column in theirs)
        case "truncated":
            return Column(name=kind, type="bool") in theirs
        case "duplicates":
            return not from_inputs
    return True


def flags_of(bounds: Mapping[str, float]) -> frozenset[str]:
    """The columns whose values say that a row is bad, where rows have them."""
    return (frozenset(bounds) | frozenset(UNSAID)) - NOT_IN_FILE - OF_CONTENT


# --- how many -----------------------------------------------------------------------------------------------


def found_in(kind: str, rows: Rows, failed: Mapping[str, int], counts: Mapping[str, int]) -> tuple[int, int]:
    """How many rows of a kind there were, and of how many that could be: of a unit, or of many together.

    Kinds that the rows' own accounts tell are taken from there; of any other kind that is not in `counts`, none.
    """
    match kind:
        case "failed":
            return rows.failed, rows.requested
        case "nonfinite":
            return failed.get("nonfinite", 0), rows.requested
        case "filtered":
            return rows.filtered, rows.requested
        case _:
            return counts.get(kind, 0), rows.produced


def require_kinds(bounds: Mapping[str, float], columns: Sequence[Column], *, at: str) -> None:
    """Let only bounds pass that the rows can break: a kind that no column tells would always be kept.

    `at` is where they stand in the plan.

    Raises:
        GateError: no column says which rows are of that kind.
    """
    theirs = [column for column in columns if column.name not in OWN_COLUMNS]
    flags = sorted(column.name for column in theirs if column.type == "bool")
    for kind in bounds:
        if kind == "empty" and not any(_may_be_empty(column.type) for column in theirs):
            problem, rule = "no column can be empty", "a column of text, bytes or lists"
        elif kind not in NOT_IN_FILE | OF_CONTENT and kind not in flags:
            problem = f"the recipe gives no column of flags named {kind}"
            known = ", ".join(sorted(NOT_IN_FILE | OF_CONTENT))
            rule = f"{known}, or a boolean column of the recipe ({', '.join(flags) or 'there is none'})"
        else:
            continue
        raise GateError(problem, field=f"{at}.{kind}", value=bounds[kind], rule=rule)


def _may_be_empty(type_: str) -> bool:
    if type_.startswith("struct<"):  # one of its fields may
        return any(f": {each}" in type_ for each in (*VARIABLE, *LISTS))
    return type_ in VARIABLE or type_.startswith(LISTS)


# --- too many -----------------------------------------------------------------------------------------------


def require_unit(
    bounds: Mapping[str, float], rows: Rows, failed: Mapping[str, int], counts: Mapping[str, int]
) -> None:
    """Let only a unit pass whose bad rows may still be chance.

    Raises:
        GateError: more of its rows are bad than the contract allows; the field is `bounds.KIND`.
    """
    worst = next(iter(_judged(bounds, rows, failed, counts, UNIT_LEVEL)), None)
    if worst is not None:
        raise GateError(
            words(worst),
            field=f"bounds.{worst.kind}",
            value=worst.found,
            rule=f"a share of at most {worst.bound:g}; chance explains this with less than {UNIT_LEVEL:g}",
        )


def judge_canary(
    contract: GenerationContract,
    rows: Rows,
    failed: Mapping[str, int],
    counts: Mapping[str, int],
) -> tuple[SetFinding, ...]:
    """Which bounds the canary units, taken together, do not keep; that they came to no row at all is one, too."""
    found = tuple(_judged(contract.bounds, rows, failed, counts, CANARY_LEVEL))
    if rows.produced or not rows.requested:
        return found
    nothing = SetFinding(kind=NOTHING, found=rows.requested, of=rows.requested, bound=0.0)
    return (nothing, *found)


def _judged(
    bounds: Mapping[str, float],
    rows: Rows,
    failed: Mapping[str, int],
    counts: Mapping[str, int],
    level: float,
) -> Iterable[SetFinding]:
    for kind, bound in sorted(bounds.items()):
        found, of = found_in(kind, rows, failed, counts)
        if broken(found, of, bound, level):
            yield SetFinding(kind=kind, found=found, of=of, bound=bound)


def findings_of(
    bounds: Mapping[str, float], rows: Rows, failed: Mapping[str, int], counts: Mapping[str, int]
) -> tuple[SetFinding, ...]:
    """Which bounds a whole set does not keep: its share is above the bound."""
    each = {kind: found_in(kind, rows, failed, counts) for kind in sorted(bounds)}
    return tuple(
        SetFinding(kind=kind, found=found, of=of, bound=bounds[kind])
        for kind, (found, of) in each.items()
        if found > bounds[kind] * of
    )


WAY_ON = (
    "what is out of bounds stays so under this contract: another one has wider bounds, or a mended recipe "
    "(raykit generate PLAN --changed WHY --by NAME)"
)
"""What a person can do: letting the same contract go on would come to the same rows."""


def words(finding: SetFinding) -> str:
    """`31 of 1,000 rows are duplicates (3.1 %), and 1 % may be`."""
    if finding.kind == NOTHING:
        return f"none of {finding.of:,} rows was produced"
    share = f"{100 * finding.found / finding.of:.3g} %" if finding.of else "none"
    are, may = ("hold", "may") if finding.kind == "nulls" else ("are", "may be")
    return (
        f"{finding.found:,} of {finding.of:,} rows {are} {finding.kind} ({share}),"
        f" and {100 * finding.bound:.3g} % {may}"
    )
