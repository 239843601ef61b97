"""Whether the recipe's own code reads a value for anything but itself and what is printed.

A counter that is counted up and printed bites nobody; one that is compared, multiplied or handed on may. So the code is
read, not run: from every place where the name is read, the value is followed through expressions, assignments,
functions that return it and parameters that take it. It is harmless where all of that ends in the value itself, in what
is printed, logged or shown, or in a branch that does only such things. What cannot be followed counts as read.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raykit.train.hidden.walk import Owner


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHOWN = _words(
    "collect empty_cache synchronize sleep print pprint debug info warning warn error exception critical "
    "log write writelines writerow writerows flush dump savefig plot add_scalar add_scalars add_text "
    "add_histogram add_image log_metric log_metrics log_dict set_postfix set_postfix_str set_description "
    "set_description_str display"
)
"""Calls that show what they are given, where what they give back is not used."""

CHANGES = _words(
    "append appendleft extend extendleft insert add update setdefault pop popleft popitem remove discard "
    "clear sort reverse rotate close start stop tick reset"
)
"""Methods that change a container, where what they give back is not used."""

_TOLD_ELSEWHERE = frozenset(
    {"state_dict", "__repr__", "__str__", "__format__", "extra_repr", "load_state_dict"}
)
"""What is returned by these is saved, or shown."""

_ASKED = _words(
    "backward model optimizer scheduler dataset losses collate fields evaluate embed classify text losses_given "
    "panels generate keep quality picture normalization forward step get_lr closure content"
)
"""What raykit or torch asks by itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is read; no file where nobody can say."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class _Name:
    """What is looked for: an attribute of some classes (of any, if none are named), a name, or a name of a function."""

    name: str
    attribute: bool
    classes: tuple[str, ...] = ()
    function: ast.AST | None = None
    key: str | int | None = None
    callable: bool = False
    anywhere: bool = False
    """Of a closure: whichever function has it as its own."""


