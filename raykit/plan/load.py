"""From the bytes of a plan to a `Plan`, or to every finding at once, with their lines."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from raykit.errors import PlanError, ReviewError
from raykit.ids import sha256
from raykit.plan import lines as toml_lines
from raykit.plan.credentials import looks_secret, names_secret
from raykit.plan.finding import Finding, Loc
from raykit.plan.model import Plan
from raykit.plan.rules import Valid, broken
from raykit.plan.shared import ReadShared, Taken, take
from raykit.plan.tables import NOT_A_ROLE, Table

MAX_BYTES = 1_000_000
_MAX_INTEGER = 2**63 - 1
_MAX_GUESSES = 50
_MAX_NOTES = 50

_CREDENTIAL = "looks like a credential (not shown here)"
_UNKNOWN = "unknown key"
_TOML = 'TOML: key = value, each key once; text in "quotes", lists in [ ], tables in { } or under [name], true or false'
_TAKE_OUT = "take it out and revoke it; name the file or the environment variable that holds it instead"

_OTHER_NAMES = {
    "steps": "updates",
    "max_steps": "updates",
    "iterations": "updates",
    "epochs": "updates; raykit says how many epochs they are",
    "batch_size": "batch",
    "save_every": "checkpoint_every",
    "eval_every": "evaluate_every",
    "learning_rate": "params.lr",
    "lr": "params.lr",
    "num_workers": "workers (ranks) or loader_workers (readers of one rank)",
    "early_stopping": "stop",
    "ceiling": "ceiling_usd",
    "wall": "wall_h",
    "loss_window": "loss_window_min",
    "flush": "flush_s",
}
"""What people call a key elsewhere, or its name without the unit."""


def load_plan(data: bytes, *, where: str, shared: ReadShared | None = None) -> Plan:
    """Read a plan; `where` names it in errors, and `shared` reads the file that its tables are `from`.

    Rules across keys are judged where the tables that they read are valid by themselves.

    Raises:
        PlanError: anything is wrong with it; `findings` has every finding, with its line.
    """
    text, findings = _text(data)
    if not findings:
        plan, findings = _read(text, shared)
        if plan is not None:
            plan._sha256 = sha256(data)
            return plan
    raise _error(where, findings)


E = TypeVar("E", PlanError, ReviewError)


def located(error: E, data: bytes, *, where: str) -> E:
    """An error about a plan that somebody else found, with the file's name and the lines of its fields."""
    lines = toml_lines.index_lines(data.decode("utf-8"))
    found: list[PlanError] = [*error.findings, *([error] if isinstance(error, PlanError) else [])]
    for finding in found:
        if finding.line is None and finding.field is not None:
            finding.line = toml_lines.line_of(lines, finding.field.split("."))
    error.message = f"{where}: {error.message}"
    return error


def _error(where: str, findings: Sequence[PlanError]) -> PlanError:
    noun = "finding" if len(findings) == 1 else "findings"
    error = PlanError(f"{where}: {len(findings)} {noun}", findings=tuple(findings))
    for finding in findings[
        :_MAX_NOTES
    ]:  # a traceback, which prints notes, is then as good as the command line
        place = ", ".join(part for part in (finding.line and f"line {finding.line}", finding.field) if part)
        error.add_note(f"{place}: {finding.message}" if place else finding.message)
    return error


# --- bytes to text ------------------------------------------------------------------------------------------


def _text(data: bytes) -> tuple[str, list[PlanError]]:
    if len(data) > MAX_BYTES:
        return "", [PlanError(f"is {len(data):,} bytes long", rule=f"at most {MAX_BYTES:,} bytes")]
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "", [
            PlanError(
                "starts with a byte order mark", line=1, rule="UTF-8 without one", remedy="save it as UTF-8"
            )
        ]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return "", [PlanError("is not UTF-8", line=line, rule="UTF-8", remedy="save it as UTF-8")]
    if excess := toml_lines.excess(text):
        return "", [PlanError(excess[1], line=excess[0], rule="a plan: a few tables, about 50 lines")]
    return text, []


# --- text to plan -------------------------------------------------------------------------------------------


def _read(text: str, shared: ReadShared | None) -> tuple[Plan | None, list[PlanError]]:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        findings = [*_secret_lines(text, frozenset()), _syntax(str(error))]
        return None, _ordered(findings, {}, {})
    lines = toml_lines.index_lines(text)
    taken = take(raw, shared)
    raw = taken.raw
    unfit = list(_unfit((), raw))
    secret_lines = frozenset(toml_lines.line_of(lines, f.loc) for f in unfit if f.problem == _CREDENTIAL)
    plan, wrong = _validate(raw)
    bad = {finding.loc for finding in unfit}
    findings = [
        *taken.findings,
        *unfit,
        *_secret_lines(text, secret_lines),
        *(_shared_secrets(taken) if taken.shared else ()),
        *(
            f
            for f in wrong
            if not any(f.loc[: n + 1] in bad for n in range(len(f.loc))) and not taken.hides(f)
        ),
    ]
    if findings:
        return None, _ordered([taken.says_where(finding) for finding in findings], lines, raw)
    if plan is not None:
        plan._shared = taken.shared
    return plan, []


