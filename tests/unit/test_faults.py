"""Every kind of fault that once went through in silence is named by a test, and so is every one that a test names."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LISTED = re.compile(r"^\| ([A-C]\d{2}) \|", re.MULTILINE)
NAMED = re.compile(r"\bFAULT-([A-C]\d{2})\b")
COUNTS = {"A": 24, "B": 20, "C": 10}


def listed() -> list[str]:
    return LISTED.findall((TESTS.parent / "docs" / "FAULTS.md").read_text("utf-8"))


def test_each_kind_is_listed_once_and_in_order() -> None:
    assert listed() == [f"{group}{n:02d}" for group, count in COUNTS.items() for n in range(1, count + 1)]


def test_each_kind_is_named_by_a_test_and_no_other() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    named = {id for path in files for id in NAMED.findall(path.read_text("utf-8"))}
    assert sorted(set(listed()) - named) == []
    assert sorted(named - set(listed())) == []
