"""The thresholds of a plan read as they will act: what fails, what never does, and what nothing reports. Pure.

A threshold says what FAILS. `ratio = "< 0.35"` therefore fails what is good and passes what is bad, and
`nonfinite = "> 1"` fails nothing, in place of the check that raykit makes by itself.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from raykit.plan.tables import Qc
from raykit.qc.known import KNOWN, WORST, Known, known
from raykit.qc.scores import SHARES
from raykit.qc.verdict import limit_of

AT_UPDATE_0 = "evaluate(), at update 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One metric that the plan names."""

    name: str
    rule: str | None
    """None of one that only has to be there."""
    says: str
    """What it means."""
    comes: str
    """Where its value comes from."""
    wrong: str | None = None
    """Why it can never be right."""
    right: str | None = None
    """What would be."""
    doubt: str | None = None
    """What may be wrong with it."""


def read(qc: Qc, methods: Collection[str]) -> tuple[Read, ...]:
    """Every metric that `[qc]` names, for a recipe that has these methods."""
    rules = {name: str(rule) for name, rule in qc.fail.items()}
    wanted: dict[str, str | None] = {**dict.fromkeys(qc.metrics), **rules}
    return tuple(_read(name, wanted[name], methods) for name in dict.fromkeys([*rules, *wanted]))


def doubts(qc: Qc, found: Collection[Read], strata: Collection[str]) -> Iterator[str]:
    """What whoever answers for the checks has to know of them; `strata` are those of the roster."""
    yield from (f"{each.name}: {each.doubt}" for each in found if each.doubt is not None)
    if qc.roster.from_ == "train":
        yield "the roster is drawn from rows that are trained on: what is learned by heart passes"
    if len(strata) < 2:
        apart = "a part that is broken is averaged away"
        yield f"the roster has one stratum of {qc.roster.stratum}: nothing is kept apart, and {apart}"
        if any(each.name.startswith(WORST) for each in found):
            yield "worst.* is then the value over all"


def _read(name: str, rule: str | None, methods: Collection[str]) -> Read:
    of = known(name)
    plain = name.removeprefix(WORST)
    worst = ", in the stratum that does worst" if name != plain else ""
    if of is None or not _reported(of, methods):
        return _others(name, rule, methods, of, worst)
    comes = f"{of.asks}()" if of.asks else "raykit"
    if plain.startswith("ratio."):
        comes += ", at update 0"
    found = Read(name=name, rule=rule, says=of.says + worst, comes=comes)
    wrong = _wrong(name, rule, of)
    return found if wrong is None else _with(found, *wrong)


def _reported(of: Known, methods: Collection[str]) -> bool:
    return of.asks in ("", "losses", *methods)


def _others(name: str, rule: str | None, methods: Collection[str], of: Known | None, worst: str) -> Read:
    """A metric that raykit does not work out here: the recipe's own, or nobody's."""
    found = Read(name=name, rule=rule, says=f"the recipe's own{worst}", comes=AT_UPDATE_0)
    if rule is not None and _beyond(rule):
        return _with(found, *_NO_NUMBER)
    asks = "evaluate" if of is None else of.asks
    if "evaluate" not in methods:
        says = f"nothing reports it: the recipe has no {asks}()"
        return _with(found, says, _alike(name) or "a name that something reports")
    alike = _alike(name) if of is None else None
    if alike is None:
        return found
    doubt = f"only evaluate() can report it; {alike}"
    return Read(name=name, rule=rule, says=found.says, comes=found.comes, doubt=doubt)


def _alike(name: str) -> str | None:
    names = [each.name for each in KNOWN if not each.name.endswith(".") and each.name != name]
    found = difflib.get_close_matches(name.removeprefix(WORST), names, n=1, cutoff=0.75)
    return f"did you mean {found[0]}?" if found else None


_NO_NUMBER = ("its limit is beyond any number", "a number that double precision holds")


def _beyond(rule: str) -> bool:
    limit = limit_of(rule, 0.0)
    return limit is None or not math.isfinite(limit)


def _wrong(name: str, rule: str | None, of: Known) -> tuple[str, str] | None:
    """Why a threshold on one of raykit's own metrics can never be right, and what would be."""
    if name.startswith(WORST) and (of.better is None or not of.strata):
        return "nothing reports it: it has no value of a single stratum", name.removeprefix(WORST)
    if rule is None:
        return None
    if _beyond(rule):
        return _NO_NUMBER
    above = rule.startswith(">")
    if of.better is not None and above != (of.better == "less"):
        good = "low" if of.better == "less" else "high"
        turned = rule.replace(">", "<") if above else rule.replace("<", ">")
        return (
            f"fails what is good: {name} is better the {good}er it is",
            f'"{turned}": a threshold says what fails',
        )
    return None if "base" in rule else _idle(name, rule, of)


def _idle(name: str, rule: str, of: Known) -> tuple[str, str] | None:
    """Why a threshold decides nothing: no value of the metric is on one side of its limit."""
    limit = limit_of(rule, None)
    assert limit is not None, "it is held against no base"
    between = f"between {of.low:g} and {of.high:g}"
    if of.low == -math.inf:
        between = f"at most {of.high:g}"
    elif of.high == math.inf:
        between = f"at least {of.low:g}"
    never, always = {
        ">=": (limit > of.high, limit <= of.low),
        "<=": (limit < of.low, limit >= of.high),
        ">": (limit >= of.high, limit < of.low),
        "<": (limit <= of.low, limit > of.high),
    }[rule[:2] if rule[1] == "=" else rule[0]]
    if never:
        off = (
            ", and switches off a check that raykit makes by itself"
            if name.removeprefix(WORST) in SHARES
            else ""
        )
        return f"never fails anything{off}: {name} is {between}", f"a limit {between}, or no threshold at all"
    return (f"fails everything: {name} is {between}", f"a limit {between}") if always else None


def _with(found: Read, wrong: str, right: str) -> Read:
    return Read(
        name=found.name, rule=found.rule, says=found.says, comes=found.comes, wrong=wrong, right=right
    )
