"""What people may write down as evidence: what was seen and where from, never that something is proved. Pure."""

from __future__ import annotations

import re

from raykit.errors import InvalidInput

_NEGATED = re.compile(
    r"(\b(no|not|never|nothing|none|neither|nor|cannot|without|far from)\b|n't\b)[^.,;:!?]{0,40}$", re.I
)
"""Words before a claim, in the same clause, that take it back."""

_PROVED = re.compile(r"\b(prove[sdn]?|proving|proof(?![ -]of[ -]concept))\b", re.I)
_SHOWS = "(prove[sdn]?|show[sn]?|establish(es|ed)|confirm(s|ed)|demonstrate[sd]|guarantee[sd])"
_STABILITY = re.compile(
    rf"\bstability (is |was |has been |now )?{_SHOWS}\b|\b{_SHOWS} (the |its |full )?stability\b", re.I
)
_STABLE = re.compile(
    r"(^|[.:;,!?]\s*|\b(is|are|was|were|be|been|remain(s|ed)?|stay(s|ed)?|looks?|seems?|appears?|becomes?|became"
    r"|trains?|runs?|now|found|and)\s+)((numerically|fully|completely|perfectly|entirely|quite|now|also)\s+)?stable\b",
    re.I,
)

_CONFIRMED = re.compile(r"\bconfirm(s|ed|ation|atory)?\b", re.I)

_PLACEHOLDER = re.compile(r"\.\.\.|<[^>]*>|\b(tbd|todo|fixme|xxx|n/?a)\b|\?\?", re.I)
_ASSERTED = re.compile(
    r"\b(assum\w+|estimat\w+|guess\w*|expect\w*|presum\w+|probabl[ey]|roughly|should|typical(ly)?|usual(ly)?|trust me"
    r"|standard practice|best practice|common knowledge|rule of thumb|by experience|everybody knows)\b",
    re.I,
)
_TRACEABLE = re.compile(r"[0-9]|[\w.-]/[\w.-]|://")
"""A date, an id, a number, a path: something that can be looked up."""


def overclaimed(text: str) -> str | None:
    """The words of `text` that say more than any test can; None if there are none."""
    return _claimed(text, _PROVED, _STABILITY, _STABLE)


def confirmed(text: str) -> str | None:
    """The words of `text` that call something confirmed; None if there are none."""
    return _claimed(text, _CONFIRMED)


def _claimed(text: str, *patterns: re.Pattern[str]) -> str | None:
    for pattern in patterns:
        for found in pattern.finditer(text):
            if not _NEGATED.search(text[: found.start()]):
                return found.group().strip(" .:;,!?")
    return None


def require_bounded(text: str, *, field: str, instead: str) -> str:
    """Return `text` if it says what was seen, and no more.

    Raises:
        InvalidInput: it says that something is proved, or stable at large; `instead` is what can be said.
    """
    if (claim := overclaimed(text)) is not None:
        raise InvalidInput(
            f"{field} says {claim!r}: a test that passes removes hypotheses at the inputs that it covered, "
            "and proves nothing else",
            field=field,
            value=text,
            rule=f"what was seen, and on which inputs: {instead}",
        )
    return text


def require_source(text: str, *, field: str) -> str:
    """Return `text` if it says where a figure is from: a run, a gate, a bill, a file, with its id or date.

    Raises:
        InvalidInput: it asserts the figure and names no source.
    """
    problem = None
    if found := _PLACEHOLDER.search(text):
        problem = f"{found.group()!r} is a blank that was not filled in"
    elif found := _ASSERTED.search(text):
        problem = f"{found.group()!r} is an assertion, and not where it was measured"
    elif not _TRACEABLE.search(text):
        problem = (
            f"{text!r} names nothing that can be looked up: no digit, as in a date or an id, and no path"
        )
    if problem is not None:
        raise InvalidInput(
            problem,
            field=field,
            value=text,
            rule="the run, gate, bill or file that it is from, with its id or date",
            remedy=f'{field} "invoice 2026-10-31, line 4"',
        )
    return text
