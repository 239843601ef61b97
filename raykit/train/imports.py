"""What a module imports, by its text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def imports_of(data: bytes, package: tuple[str, ...]) -> Iterator[str]:
    """What a module of `package` imports anywhere; a name that is taken from a module may be a module itself."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: max(0, len(package) + 1 - node.level)] if node.level else ()
            source = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*source, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield "importlib"
        elif isinstance(node, ast.Call) and (name := _asked_for(node)) is not None:
            yield name


def _asked_for(call: ast.Call) -> str | None:
    """The module that `import_module("build.rules")` or `__import__("rules")` names, if it is written out in full."""
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    given = call.args[0] if call.args else None
    if named not in ("import_module", "__import__") or not isinstance(given, ast.Constant):
        return None
    name = given.value
    return name if isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) else None
