"""What the terminal shows: numbers, tables, JSON and errors. The same text in a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from raykit.errors import ApprovalError, PlanError, RaykitError, ReviewError

if TYPE_CHECKING:
    from rich.console import Console

    from raykit.records import Unit

DOT = "\u00b7"
MAX_FINDINGS = 30

_LEADS = {
    2: "invalid input",
    3: "refused",
    4: "stopped",
    5: "broken",
    6: "no answer",
    7: "not secure",
}


# --- numbers ------------------------------------------------------------------------------------------------


def count(number: int) -> str:
    """`5503` as `5,503`."""
    return f"{number:,}"


def size(size_bytes: int) -> str:
    """`13200000000` as `13.2 GB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if round(value, 1) < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} PB"


def duration(seconds: float) -> str:
    """`0.42 s`, `38 s`, `4m02`, `5h21`, `2d03h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}"
    return f"{minutes // 1440}d{minutes % 1440 // 60:02}h"


def pace(seconds: float) -> str:
    """`2.19` as `2.19 s/update`, `0.0042` as `4.2 ms/update`."""
    return f"{seconds:.3g} s/update" if seconds >= 0.1 else f"{seconds * 1000:.2g} ms/update"


def usd(amount: float) -> str:
    """`1449` as `$1,449.00`."""
    return f"${amount:,.2f}"


def money(amount: int, unit: Unit = "usd") -> str:
    """Micro-units for a glance: `$1,449`, `$3.45`, `$0.0021`, `12.5 h`."""
    text = _glance(amount)
    return f"${text}" if unit == "usd" else f"{text} h"


def money_of(spent: int, ceiling: int, unit: Unit = "usd") -> str:
    """`$112/900`, `3.20/20 h`."""
    whole = _glance(ceiling).removesuffix(".00")
    return f"${_glance(spent)}/{whole}" if unit == "usd" else f"{_glance(spent)}/{whole} h"


def amount(amount: int, unit: Unit = "usd") -> str:
    """Micro-units in a sentence, to the cent or, below one, to the fourth decimal: `$59.72`, `12.50 h`."""
    value = amount / 1_000_000
    text = f"{value:,.2f}" if abs(value) >= 1 or amount == 0 else f"{value:,.4f}"
    return f"${text}" if unit == "usd" else f"{text} h"


def _glance(amount: int) -> str:
    value = amount / 1_000_000
    if amount == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:,.4f}"


def clock(at: float) -> str:
    """The time of day here, for what has just happened."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def width() -> int | None:
    """How many columns there are to write in; None where nobody reads in columns, as in a pipe."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return None


def short(digest: str) -> str:
    """Enough of a digest to tell two apart by eye."""
    return digest[:8]


# --- printing -----------------------------------------------------------------------------------------------