class Code:
    """The recipe's own modules as text."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._trees: dict[str, ast.Module] = {}
        self._broken = False
        for file, data in sources.items():
            try:
                self._trees[file] = ast.parse(data)
            except (SyntaxError, ValueError, RecursionError):
                self._broken = True
        self._parent: dict[ast.AST, ast.AST] = {}
        self._file: dict[ast.AST, str] = {}
        self._functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._classes: set[str] = set()
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                self._file[node] = file
                if isinstance(node, ast.ClassDef):
                    self._classes.add(node.name)
                for child in ast.iter_child_nodes(node):
                    self._parent[child] = node
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._functions.setdefault(node.name, []).append(node)

    @staticmethod
    def of(modules: Mapping[str, types.ModuleType]) -> Code:
        """The text of modules that were imported."""
        sources: dict[str, bytes] = {}
        for module in modules.values():
            file = getattr(module, "__file__", None)
            if file is not None and file.endswith(".py"):
                try:
                    sources[Path(file).name if Path(file).name not in sources else file] = Path(
                        file
                    ).read_bytes()
                except OSError:
                    continue
        return Code(sources)

    def reads(self, owner: Owner) -> Place | None:
        """The first place where what `owner` holds is read for something else; None if there is none."""
        if owner.name is None:
            return Place("", 0)  # a library's own code does, as far as anybody knows
        if self._broken or not self._trees:
            return Place("the recipe", 0)
        closed = owner.path.endswith(f".({owner.name})")
        attribute = not closed and (bool(owner.classes) or _is_of_class(owner.path))
        name = _Name(
            owner.name, attribute, owner.classes, key=owner.key, callable=owner.called, anywhere=closed
        )
        return self._follow(name)

    def _follow(self, found: _Name) -> Place | None:
        waiting, known = [found], {found}
        while waiting:
            name = waiting.pop()
            for node in self._loads(name):
                for outcome in self._use(node, name):
                    if isinstance(outcome, Place):
                        return outcome
                    if outcome not in known:
                        known.add(outcome)
                        waiting.append(outcome)
        return None

    # --- where it is read -----------------------------------------------------------------------------------

    def _loads(self, name: _Name) -> Iterator[ast.expr]:
        for tree in [name.function] if name.function is not None else self._trees.values():
            for node in ast.walk(tree):
                if self._is_load(node, name):
                    assert isinstance(node, ast.expr)
                    yield node

    def _is_load(self, node: ast.AST, name: _Name) -> bool:
        if isinstance(node, ast.Call) and name.attribute:
            args = node.args
            asks = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(args) > 1
            return asks and isinstance(args[1], ast.Constant) and args[1].value == name.name
        if isinstance(node, ast.Name) and not name.attribute:
            mine = name.anywhere or name.function is not None or not self._is_local(node)
            return node.id == name.name and isinstance(node.ctx, ast.Load) and mine
        if (
            not isinstance(node, ast.Attribute)
            or not isinstance(node.ctx, ast.Load)
            or node.attr != name.name
        ):
            return False
        if not name.attribute:  # a global, read through its module
            return isinstance(node.value, ast.Name) and not name.function
        parent = self._parent.get(node)
        if isinstance(parent, ast.Call) and parent.func is node and not name.callable:
            return False  # a number is not called: that is another object's method
        if _is_self(node.value) and name.classes:
            enclosing = self._enclosing_class(node)
            return enclosing is None or enclosing in name.classes
        return True

    def _is_local(self, node: ast.Name) -> bool:
        """Whether a name is one of the function's own where it stands."""
        at: ast.AST | None = node
        while at is not None:
            at = self._parent.get(at)
            if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and node.id in _bound(at):
                return True
        return False

    def _enclosing_class(self, node: ast.AST) -> str | None:
        at = self._parent.get(node)
        while at is not None and not isinstance(at, ast.ClassDef):
            at = self._parent.get(at)
        return at.name if isinstance(at, ast.ClassDef) else None

    def _enclosing_function(self, node: ast.AST) -> ast.AST | None:
        at = self._parent.get(node)
        while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
            at = self._parent.get(at)
        return at

    # --- what it is read for --------------------------------------------------------------------------------

    def _use(self, node: ast.expr, name: _Name) -> Iterator[Place | _Name]:
        """What becomes of the value at `node`: nothing, other names that hold it then, or a place where it counts."""
        at: ast.AST = node
        parent = self._parent.get(at)
        if isinstance(parent, ast.Subscript) and parent.value is at and name.key is not None:
            other = isinstance(parent.slice, ast.Constant) and parent.slice.value != name.key
            if other:
                return
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Call) and at is not parent.func:
                if self._shows(parent):
                    return
                yield from self._given(parent, at)
            elif isinstance(parent, ast.keyword):
                call = self._parent[parent]
                if isinstance(call, ast.Call) and self._shows(call):
                    return
                if isinstance(call, ast.Call):
                    yield from self._given(call, parent)
                parent, at = self._parent.get(call), call
                continue
            elif isinstance(parent, ast.NamedExpr):
                yield self._local(parent.target, parent)
            elif isinstance(parent, ast.arguments):
                yield self._place(node)
                return
            elif isinstance(parent, ast.Yield | ast.YieldFrom):
                yield from self._returned(parent, node)
            at, parent = parent, self._parent.get(parent)
        if parent is not None:
            yield from self._in_statement(parent, at, node, name)

    def _in_statement(
        self, statement: ast.stmt, at: ast.AST, node: ast.expr, name: _Name
    ) -> Iterator[Place | _Name]:
        match statement:
            case ast.Expr(value=value):
                shown = isinstance(value, ast.Call) and self._shows(value)
                if not (shown or self._changes_itself(value, node) or self._is_followed(value, node)):
                    yield self._place(node)
            case ast.Assign(targets=targets):
                yield from self._assigned(targets, statement, at, name, node)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield from self._assigned([target], statement, at, name, node)
            case ast.Return():
                yield from self._returned(statement, node)
            case ast.If() if at is statement.test:
                yield from self._depend((*statement.body, *statement.orelse), name)
            case ast.For() if at is statement.iter:
                yield from self._targets(statement.target, statement, name, node)
                yield from self._depend(statement.body, name)
            case ast.Delete() | ast.Assert() | ast.Raise():
                return
            case _:
                yield self._place(node)

    def _assigned(
        self, targets: list[ast.expr], statement: Any, at: ast.AST, name: _Name, node: ast.expr
    ) -> Iterator[Place | _Name]:
        for target in targets:
            if at is statement.value or (at is target and _in_slice(target, node)):
                yield from self._targets(target, statement, name, node)

    def _targets(self, target: ast.expr, at: ast.AST, name: _Name, node: ast.expr) -> Iterator[Place | _Name]:
        """The names that hold the value after an assignment; none for itself."""
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    yield from self._targets(element, at, name, node)
            case ast.Starred(value=inner):
                yield from self._targets(inner, at, name, node)
            case ast.Name():
                yield self._local(target, at)
            case ast.Attribute(attr=attr):
                if attr == name.name and name.attribute:
                    return
                enclosing = self._enclosing_class(target) if _is_self(target.value) else None
                if (
                    enclosing is None
                ):  # of an object that may be anything: a group's, a module's, a parameter's
                    yield self._place(node)
                else:
                    yield _Name(attr, True, (enclosing,), callable=True)
            case ast.Subscript(value=value):
                if _ends_in(value, name):
                    return
                if isinstance(value, ast.Subscript):
                    value = value.value
                if isinstance(value, ast.Name | ast.Attribute):
                    yield from self._targets(value, at, name, node)
                else:
                    yield self._place(node)
            case _:
                yield self._place(node)

    def _local(self, target: ast.expr, at: ast.AST) -> _Name:
        assert isinstance(target, ast.Name)
        function = self._enclosing_function(at)
        if function is None or target.id in _declared_elsewhere(function):
            return _Name(target.id, False)
        return _Name(target.id, False, function=function)

    def _returned(self, at: ast.AST, node: ast.AST) -> Iterator[Place | _Name]:
        function = self._enclosing_function(at)
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield self._place(node)
        elif function.name in _TOLD_ELSEWHERE:
            return
        elif function.name in _ASKED or function.name.startswith("__") or self._may_be_asked(function):
            yield self._place(node)
        else:
            in_class = isinstance(self._parent.get(function), ast.ClassDef)
            yield _Name(function.name, in_class, callable=True)

    def _may_be_asked(self, function: ast.AST) -> bool:
        """Whether it is a method of a class whose library may call it."""
        enclosing = self._parent.get(function)
        bases = enclosing.bases if isinstance(enclosing, ast.ClassDef) else []
        names = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in bases}
        return bool(names - self._classes - {"object", "Module", "Dataset", "ABC", "Protocol"})

    def _given(self, call: ast.Call, at: ast.AST) -> Iterator[Place | _Name]:
        """The parameters that take the value, where one of the recipe's own functions is called."""
        for function in self._functions.get(_called(call) or "", ()):
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            if names and names[0] in ("self", "cls") and isinstance(call.func, ast.Attribute):
                names = names[1:]
            if isinstance(at, ast.keyword):
                taken = at.arg
            else:
                position = call.args.index(at) if at in call.args else -1
                taken = names[position] if 0 <= position < len(names) else None
            if taken is None or isinstance(at, ast.Starred):
                yield self._place(call)
            else:
                yield _Name(taken, False, function=function)

    # --- what bites nobody ----------------------------------------------------------------------------------

    def _shows(self, call: ast.Call) -> bool:
        """Whether a call, whose answer nobody uses, shows what it is given."""
        called = _called(call)
        return called in SHOWN and called not in self._functions and isinstance(self._parent[call], ast.Expr)

    def _changes_itself(self, value: ast.expr, node: ast.expr) -> bool:
        """`self.seen.add(x)`, `self.history.append(self.history[-1])`."""
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return False
        return value.func.attr in CHANGES and _same(_root(value.func.value), node)

    def _is_followed(self, value: ast.expr, node: ast.expr) -> bool:
        """Whether the statement calls one of the recipe's own functions, whose parameter is followed instead."""
        return isinstance(value, ast.Call) and node is not value.func and self._is_own_call(value)

    def _is_own_call(self, call: ast.Call) -> bool:
        """`report(x)` or `self.report(x)`, where the recipe has such a function; of other objects nobody knows."""
        plain = isinstance(call.func, ast.Name) or (
            isinstance(call.func, ast.Attribute) and _is_self(call.func.value)
        )
        return plain and _called(call) in self._functions

    def _depend(self, statements: Iterable[ast.stmt], name: _Name) -> Iterator[Place | _Name]:
        """What changes with it that these statements are done or not: nothing where they only show something."""
        waiting, known = list(statements), set[str]()
        while waiting:
            statement = waiting.pop()
            match statement:
                case (
                    ast.Pass()
                    | ast.Continue()
                    | ast.Global()
                    | ast.Nonlocal()
                    | ast.Import()
                    | ast.ImportFrom()
                ):
                    continue
                case ast.Assert() | ast.Raise() | ast.Delete() | ast.Expr(value=ast.Constant()):
                    continue
                case ast.Expr(value=ast.Call() as call):
                    called = _called(call) or ""
                    if self._is_own_call(call):
                        new = () if called in known else self._functions[called]
                        waiting += [inner for function in new for inner in function.body]
                        known.add(called)
                    elif called in CHANGES and isinstance(call.func, ast.Attribute):
                        yield from self._targets(_root(call.func.value), statement, name, call)
                    elif called not in SHOWN:
                        yield self._place(call)
                case ast.If():
                    waiting += [*statement.body, *statement.orelse]
                case ast.With() | ast.For():
                    waiting += statement.body
                case ast.Assign(targets=targets):
                    for target in targets:
                        yield from self._targets(target, statement, name, target)
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                    yield from self._targets(target, statement, name, target)
                case ast.Return(value=None | ast.Constant(value=None)):
                    function = self._enclosing_function(statement)
                    if isinstance(function, ast.FunctionDef) and function.name not in known:
                        known.add(function.name)
                        waiting += [inner for inner in function.body if inner.lineno > statement.lineno]
                case ast.Return():
                    yield from self._returned(statement, statement)
                case _:
                    yield self._place(statement)

    def _place(self, node: ast.AST) -> Place:
        return Place(self._file.get(node, "the recipe"), getattr(node, "lineno", 0))


