"""Twenty kills of the bundled run through Ray: launches, train controllers and workers, at random moments.

covers RAY-01, I4 I5 I10, F12
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1])
def test_twenty_kills_of_the_bundled_run(seed: int, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "jobs.prove",
        "--root",
        str(tmp_path),
        "--kills",
        "20",
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("  kill ") == 20
    assert "equal: the same run" in done.stdout
