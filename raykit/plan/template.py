"""The text of a new plan: what is proposed is a visible line, what is a judgement is left open.

(p)         raykit proposes it: a cadence, a percentile; never a threshold of quality
(r)         the recipe proposes it, in its own `proposes`
(b)         as in the plan that the base was trained by
<- yours    only you can say it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

MARK = "<- yours"
COMMENT_COLUMN = 40

Mark = Literal["p", "r", "b"]


class Param(NamedTuple):
    """One parameter of a recipe. `default` is None where it has none, or none that TOML can say."""

    name: str
    default: object


class Line(NamedTuple):
    """One line of a plan. Without a value and a mark, it is yours."""

    key: str
    value: object
    mark: Mark | None
    note: str = ""

    @property
    def text(self) -> str:
        comment = f"({self.mark})" if self.mark else MARK
        if self.note:
            comment += f" {self.note}" if self.mark else f": {self.note}"
        return comment


Table = tuple[str, Sequence[Line]]
"""The heading of a table, empty for the first one, and its lines."""


# --- a plan for a recipe ------------------------------------------------------------------------------------


def plan_text(
    *,
    name: str,
    recipe: str,
    params: Sequence[Param],
    proposes: Mapping[str, Any],
    has_fields: bool,
    base: str | None = None,
) -> str:
    """A plan for `recipe` with every judgement left open, from `base` if there is one. It does not check until then."""
    of = _Proposals(proposes)
    tables: list[Table] = [
        (
            "",
            [
                Line("schema", 1, "p"),
                Line("name", name, "p"),
                Line("recipe", recipe, "p"),
                Line("decision", "", None, "what will be chosen with the result"),
                of.line(
                    "",
                    "category",
                    "model-selection",
                    "causal-comparison | production-improvement | final-audit too",
                ),
                Line("if_no", "", None, "what is done if the answer is no"),
            ],
        ),
        ("claim", list(_claim(of))),
        *([] if base is None else [("base", list(_base(base)))]),
        ("splits", list(_splits(of))),
        ("run", list(_run(of, params))),
    ]
    if "qc" in proposes:
        tables.append(("qc", list(_qc(of, has_fields))))
    for target, lines in (proposes.get("generate") or {}).items():
        tables.append((f"generate.{target}", [Line(key, value, "r") for key, value in lines.items()]))
    tables.append(("budget", list(_budget())))
    text = _written(tables)
    return text if "qc" in proposes else text + _QC_LATER + (_FIELDS if has_fields else "")


_QC_LATER = """
# [qc]      what is checked on every checkpoint: asked for before anything is generated or compared
# owner      = "you"
# every      = 200
# roster     = { stratum = "label", units = 20 }
# fail       = { "worst.ratio" = "> 0.35" }      # of the stratum that does worst
# on_failure = "pause"
"""

_FIELDS = '# fields     = { NAME = { space = "log", low = 5, high = 95, collapse = 0.2 } }   # (p)\n'


class _Proposals:
    """What the recipe proposes, table by table."""

    def __init__(self, proposes: Mapping[str, Any]) -> None:
        self._proposes = proposes

    def has(self, table: str, key: str) -> bool:
        return key in self._table(table)

    def line(self, table: str, key: str, otherwise: object, note: str = "") -> Line:
        """The recipe's value, or else raykit's own proposal."""
        found = self._table(table)
        return Line(key, found[key], "r") if key in found else Line(key, otherwise, "p", note)

    def asked(self, table: str, key: str, note: str, empty: object = "") -> Line:
        """The recipe's value, or else a line that is yours."""
        found = self._table(table)
        return Line(key, found[key], "r") if key in found else Line(key, empty, None, note)

    def _table(self, table: str) -> Mapping[str, Any]:
        found = self._proposes.get(table, {}) if table else self._proposes
        return found if isinstance(found, Mapping) else {}


def _claim(of: _Proposals) -> Iterator[Line]:
    yield of.asked("claim", "unit", "what one prediction is about, such as one image")
    yield of.asked("claim", "target", "what the target means, and whether a label is predicted")
    yield of.asked("claim", "population", "what the result is meant to hold for")
    yield of.line("claim", "metric", "ratio", "the loss over that of predicting zero")
    yield Line(
        "worthwhile", "", None, "a number: the smallest change in the metric that would change what you do"
    )
    yield Line("success", "", None, "the result that counts as success, in the metric's units")
    yield of.asked("claim", "compare", 'what it is compared with: ["mean", "last year\'s model"]', [])


def _base(candidate: str) -> Iterator[Line]:
    yield Line("candidate", candidate, "p")
    yield Line("start", "continue", "p", "use | continue | replay | pilot | fresh")
    yield Line("keep", ["weights"], "p")


def _splits(of: _Proposals) -> Iterator[Line]:
    yield of.line("splits", "group", "content", "equal examples stay together; or a column of the data")
    yield of.asked("splits", "train", "shares that sum to 1")
    yield of.asked("splits", "development", "selects")
    yield of.asked("splits", "report_only", "reports, never selects; others call it validation")


def _run(of: _Proposals, params: Sequence[Param]) -> Iterator[Line]:
    yield Line("updates", "", None, "optimizer updates of the whole run")
    yield of.asked("run", "batch", "examples per update, over all workers")
    yield of.line("run", "seed", 1)
    values = {param.name: "" if param.default is None else param.default for param in params}
    unset = ", ".join(param.name for param in params if param.default is None)
    yield Line("params", values, None, unset) if unset else Line("params", values, "r")
    yield of.line("run", "checkpoint_every", 200, "also how often development is scored")
    yield of.line("run", "select", "min development.ratio")
    yield of.line("run", "stop", "never")
    yield of.line("run", "curves", {"every": 100, "smooth": "ema 0.98"})


