"""The text of a new plan: what is proposed is a visible line, what is a judgement is left open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MARK = "<- yours"
COMMENT_COLUMN = 40


class Param(NamedTuple):
    """One parameter of a recipe. `default` is None where it has none, or none that TOML can say."""

    name: str
    default: object


_TEXT = """\
schema   = 1
name     = {name}
recipe   = {recipe}
decision = ""\t<- yours: what will be chosen with the result
category = ""\t<- yours: causal-comparison | model-selection | production-improvement | final-audit
if_no    = ""\t<- yours: what is done if the answer is no

[claim]
unit       = ""\t<- yours: what one prediction is about, such as one image
target     = ""\t<- yours: what the target means, and whether a label is predicted
population = ""\t<- yours: what the result is meant to hold for
metric     = ""\t<- yours: the one task metric, by its name
worthwhile = ""\t<- yours: a number: the smallest change in the metric that would change what you do
success    = ""\t<- yours: the result that counts as success, in the metric's units
compare    = []\t<- yours: what it is compared with: ["mean", "last year's model"]

[splits]
group       = ""\t<- yours: what stays together: "content" (equal examples), or a column of the data
train       = ""\t<- yours: shares that sum to 1
development = ""\t<- yours: selects
report_only = ""\t<- yours: reports, never selects; others call it validation

[run]
updates          = ""\t<- yours: optimizer updates of the whole run
batch            = ""\t<- yours: examples per update, over all workers
seed             = 1\t(p)
{params}
checkpoint_every = ""\t<- yours: updates; also how often development is scored
select           = ""\t<- yours: "min development.<metric>" or "max development.<metric>"
stop             = "never"\t(p)
curves           = {{ every = 100, smooth = "ema 0.98" }}\t(p)

[qc]
owner      = ""\t<- yours: the person who answers for it
every      = ""\t<- yours: updates, a multiple of checkpoint_every
roster     = {{ stratum = "", units = 20 }}\t<- yours: the column whose values are kept apart
fail       = {{}}\t<- yours: what fails a checkpoint; no threshold is proposed: {{ ratio = "> 0.35" }}
{fields}on_failure = ""\t<- yours: continue | pause | stop

[budget]
ceiling_usd = ""\t<- yours: this machine's own CPUs are not billed, and the record says so
confirm     = "one-run"\t(p)
"""

_FIELDS = '# fields   = { NAME = { space = "log", low = 5, high = 95, collapse = 0.2 } }\t(p)\n'


def plan_text(*, name: str, recipe: str, params: Sequence[Param], has_fields: bool) -> str:
    """A plan for `recipe` with every judgement left open. It does not check until they are made."""
    text = _TEXT.format(
        name=toml_value(name),
        recipe=toml_value(recipe),
        params=_params_line(params),
        fields=_FIELDS if has_fields else "",
    )
    return "\n".join(_aligned(*line.partition("\t")) for line in text.split("\n"))


def _aligned(setting: str, tab: str, comment: str) -> str:
    return f"{setting:<{COMMENT_COLUMN}}  # {comment}" if tab else setting


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
        return f"{{ {', '.join(f'{_key(key)} = {toml_value(item)}' for key, item in value.items())} }}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _key(key: object) -> str:
    text = str(key)
    return text if text.isascii() and text.replace("_", "").replace("-", "").isalnum() else toml_value(text)


def _params_line(params: Sequence[Param]) -> str:
    values = {param.name: "" if param.default is None else param.default for param in params}
    line = f"params           = {toml_value(values) if values else '{}'}"
    unset = [param.name for param in params if param.default is None]
    return f"{line}\t{MARK}: {', '.join(unset)}" if unset else f"{line}\t(p)"
