"""Every requirement of the groups below is named by a test that it would fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

REQUIRED: dict[str, list[int]] = {
    "PLAN": [*range(1, 76)],
    "REVIEW": [*range(1, 22)],
    "APPR": [*range(1, 22)],
    "BUD": [*range(1, 41)],
    "LEDGER": [*range(1, 12)],
    "QC": [*range(1, 30)],
    "CAND": [*range(1, 33)],
    "GEN": [*range(1, 18)],
    "FLEET": [*range(1, 16)],
    "TUNE": [*range(1, 17)],
    "DISP": [*range(1, 16)],
    "RAY": [*range(1, 21)],
    "GOLD": [*range(1, 25), 28, 29, 30, 32, 33],
}

ID = re.compile(r"\b(?P<group>[A-Z]+)-(?P<first>\d{2})(?:(?:\.\.| to )(?:(?P=group)-)?(?P<last>\d{2}))?\b")
"""`BUD-01`, `BUD-01..05`, `BUD-01 to BUD-05`."""


def cited(text: str) -> set[str]:
    """The ids that a text names, ranges spelt out."""
    return {
        f"{found['group']}-{number:02d}"
        for found in ID.finditer(text)
        for number in range(int(found["first"]), int(found["last"] or found["first"]) + 1)
    }


def test_ranges_are_read_as_what_they_mean() -> None:
    assert cited("covers BUD-01..03, LEDGER-09 to LEDGER-11; GOLD-30 to 32 and PLAN-07: 16") == {
        *("BUD-01", "BUD-02", "BUD-03"),
        *("LEDGER-09", "LEDGER-10", "LEDGER-11"),
        *("GOLD-30", "GOLD-31", "GOLD-32"),
        "PLAN-07",
    }
    assert cited("XBUD-011, a BUD-5, bud-05") == set()


def names_ids(path: Path) -> bool:
    """A test, or what a test is made of; this file names ids only to say how they are read."""
    return path != Path(__file__)


@pytest.mark.parametrize("group", REQUIRED)
def test_every_requirement_is_cited_by_a_test(group: str) -> None:
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if names_ids(path)]
    found = set().union(*(cited(path.read_text("utf-8")) for path in files))
    missing = [name for n in REQUIRED[group] if (name := f"{group}-{n:02d}") not in found]
    assert not missing, f"no test cites {', '.join(missing)}"


def test_no_test_cites_what_there_is_not() -> None:
    """A number beyond the last one of its group is a slip of the pen."""
    last = {group: max(numbers) for group, numbers in REQUIRED.items()} | {"GOLD": 33}
    for path in sorted(TESTS.rglob("test_*.py")):
        wrong = [
            name
            for name in cited(path.read_text("utf-8"))
            if (group := name.partition("-")[0]) in last
            and not 1 <= int(name.partition("-")[2]) <= last[group]
        ]
        assert not wrong, f"{path}: {wrong}"