def _qc(of: _Proposals, has_fields: bool) -> Iterator[Line]:
    yield Line("owner", "", None, "the person who answers for it")
    yield of.asked("qc", "every", "updates, a multiple of checkpoint_every")
    yield of.asked("qc", "roster", "the column whose values are kept apart", {"stratum": "", "units": 20})
    yield Line(
        "fail", {}, None, 'what fails a checkpoint; no threshold is proposed: { "worst.ratio" = "> 0.35" }'
    )
    if has_fields and of.has("qc", "fields"):
        yield of.line("qc", "fields", {})
    yield of.line("qc", "on_failure", "pause", "continue | pause | stop")


def _budget() -> Iterator[Line]:
    yield Line("ceiling_usd", "", None, "this machine's own CPUs are not billed, and the record says so")
    yield Line("confirm", "one-run", "p")


# --- a plan that goes on from weights -----------------------------------------------------------------------


def continuation_text(
    *, name: str, candidate: str, settings: Mapping[str, Any], trained: int, asks_why: bool
) -> str:
    """A plan that continues from a base, with what the plan said that it was trained by: `settings`."""
    run = dict(settings["run"])
    billed = bool(settings.get("pools"))
    tables: list[Table] = [
        (
            "",
            [
                Line("schema", 1, "p"),
                Line("name", name, "p"),
                Line("recipe", settings["recipe"], "b"),
                Line("decision", "", None, "what will be chosen with the result"),
                Line("category", _category(settings), "p", "checkpoint reuse is normal here"),
                Line("if_no", "", None, f"what is done if the answer is no: keep {candidate}?"),
            ],
        ),
        ("claim", _claim_beside(candidate, settings["claim"])),
        (
            "base",
            [
                Line("candidate", candidate, "p"),
                Line("start", "continue", "p", "use | continue | replay | pilot | fresh"),
                Line("keep", ["weights", "optimizer"], "p"),
                *(
                    [
                        Line("against_as_is", "", None, "why the base as it is does not answer the question"),
                        Line(
                            "against_pilot", "", None, "why a pilot does not, with its result if there is one"
                        ),
                    ]
                    if asks_why
                    else []
                ),
            ],
        ),
    ]
    for table in ("splits", "data"):
        if settings.get(table):
            tables.append((table, _as_before(settings[table])))
    tables.append(
        (
            "run",
            _as_before(run, ask={"updates": f"a short schedule; {candidate} was trained for {trained:,}"}),
        )
    )
    if settings.get("qc"):
        tables.append(("qc", _as_before(settings["qc"])))
    for target, inner in (settings.get("generate") or {}).items():
        tables.append((f"generate.{target}", _as_before(inner)))
    for pool, inner in (settings.get("pools") or {}).items():
        tables.append((f"pools.{pool}", _as_before(inner)))
    budget = dict(settings.get("budget") or {"confirm": "one-run"})
    ceiling = "accelerator_hours" if "accelerator_hours" in budget else "ceiling_usd"
    note = (
        "what all of this may cost"
        if billed
        else "this machine's own CPUs are not billed, and the record says so"
    )
    tables.append(("budget", _as_before({ceiling: "", **budget}, ask={ceiling: note})))
    return _written(tables)


def _category(settings: Mapping[str, Any]) -> str:
    """What a continuation is for: a production model only where rows are left that selected nothing."""
    roles = (settings.get("splits") or {}).keys() | (settings.get("data") or {}).keys()
    return "production-improvement" if roles & {"report_only", "sealed", "benchmark"} else "model-selection"


def _claim_beside(candidate: str, claim: Mapping[str, Any]) -> list[Line]:
    """The claim as it was, compared with the base first."""
    others = [each for each in claim.get("compare", ()) if each != candidate]
    lines = _as_before(claim, ask={"success": "what counts as better than the base"})
    return [Line("compare", [candidate, *others], "p") if line.key == "compare" else line for line in lines]


def _as_before(table: Mapping[str, Any], ask: Mapping[str, str] | None = None) -> list[Line]:
    ask = ask or {}
    lines = []
    for key, value in table.items():
        if value is None or value == {} or value == []:
            continue
        lines.append(Line(key, "", None, ask[key]) if key in ask else Line(key, value, "b"))
    return lines


# --- text ---------------------------------------------------------------------------------------------------


def _written(tables: Sequence[Table]) -> str:
    blocks = []
    for heading, lines in tables:
        width = max(len(line.key) for line in lines)
        block = [f"[{heading}]"] if heading else []
        block += [_aligned(f"{line.key:<{width}} = {toml_value(line.value)}", line) for line in lines]
        blocks.append("\n".join(block) + "\n")
    return "\n".join(blocks)


def _aligned(setting: str, line: Line) -> str:
    plain = line.mark in ("p", "b") and line.key in ("schema", "name", "recipe")
    return setting if plain else f"{setting:<{COMMENT_COLUMN}}  # {line.text}"


def open_judgements(text: str) -> int:
    """How many lines of a new plan wait for a judgement."""
    return text.count(MARK)


def toml_value(value: object) -> str:
    """A plain value as TOML on one line.

    Raises:
        TypeError: TOML has no such value.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        given = {key: item for key, item in value.items() if item is not None}
        return (
            f"{{ {', '.join(f'{_key(key)} = {toml_value(item)}' for key, item in given.items())} }}"
            if given
            else "{}"
        )
    raise TypeError(f"TOML has no {type(value).__name__}")


def _key(key: object) -> str:
    text = str(key)
    return text if text.isascii() and text.replace("_", "").replace("-", "").isalnum() else toml_value(text)