def _is_of_class(path: str) -> bool:
    """`module recipe: Tiny.passes`: an attribute of a class, or of a function."""
    return path.startswith("module ") and "." in path.partition(": ")[2].partition("(")[0]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _called(call: ast.AST) -> str | None:
    func = call.func if isinstance(call, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else None


def _root(node: ast.expr) -> ast.expr:
    """`self.memo` of `self.memo[key].values`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def _within(outer: ast.AST, node: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(outer))


def _in_slice(target: ast.expr, node: ast.AST) -> bool:
    """Whether `node` says where in a container something is put."""
    slices = (inner.slice for inner in ast.walk(target) if isinstance(inner, ast.Subscript))
    return any(_within(inner, node) for inner in slices)


def _ends_in(node: ast.expr, name: _Name) -> bool:
    node = _root(node)
    if isinstance(node, ast.Attribute):
        return node.attr == name.name
    return isinstance(node, ast.Name) and node.id == name.name


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Collection[str]:
    """The names that are a function's own."""
    arguments = function.args
    found = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    found.update(a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None)
    if isinstance(function, ast.Lambda):
        return found
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found - _declared_elsewhere(function)


def _declared_elsewhere(function: ast.AST) -> set[str]:
    """The names that a function takes from outside of it, and may change there."""
    return {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }


__all__ = ["Code", "Place"]
