"""The command line called in this process: its exit code, and what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from raykit.cli.main import main


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Raykit = Callable[..., Called]


def calls(capsys: pytest.CaptureFixture[str]) -> Raykit:
    """A function that calls one command."""

    def call(*arguments: str) -> Called:
        code = main(arguments)
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return call
