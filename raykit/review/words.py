"""The words of a review: counts, shares, amounts and times as people read them, and which reasons are none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from raykit.plan import RowChange
from raykit.records import MICRO, Unit

NOT_MEASURED = "not known: nothing like it has been measured"

HOUR_MS = 3_600_000


# --- figures ------------------------------------------------------------------------------------------------


def percent(part: int, whole: int) -> str:
    """`2953` of `59022` as `5.0%`."""
    if whole == 0:
        return "100.0%" if part else "0.0%"
    return f"{100 * part / whole:.1f}%"


def of(part: int, whole: int) -> str:
    """`2,953 of 59,022 (5.0%)`."""
    return f"{part:,} of {whole:,} ({percent(part, whole)})"


def rows(change: RowChange) -> str:
    """Rows added, removed and relabelled: three counts, each with its share of the rows that there were."""
    whole = change.before
    return (
        f"{of(change.added, whole)} rows added, {of(change.removed, whole)} removed, "
        f"{of(change.relabelled, whole)} relabelled"
    )


def money(amount: int, unit: Unit = "usd") -> str:
    """Micro-units as `$208`, `$548.84`, `$0.0021`, `12.50 accelerator-hours`."""
    value = amount / MICRO
    text = f"{value:,.2f}" if amount == 0 or abs(value) >= 0.01 else f"{value:,.6f}".rstrip("0")
    text = text.removesuffix(".00")
    return f"${text}" if unit == "usd" else f"{text} accelerator-hours"


def hours(time_ms: int | None) -> str:
    """`8.7 h`, `14 min`, `38 s`; in words where nobody has measured it."""
    if time_ms is None:
        return NOT_MEASURED
    if time_ms == 0:
        return "0 h"
    if time_ms >= HOUR_MS // 2:
        return f"{time_ms / HOUR_MS:,.1f} h"
    seconds = time_ms / 1000
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def cost(amount: int | None, unit: Unit) -> str:
    """What something costs; in words where nobody has measured it."""
    return NOT_MEASURED if amount is None else money(amount, unit)


def names(texts: Iterable[str], name: str) -> bool:
    """Whether one of `texts` names `name`, as a whole word of the letters that names are made of."""
    whole = re.compile(rf"(?<![A-Za-z0-9._-]){re.escape(name)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])")
    return any(whole.search(text) for text in texts)


def same(one: str, other: str) -> bool:
    """Whether two texts say the same, whatever their spaces, capitals and last full stop."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .!?")


# --- reasons that are none ----------------------------------------------------------------------------------
#
# A check of words, not of sense. It can be passed by writing nonsense with a number in it, and it refuses only a
# text that leans on one of the words below and holds neither a figure nor a word that begins a consequence. What it
# is for: whoever types "cleaner" out of habit is asked once for what that is worth.


class Weak(NamedTuple):
    """Why a text is no reason."""

    rule: str
    """The requirement that refuses it."""
    words: str
    """What it leans on, as it says it."""
    wanted: str
    """What a reason would say."""


_HABIT = re.compile(
    r"\b(standard|best|common|usual|normal|good) practi[cs]e\b|\bconvention(al(ly)?)?\b|\bas (always|usual)\b"
    r"|\beverybody does\b|\bthe usual way\b",
    re.I,
)
_NEATNESS = re.compile(
    r"\b(clean(er|est|ly)?|safe(r|st)?|neat(er)?|tid(y|ier)|pur(e|er|ity)|nicer|simpler)\b"
    r"|\beasier to (describe|explain)\b",
    re.I,
)
_FROZEN = re.compile(r"\b(frozen|freeze|already (planned|approved|agreed|decided))\b", re.I)
_PURITY = re.compile(
    r"\b(pur(e|er|ity)|clean(er|est|ly)?|clean-room|protocol|neat(er)?|tid(y|ier))\b"
    r"|\bidentical (start|initiali[sz]ation)s?\b",
    re.I,
)
_CONSEQUENCE = re.compile(
    r"\b(because|so that|otherwise|or else|would|could|cannot|invalid(ates?)?|wrong|biase[sd]|leak(s|ed)?|loses?|lost"
    r"|misse[sd]|breaks?|contaminated|confounds?|confounded|differs?)\b",
    re.I,
)
_PLACEHOLDER = re.compile(
    r"(tbd|tba|todo|fixme|n/?a|none|nil|null|unknown|later|yes|no|ok|x+|asdf|foo|bar|lorem.*|placeholder|fill.*|<.*>"
    r"|why|reason|because|same|see above|dito|ditto|value|text)?[\s.?!_*-]*",
    re.I,
)


def placeholder(text: str) -> bool:
    """Whether a text stands where one should be written: `tbd`, `-`, `n/a`, `???`."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def weak(text: str) -> Weak | None:
    """Why a text is no reason, if it is none: an empty phrase, a habit, neatness, or that it was decided before."""
    if placeholder(text):
        return Weak("PLAN-40", text.strip() or "nothing", "a real value")
    if re.search(r"\d", text) or _CONSEQUENCE.search(text):
        return None
    for rule, words, wanted in (
        ("APPR-15", _FROZEN, "what is so today: an earlier plan decided what was known then"),
        ("PLAN-36", _HABIT, "an estimate: how much of the metric, or of the work"),
        ("PLAN-19", _NEATNESS, "the practical consequence: what would be wrong, lost or biased without it"),
    ):
        if found := words.search(text):
            return Weak(rule, found.group(), wanted)
    return None


def purity(text: str) -> bool:
    """Whether a reason is about how neat the experiment is, and holds no figure of what it gains."""
    return _PURITY.search(text) is not None and not re.search(r"\d", text)


_EITHER_WAY = re.compile(
    r"\b(either way|anyway|any way|regardless|in any case|no matter|whatever (the|it))\b", re.I
)


def either_way(text: str) -> str | None:
    """The words by which a text says that the result changes nothing; None if it says no such thing."""
    found = _EITHER_WAY.search(text)
    return None if found is None else found.group()