def _syntax(message: str) -> Finding:
    line = re.search(r" \(at line (\d+)", message)
    problem = f"is not TOML: {message[0].lower()}{message[1:120]}"
    return Finding((), problem, _TOML, line=int(line.group(1)) if line else None)


def _ordered(
    findings: Sequence[Finding], lines: Mapping[tuple[str, ...], int], raw: object
) -> list[PlanError]:
    """The findings as errors, in the file's order; what is missing stands where its table begins."""
    errors = []
    for finding in findings:
        line = finding.line or toml_lines.line_of(lines, finding.loc)
        errors.append(
            PlanError(
                finding.problem,
                line=line,
                field=_dotted(finding.loc) or None,
                value=None if finding.problem in (_CREDENTIAL, _UNKNOWN) else _shown(_at(raw, finding.loc)),
                rule=finding.rule,
                remedy=finding.remedy,
            )
        )
    return sorted(errors, key=lambda error: error.line or math.inf)


def _dotted(loc: Loc) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = "(not shown)" if looks_secret(part) else part if part.isprintable() else repr(part)
            text += f".{name[:80]}" if text else name[:80]
    return text


def _at(raw: object, loc: Loc) -> object:
    for part in loc:
        try:
            raw = raw[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _shown(value: object) -> object:
    """A value that may be shown: one number, truth value or short text, and no credential."""
    if isinstance(value, str):
        return None if looks_secret(value) else value[:200]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_INTEGER:
        return None
    return value if isinstance(value, bool | int | float) else None


# --- values that no key may have ----------------------------------------------------------------------------


def _unfit(loc: Loc, value: object) -> Iterator[Finding]:
    """Values that have no one meaning in JSON, and credentials, wherever they are."""
    if isinstance(value, dict):
        for key, item in value.items():
            if looks_secret(key) or (names_secret(key) and isinstance(item, str)):
                yield Finding((*loc, key), _CREDENTIAL, "no credentials in a plan", _TAKE_OUT)
            else:
                yield from _unfit((*loc, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unfit((*loc, index), item)
    elif isinstance(value, str):
        if looks_secret(value):
            yield Finding(loc, _CREDENTIAL, "no credentials in a plan", _TAKE_OUT)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield Finding(loc, f"is {value}", "a finite number")
        elif value == 0 and math.copysign(1, value) < 0:
            yield Finding(loc, "is -0.0", "0.0", "write 0.0: a digest tells the two apart")
    elif isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            yield Finding(loc, f"has {len(str(abs(value)))} digits", f"at most {_MAX_INTEGER}")
    else:
        yield Finding(loc, "is a date or a time", "text, a number, true or false, a list or a table")


def _secret_lines(text: str, found: frozenset[int | None]) -> Iterator[Finding]:
    """Credentials that are in no value: in comments, or in a file that is not TOML."""
    for number, line in enumerate(text.split("\n"), 1):
        if number not in found and looks_secret(line):
            yield Finding((), _CREDENTIAL, "no credentials in a plan, nor in its comments", _TAKE_OUT, number)


def _shared_secrets(taken: Taken) -> Iterator[Finding]:
    """Credentials in the shared file: one finding, since its lines are not the plan's."""
    assert taken.shared is not None
    if any(looks_secret(line) for line in taken.shared.data.decode().split("\n")):
        yield Finding((), f"{taken.shared.name} {_CREDENTIAL}", "no credentials in a shared file", _TAKE_OUT)


# --- types, and then rules across keys ----------------------------------------------------------------------


def _validate(raw: dict[str, Any]) -> tuple[Plan | None, list[Finding]]:
    findings: list[Finding] = []
    plan: Plan | None = None
    try:
        # by way of JSON, because only there does strict pydantic take an array for a tuple
        plan = Plan.model_validate_json(_json(raw))
        tables = {name: getattr(plan, name) for name in Valid.__dataclass_fields__ if name != "present"}
    except ValidationError as error:
        guesses = 0
        for details in error.errors(include_url=False):
            if details["type"] == "default_factory_not_called":
                continue  # its source is a finding already
            guesses += details["type"] == "extra_forbidden"
            findings.append(_finding(details, raw, guess=guesses <= _MAX_GUESSES))
        tables = _valid_tables(raw, {str(f.loc[0]) for f in findings if f.loc})
    findings.extend(broken(Valid(present=frozenset(raw), **tables)))
    return plan, findings


def _json(value: object) -> str:
    return json.dumps(value, default=str)


def _valid_tables(raw: Mapping[str, Any], bad: set[str]) -> dict[str, Any]:
    tables = {}
    for name in Valid.__dataclass_fields__:
        if name in raw and name not in bad:
            annotation: Any = Plan.model_fields[name].annotation
            tables[name] = TypeAdapter(annotation).validate_json(_json(raw[name]), strict=True)
    return tables


def _finding(details: ErrorDetails, raw: object, *, guess: bool) -> Finding:
    loc = tuple(part for part in details["loc"] if not (isinstance(part, str) and part.startswith("<")))
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    if loc[-1:] == ("[key]",):
        rule = Plan.model_fields["name"].description if kind == "string_pattern_mismatch" else details["msg"]
        return Finding(loc[:-1], "cannot be a name here", rule)
    if kind == "extra_forbidden":
        return _unknown_key(loc, raw, guess=guess)
    rule = _description(loc)
    if kind == "missing":
        return Finding(loc, "missing", rule)
    if isinstance(value, str | list | dict | tuple) and not (
        value.strip() if isinstance(value, str) else value
    ):
        return Finding(loc, "empty", rule)
    if kind == "rule":
        return Finding(loc, context["problem"], context["rule"], context["remedy"])
    return Finding(loc, _problem(kind, value, details["msg"]), rule)


_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "mapping_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
}


def _problem(kind: str, value: object, message: str) -> str:
    shown = _shown(value)
    given = f"is {json.dumps(shown, ensure_ascii=False)[:80]}" if shown is not None else f"is {_noun(value)}"
    if kind in _WANTED:
        return f"{given}, not {_WANTED[kind]}"
    if kind in (
        "literal_error",
        "string_pattern_mismatch",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
    ):
        return given
    if kind in ("string_too_long", "too_short", "too_long"):
        return f"{given}: {message[0].lower()}{message[1:]}"
    return message


def _noun(value: object) -> str:
    names = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        str: "text",
        int: "a whole number",
        float: "a number",
    }
    return names.get(type(value), "of another kind")


# --- keys that the plan does not know -----------------------------------------------------------------------


def _unknown_key(loc: Loc, raw: object, *, guess: bool) -> Finding:
    key = str(loc[-1])
    if key in ("validation", "val", "valid") and loc[:-1] in (("data",), ("splits",)):
        return Finding(loc, *NOT_A_ROLE)
    known = _keys(loc[:-1])
    alike = _alike(key, known, loc[0]) if guess else []
    if alike:
        return Finding(loc, _UNKNOWN, None, f"did you mean {' or '.join(alike)}?")
    return Finding(loc, _UNKNOWN, f"known here: {', '.join(known)}" if known else None)


def _alike(key: str, known: Sequence[str], table: str | int) -> list[str]:
    """What was probably meant: another word for it, a key spelt like it, or the same key in another table."""
    if (
        key in _OTHER_NAMES
        and _OTHER_NAMES[key].partition(";")[0].partition(" ")[0].partition(".")[0] in known
    ):
        return [_OTHER_NAMES[key]]
    elsewhere = [name for name in Plan.model_fields if name != table and key in _keys((name,))]
    return difflib.get_close_matches(key, known, n=1) or [f"{name}.{key}" for name in elsewhere]


def _keys(loc: Loc) -> list[str]:
    model = _model_at(loc)
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def _description(loc: Loc) -> str | None:
    """What would pass at `loc`: the description of its key, or of the nearest key around it."""
    for end in range(len(loc), 0, -1):
        model = _model_at(loc[: end - 1])
        if model is not None and isinstance(loc[end - 1], str):
            for name, field in model.model_fields.items():
                if loc[end - 1] == (field.alias or name):
                    return field.description
    return None


def _model_at(loc: Loc) -> type[Table] | None:
    """The table whose keys lie under `loc`; None for free tables and plain values."""
    here: Any = Plan
    for part in loc:
        if isinstance(here, type) and issubclass(here, Table):
            fields = {field.alias or name: field for name, field in here.model_fields.items()}
            if part not in fields:
                return None
            here = _table_in(fields[str(part)].annotation)
        elif get_origin(here) is not None and issubclass(get_origin(here), Mapping):
            here = _table_in(get_args(here)[1])
        else:
            return None
    return here if isinstance(here, type) and issubclass(here, Table) else None


def _table_in(annotation: Any) -> Any:
    """The table, or the mapping to tables, that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    origin = get_origin(annotation)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _table_in(arg)) is not None), None)
