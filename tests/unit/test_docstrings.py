"""A function that raises an error on purpose says so: people decide by it what to catch."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raykit import errors

SOURCE = Path(__file__).parents[2] / "raykit"
ERRORS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.RaykitError)
}
FILES = sorted(SOURCE.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function and method that others may call."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for item in node.body:
                if isinstance(item, Function) and not item.name.startswith("_"):
                    yield f"{node.name}.{item.name}", item


def raised(function: Function, makers: dict[str, str]) -> set[str]:
    """The raykit errors that a function's own body raises, by itself or with a function that makes them."""
    found = set()
    for node in _own(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            found.add(makers.get(name, name))
    return found & ERRORS.keys()


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.Lambda):
            yield child
            yield from _own(child)


def makers(tree: ast.Module) -> dict[str, str]:
    """Functions of a module whose return annotation is an error."""
    return {
        node.name: node.returns.id
        for node in ast.walk(tree)
        if isinstance(node, Function) and isinstance(node.returns, ast.Name) and node.returns.id in ERRORS
    }


def named(function: Function) -> set[str]:
    """The errors that a docstring's `Raises:` section names."""
    doc = ast.get_docstring(function) or ""
    section = re.search(r"^Raises:\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE)
    return set(re.findall(r"^ {4}(\w+):", section.group(1), re.MULTILINE)) if section else set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_what_is_raised_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    made = makers(tree)
    silent = {
        name: sorted(missing)
        for name, function in public_functions(tree)
        if (missing := {error for error in raised(function, made) if not _covered(error, named(function))})
    }
    assert silent == {}


def _covered(error: str, said: set[str]) -> bool:
    """Is the error named, or one of those that it is a kind of, other than the root of all?"""
    kinds = {kind.__name__ for kind in ERRORS[error].__mro__ if issubclass(kind, errors.RaykitError)}
    return error in said or bool((kinds - {"RaykitError"}) & said)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_what_is_documented_exists(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    local = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    unknown = {
        name: wrong
        for name, function in public_functions(tree)
        if (
            wrong := {
                e for e in named(function) if e not in ERRORS and e not in local and not hasattr(builtins, e)
            }
        )
    }
    assert unknown == {}


def test_a_silent_raise_is_seen() -> None:
    tree = ast.parse(
        'def f():\n    """X.\n\n    Raises:\n        ConflictError: y.\n    """\n    raise ConflictError("a")\n'
        'def g():\n    """X."""\n    raise CorruptError("a") from None\n'
        "def h():\n    raise _bad()\n"
        "def _bad() -> PlanError: ...\n"
        'def i():\n    def inner():\n        raise PlanError("a")\n'
    )
    made = makers(tree)
    found = {name: raised(function, made) - named(function) for name, function in public_functions(tree)}
    assert found == {"f": set(), "g": {"CorruptError"}, "h": {"PlanError"}, "i": set()}
