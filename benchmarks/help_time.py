"""What a command costs before it does anything, against a bare interpreter that imports pydantic.

python -m benchmarks.help_time
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, main

ROUNDS = 15


def measure() -> Sequence[Figure]:
    raykit = str(Path(sys.executable).parent / "raykit")
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        commands = {
            "python -c 'import pydantic'": [sys.executable, "-c", "import pydantic"],
            "raykit --help": [raykit, "--help"],
            "raykit status, empty store": [raykit, "status", "--root", folder],
        }
        rounds = [{name: _seconds(command) for name, command in commands.items()} for _ in range(ROUNDS + 1)]
    bare, *others = commands
    figures = [Figure(what=bare, unit="s", values=[taken[bare] for taken in rounds[1:]])]
    for name in others:
        ratios = [taken[name] / taken[bare] for taken in rounds[1:]]
        bar = 4.0 if name == "raykit --help" else None
        figures.append(Figure(what=f"{name} / bare pydantic", unit="x", values=ratios, at_most=bar))
    return figures


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(measure))