def console(stream: TextIO | None = None) -> Console:
    """A console for live output: colour and motion in a terminal, plain whole lines anywhere else."""
    from rich.console import Console

    return Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> str:
    """Columns of text, never cut or wrapped; those whose header is in `right` are aligned to the right."""
    lines = [headers, *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def cell(i: int, text: str) -> str:
        return text.rjust(widths[i]) if headers[i] in right else text.ljust(widths[i])

    return "\n".join("  ".join(cell(i, text) for i, text in enumerate(line)).rstrip() for line in lines)


def fitting(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    drop: Sequence[str] = (),
    columns: int | None = None,
) -> str:
    """A table that fits into `columns`: first without the columns of `drop`, one after another, then as a list."""
    kept = list(headers)
    for unwanted in (None, *drop):
        if unwanted in kept:
            kept.remove(unwanted)
        indices = [headers.index(name) for name in kept]
        text = table(kept, [[row[i] for i in indices] for row in rows], right=right)
        if columns is None or max(map(len, text.split("\n"))) <= columns:
            return text
    lines = []
    for row in rows:
        cells = [clean(row[headers.index(name)]) for name in kept[1:]]
        lines += [
            clean(row[0]),
            *wrapped("  ".join(cell for cell in cells if cell not in ("", "-")), columns),
        ]
    return "\n".join(lines)


def wrapped(text: str, columns: int | None, *, indent: str = "  ", hang: int = 0) -> list[str]:
    """Text in lines that fit, all indented, those after the first by `hang` more; a word is never broken."""
    if columns is None or len(indent + text) <= columns:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(columns, len(indent) + 10),
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_lines(lines: Iterable[str]) -> None:
    """Lines as they come, those that are too long for the terminal wrapped under their own beginning."""
    columns = width()
    for line in map(clean, lines):
        text = line.lstrip(" ")
        indent = line[: len(line) - len(text)]
        label = re.match(r"\S+ {2,}", text)
        whole = text.startswith("->") or "raykit " in text  # a command is copied as it stands
        parts = wrapped(text, None if whole else columns, indent=indent, hang=label.end() if label else 0)
        sys.stdout.write("\n".join(parts).rstrip() + "\n")
    sys.stdout.flush()


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Lines of a name and what it is, indented, the second column aligned."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"  {clean(name):<{width}}  {clean(text)}".rstrip() for name, text in pairs)


def print_json(value: Any, stream: TextIO | None = None) -> None:
    """One JSON document, indented, sorted, without NaN; what a terminal would obey stands there escaped."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    escaped = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    (stream or sys.stdout).write(escaped + "\n")


# --- errors -------------------------------------------------------------------------------------------------


_COMMANDS = re.compile(
    r"raykit (?:(?:budget|approve|checkpoints|plan|qc|candidates) [a-z]+"
    r"|generate(?: (?:status|export|retry|give-up))?|search(?: status)?"
    r"|launch|resume|pause|cancel|status|show|diff|logs|history|check|ls|watch"
    r"|observe|conclude|note|measured|counted|lessons|adopt|report|gc)\b"
)


def print_error(error: RaykitError, *, as_json: bool, at: str = "") -> None:
    """Say on stderr what is wrong and what would pass, in as few lines as that takes.

    `at` is the option that a command needs to mean the same store; those that are printed get it.
    """
    for each in (error, *(error.findings if isinstance(error, PlanError | ReviewError) else ())):
        if each.remedy is not None and at and "--root" not in each.remedy:
            each.remedy = _COMMANDS.sub(lambda found: found.group() + at, each.remedy)
    if as_json:
        print_json({"error": error_record(error)}, sys.stderr)
    else:
        sys.stderr.write("\n".join(error_lines(error)) + "\n")


def error_record(error: RaykitError) -> dict[str, Any]:
    """An error as JSON values, without what it does not say."""
    record: dict[str, Any] = {"kind": error.kind, "exit_code": error.exit_code, "message": error.message}
    record |= {
        key: getattr(error, key) for key in ("field", "rule", "remedy") if getattr(error, key) is not None
    }
    if error.value is not None:
        record["value"] = _plain(error.value)
    if isinstance(error, ApprovalError) and error.facts:
        record["facts"] = dict(error.facts)
    if isinstance(error, PlanError) and error.line is not None:
        record["line"] = error.line
    if isinstance(error, PlanError | ReviewError) and error.findings:
        record["findings"] = [error_record(finding) for finding in error.findings]
    return record


def error_lines(error: RaykitError) -> Iterator[str]:
    """An error as lines of text, its exit code last."""
    if isinstance(error, PlanError | ReviewError) and error.findings:
        lead = "" if isinstance(error, PlanError) else "refused: "
        yield f"{lead}{clean(error.message)}. Nothing was started, nothing was spent."
        yield from _finding_lines(error.findings)
    else:
        yield f"{_LEADS.get(error.exit_code, error.kind)}: {clean(error.message)}"
        if error.field is not None:
            have = _have(error)
            line = f" (line {error.line})" if isinstance(error, PlanError) and error.line is not None else ""
            yield f"  at     {clean(error.field)}" + (f" = {have}" if have else "") + line
        if isinstance(error, ApprovalError):
            yield from facts([(clean(name), clean(text)) for name, text in error.facts]).splitlines()
        yield from _remedy_lines(error, "rule")
    yield f"exit {error.exit_code}"


def _finding_lines(findings: Sequence[PlanError]) -> Iterator[str]:
    shown = findings[:MAX_FINDINGS]
    fields = [clean(finding.field or "the file") for finding in shown]
    width = max(len(field) for field in fields)
    for number, (field, finding) in enumerate(zip(fields, shown, strict=True), 1):
        line = f" (line {finding.line})" if finding.line is not None else ""
        yield f"{number:>2}  {field:<{width}}  {clean(finding.message)}{line}"
        if have := _have(finding):
            yield f"    have   {have}"
        yield from (f"  {text}" for text in _remedy_lines(finding, "want"))
    if len(findings) > len(shown):
        yield f"    and {len(findings) - len(shown)} more"


def _remedy_lines(error: RaykitError, rule: str) -> Iterator[str]:
    if error.rule is not None:
        yield f"  {rule:<5}  {clean(error.rule)}"
    if error.remedy is not None:
        yield f"  pass   {clean(error.remedy)}"


def _have(error: RaykitError) -> str:
    """The value that is there, unless the message shows it already."""
    if error.value is None or error.value == "":
        return ""
    text = json.dumps(_plain(error.value), ensure_ascii=True)
    return "" if text in error.message or str(error.value) in error.message else text[:120]


def _plain(value: object) -> Any:
    """`value` as JSON, in the words of its own text where it has no JSON form."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        if isinstance(value, Mapping):
            return {str(key): _plain(item) for key, item in value.items()}
        return str(value)


def clean(text: str) -> str:
    """`text` on one line, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
