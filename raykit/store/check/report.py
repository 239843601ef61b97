"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raykit.store.base import Listed


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise: at which key, what should hold, what is there, and the invariant it breaks."""

    key: str
    rule: str
    found: str
    invariant: str

    def plain(self) -> dict[str, str]:
        """The finding as JSON values."""
        return {"key": self.key, "rule": self.rule, "found": self.found, "invariant": self.invariant}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one check of one root."""

    url: str
    read_data: bool
    """Whether every byte was read, or only records and sizes."""
    findings: tuple[Finding, ...]
    orphans: tuple[Listed, ...]
    """Objects and temporary files that nothing names: what a writer that was killed has left."""
    stranded: tuple[Listed, ...] = ()
    """Objects that nothing names any more, because what named them is damaged or gone: they are part of it."""
    unknown: tuple[Listed, ...]
    """Objects that raykit did not make."""
    counts: Mapping[str, int]
    """How many experiments, runs, entries, commits, segments, rows, objects and bytes were looked at."""

    @property
    def ok(self) -> bool:
        """No promise is broken. There may be orphans."""
        return not self.findings

    def plain(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "root": self.url,
            "read_data": self.read_data,
            "ok": self.ok,
            "findings": [finding.plain() for finding in self.findings],
            "orphans": [listed._asdict() for listed in self.orphans],
            "stranded": [listed._asdict() for listed in self.stranded],
            "unknown": [listed._asdict() for listed in self.unknown],
            "counts": dict(self.counts),
        }
