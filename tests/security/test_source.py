"""What the source may not do, whatever the tests of behaviour cover: no code is ever read from data.

# covers S7, S10
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "raykit"

MODULES = {
    "pickle": "runs code from data",
    "_pickle": "runs code from data",
    "cloudpickle": "runs code from data",
    "dill": "runs code from data",
    "joblib": "runs code from data",
    "marshal": "runs code from data",
    "shelve": "runs code from data",
    "yaml": "plans are TOML, records are JSON",
    "torch.distributed.checkpoint": "its metadata is a pickle",
}
CALLS = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "compile": "makes code of text",
    "__import__": "imports what text names",
    "torch.load": "is a pickle",
    "torch.save": "is a pickle",
    "torch.jit.load": "runs code from data",
    "torch.hub.load": "runs code from the network",
    "numpy.save": "may write a pickle: use safetensors",
    "os.system": "gives text to a shell",
    "os.popen": "gives text to a shell",
}
IMPORTERS = {"train/find_recipe.py", "cli/main.py", "__init__.py"}
"""Who may import by name: the plan's recipe, raykit's own commands, and its own lazily loaded names."""

READS_PICKLES = {"train/dcp.py": {"pickle", "torch.distributed.checkpoint"}}
"""A torch DCP folder of a person who says that its source is trusted, by a list of names. Nothing of the store."""


def offences(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """Every forbidden thing in a module: its line and what it is."""
    names = _names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in _imported(node):
                known = MODULES.keys() - READS_PICKLES.get(path, set())
                if forbidden := next((m for m in known if module == m or module.startswith(f"{m}.")), None):
                    yield node.lineno, f"{forbidden} {MODULES[forbidden]}"
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            dotted = _dotted(node, names)
            if dotted in CALLS:
                yield node.lineno, f"{dotted} {CALLS[dotted]}"
            if dotted == "importlib.import_module" and path not in IMPORTERS:
                yield node.lineno, "imports by name"
        elif (
            isinstance(node, ast.keyword)
            and isinstance(node.value, ast.Constant)
            and node.value.value is True
        ):
            if node.arg in ("allow_pickle", "shell"):
                yield node.value.lineno, f"{node.arg}=True"
        elif isinstance(node, ast.keyword) and node.arg == "weights_only":
            yield node.value.lineno, "reads a pickle, with fewer classes"
        elif isinstance(node, ast.Constant) and node.value == "_target_":
            yield node.lineno, "_target_ names code in data"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = node.module or ""
    return [module, *(f"{module}.{alias.name}" for alias in node.names)]


def _names(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a module stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return "?"


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
)
def test_no_code_is_read_from_data(path: Path) -> None:
    found = list(offences(ast.parse(path.read_text("utf-8")), path.relative_to(SOURCE).as_posix()))
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n    import cloudpickle",
        "import joblib.externals",
        "import yaml",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x', weights_only=True)",
        "from torch import load\nload('x')",
        "from torch.distributed import checkpoint",
        "import torch.distributed.checkpoint as dcp",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "eval('1')",
        "f = exec",
        "compile('1', 'x', 'eval')",
        "__import__('x')",
        "from importlib import import_module\nimport_module('x')",
        "import importlib\nimportlib.import_module('x')",
        "import subprocess\nsubprocess.run('x', shell=True)",
        "import os\nos.system('x')",
        "d = {}\nd['_target_']",
    ],
)
def test_each_forbidden_thing_is_seen(text: str) -> None:
    assert list(offences(ast.parse(text), "x.py"))


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "re.compile('x')",
        "json.loads('1')",
        "import numpy as np\nnp.load('x')",
        "x = 'pickle'",
    ],
)
def test_what_only_looks_like_it_is_let_be(text: str) -> None:
    assert not list(offences(ast.parse(text), "x.py"))
