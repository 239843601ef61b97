"""The synthetic sets of a plan as people read them before anything is made: one block for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from raykit.cli import look, output

if TYPE_CHECKING:
    from raykit.fleet.generate.ahead import InputsAhead
    from raykit.fleet.site import Site
    from raykit.plan.tables import Generate


def blocks(site: Site) -> Iterator[str]:
    """What each `[generate.NAME]` asks for; nothing for a plan without any."""
    ahead = _ahead(site)
    for name, target in site.plan.generate.items():
        yield ""
        yield f"  SET {name}"
        facts = list(_facts(target, ahead.get(name)))
        width = max(len(label) for label, _ in facts)
        for label, text in facts:
            yield from output.wrapped(f"{label:<{width}}  {text}", output.width(), hang=width + 2)


def record(site: Site) -> dict[str, Any]:
    """The same for programs."""
    ahead = {name: dict(each.types) for name, each in _ahead(site).items()}
    return {
        name: target.model_dump(mode="json") | ({"columns": ahead[name]} if name in ahead else {})
        for name, target in site.plan.generate.items()
    }


def _ahead(site: Site) -> Mapping[str, InputsAhead]:
    """The inputs of each set that has some, as they would be read now."""
    if all(target.inputs is None for target in site.plan.generate.values()):
        return {}
    from raykit.fleet.generate.ahead import inputs_ahead  # only now: it loads pyarrow

    return inputs_ahead(site)


def _facts(target: Generate, ahead: InputsAhead | None) -> Iterator[tuple[str, str]]:
    yield "rows", _rows(target)
    if ahead is not None:
        yield "columns", _columns(ahead)
    yield "units", _units(target)
    yield "teacher", _teacher(target)
    yield "decode", f"{_settings(target.decode)}; seed {target.seed}"
    if target.options:
        listed = "; ".join(f"{name}: {_settings(decode)}" for name, decode in target.options.items())
        yield "options", f"{listed}; compared on {target.quality}, before anything is made"
    yield "bounds", ", ".join(_bound(kind, most) for kind, most in target.bounds.items())
    yield "unsaid", _unsaid(target)
    yield "exact", _exact(exact=target.exact)
    canary = look.many(target.canary_units, "unit")
    yield "canary", f"{canary} by one worker, judged before others join"


def _rows(target: Generate) -> str:
    if target.inputs is None:
        return "as the plan says" if target.rows is None else output.count(target.rows)
    each = f"{target.inputs}, {look.many(target.samples, 'row')} for each input"
    return each if target.rows is None else f"{each}, the first {output.count(target.rows)} at most"


def _columns(ahead: InputsAhead) -> str:
    """`id text, prompt text, length int64, of 1,797 inputs`."""
    if ahead.unread is not None:
        return f"not known yet: {ahead.unread}"
    listed = ", ".join(f"{name} {_NAMES.get(type_, type_)}" for name, type_ in ahead.types.items())
    return f"{listed}, of {look.many(ahead.rows, 'input')}; others by types = {{ COLUMN = TYPE }}"


_NAMES = {"string": "text", "large_string": "text", "double": "float64"}
"""As the plan has them."""


def _units(target: Generate) -> str:
    units = "" if target.rows is None else f"{output.count(-(-target.rows // target.unit_rows))} of "
    most = " at most" if units and target.inputs is not None else ""
    window = "loss window: the one unit that each worker has in hand"
    return f"{units}{output.count(target.unit_rows)} rows{most}; {window}"


def _teacher(target: Generate) -> str:
    whose = "whichever checkpoint of this experiment is approved for generation"
    return whose if target.teacher == "selected" else f"{target.teacher}, once it is approved for generation"


def _settings(decode: Mapping[str, Any]) -> str:
    from raykit.plan.template import toml_value

    return ", ".join(f"{name} = {toml_value(value)}" for name, value in decode.items()) or "nothing said"


def _unsaid(target: Generate) -> str:
    """The bounds that hold for what the plan does not speak of."""
    from raykit.shards.bounds import UNSAID

    left = {kind: most for kind, most in UNSAID.items() if kind not in target.bounds}
    if target.inputs is not None:
        left.pop("duplicates", None)
    listed = ", ".join(_bound(kind, most) for kind, most in left.items())
    return f"{listed}, where rows can be so" if left else "nothing"


def _bound(kind: str, most: float) -> str:
    return f"{kind} at most {100 * most:.3g} %" if most else f"{kind} none"


def _exact(*, exact: bool) -> str:
    if exact:
        return "yes: two attempts at a unit come to the same bytes"
    return "no: two attempts at a unit may differ, and the first one counts"
