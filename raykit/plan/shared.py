"""What a team always says the same way: tables of a plan that are `from` one shared file, such as raykit.toml.

    [claim]
    from   = "raykit.toml"       # unit, target, population: as in every plan of this team
    metric = "bits_per_byte"     # what the plan says itself goes first

Any table may be `from` it, `pools.train` and its like included. Nothing is taken that no table asks for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raykit.ids import sha256
from raykit.plan import lines as toml_lines
from raykit.plan.finding import Finding, Loc
from raykit.plan.model import Plan, Shared

FROM = "from"
MAX_BYTES = 1_000_000
NOT_SHARED = frozenset(
    {"schema", "name", "recipe", "decision", "category", "if_no", "research", "tags", "run", "base"}
)
"""What is said for one plan alone."""

ReadShared = Callable[[str], bytes]
"""Reads the file of that name; raises OSError if it cannot."""

_NAME = re.compile(r"(\.\./){0,8}[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.toml")


@dataclass(slots=True)
class Taken:
    """A plan with what it takes from its shared file, and where each thing is from."""

    raw: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    shared: Shared | None = None
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Of the shared file."""
    keys: frozenset[Loc] = frozenset()
    """The keys that are from it."""

    unread: tuple[Loc, ...] = ()
    """The tables whose shared file could not be read: what they lack may be in it."""

    def hides(self, finding: Finding) -> bool:
        """Whether a key is missing only because the shared file was not read."""
        at = any(finding.loc[: len(loc)] == loc for loc in self.unread)
        return at and finding.problem == "missing"

    def says_where(self, finding: Finding) -> Finding:
        """The finding; if it is about something in the shared file, it says so and names the line."""
        for end in range(len(finding.loc), 0, -1):
            if finding.loc[:end] in self.keys:
                assert self.shared is not None
                line = toml_lines.line_of(self.lines, finding.loc)
                where = f"{self.shared.name}, line {line}" if line else self.shared.name
                return finding._replace(problem=f"{finding.problem} (in {where})")
        return finding


def take(raw: Mapping[str, Any], read: ReadShared | None) -> Taken:
    """The plan's tables, each `from` replaced by what the shared file says."""
    asking = dict(_asking(raw))
    taken = Taken(raw=dict(raw))
    if not asking:
        return taken
    names = {name for name in asking.values() if isinstance(name, str)}
    bad = [loc for loc, name in asking.items() if not (isinstance(name, str) and _NAME.fullmatch(name))]
    if bad or len(names) > 1:
        for loc in bad:
            taken.findings.append(
                Finding((*loc, FROM), "is not the name of a shared file", 'such as "raykit.toml"')
            )
        if len(names) > 1:
            several = ", ".join(sorted(names))
            taken.findings.append(
                Finding((*list(asking)[-1], FROM), f"is a second file: {several}", "one shared file")
            )
        return _without(taken, asking)
    (name,) = names
    tables = _read(taken, name, next(iter(asking)), read)
    if tables is None:
        return _without(taken, asking)
    keys: set[Loc] = set()
    for loc in asking:
        found = _at(tables, loc)
        if not isinstance(found, Mapping):
            problem = f"{name} has no [{'.'.join(loc)}]"
            taken.findings.append(Finding((*loc, FROM), problem, "a table of that name in the shared file"))
            found = {}
        own = {key: value for key, value in _at(raw, loc).items() if key != FROM}
        keys |= {(*loc, key) for key in found if key not in own}
        _put(taken.raw, loc, {**found, **own})
    taken.keys = frozenset(keys)
    return taken


def _asking(raw: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """The tables that are `from` somewhere, and what they name."""
    for name, table in raw.items():
        if not isinstance(table, Mapping):
            continue
        if FROM in table and name != "pools" and name in Plan.model_fields and name not in NOT_SHARED:
            yield (name,), table[FROM]
        elif name == "pools":
            for pool, inner in table.items():
                if isinstance(inner, Mapping) and FROM in inner:
                    yield (name, pool), inner[FROM]


def _read(taken: Taken, name: str, loc: tuple[str, ...], read: ReadShared | None) -> dict[str, Any] | None:
    at = (*loc, FROM)
    try:
        if read is None:
            raise FileNotFoundError(2, "nothing is read beside this plan")
        data = read(name)
        if len(data) > MAX_BYTES:
            taken.findings.append(
                Finding(at, f"{name} is {len(data):,} bytes long", f"at most {MAX_BYTES:,} bytes")
            )
            return None
        text = data.decode("utf-8")
        if toml_lines.excess(text):
            raise tomllib.TOMLDecodeError("it holds more than a plan can mean")
        tables = tomllib.loads(text)
    except OSError as error:
        problem = f"{name} cannot be read: {(error.strerror or str(error)).lower()}"
        rule = "a file beside the plan, or in a folder above it"
        remedy = f"put it there; or take this line out, and say the keys of [{'.'.join(loc)}] in the plan"
        taken.findings.append(Finding(at, problem, rule, remedy))
        return None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        taken.findings.append(Finding(at, f"{name} is not TOML: {str(error)[:120]}", "TOML 1.0 in UTF-8"))
        return None
    taken.lines = toml_lines.index_lines(text)
    tabled = ".".join
    taken.shared = Shared(
        name=name,
        data=data,
        sha256=sha256(data),
        tables=tuple(sorted(tabled(loc) for loc, _ in _asking(taken.raw))),
    )
    for other in sorted(tables.keys() - (Plan.model_fields.keys() - NOT_SHARED)):
        rule = ", ".join(sorted(Plan.model_fields.keys() - NOT_SHARED))
        taken.findings.append(Finding(at, f"{name} holds {other[:60]}, which no plan can share", rule))
    return tables


def _without(taken: Taken, asking: Mapping[tuple[str, ...], object]) -> Taken:
    taken.unread = tuple(asking)
    for loc in asking:
        _put(taken.raw, loc, {key: value for key, value in _at(taken.raw, loc).items() if key != FROM})
    return taken


def _at(raw: Mapping[str, Any], loc: tuple[str, ...]) -> Any:
    found: Any = raw
    for part in loc:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _put(raw: dict[str, Any], loc: tuple[str, ...], value: dict[str, Any]) -> None:
    """Put a table in place, leaving the mapping that it came from as it was."""
    here = raw
    for part in loc[:-1]:
        here[part] = dict(here[part])
        here = here[part]
    here[loc[-1]] = value
