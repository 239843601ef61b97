"""`make demo`: the bundled job on a local Ray, and where everything it made is.

    python -m jobs.demo --root demo/store

Every act is a `raykit` command, printed before it runs, so that it can be typed again by hand.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

PLAN = Path(__file__).parent / "digits" / "plan.toml"
NAME = "digits-vae"


def main() -> int:
    """Run the demo; returns the exit code of the first command that did not end well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("demo/store"))
    root = parser.parse_args().root
    plan = os.path.relpath(PLAN)
    acts = [
        ("check the plan", ["plan", "show", plan]),
        ("train it", ["launch", plan]),
        ("what there is now", ["status"]),
        ("its history", ["history", NAME]),
        ("its checkpoints", ["checkpoints", "list", NAME]),
        ("is the store in order?", ["check", "--read-data"]),
    ]
    for number, (what, command) in enumerate(acts, start=1):
        print(f"\n[{number}/{len(acts)}] {what}\n$ raykit {shlex.join(command)}", flush=True)
        code = raykit(command, root)
        if code:
            return code
    print(
        f"\nResults: {root}/experiments/{NAME}\n"
        f"Pictures: {root}/experiments/{NAME}/runs/main/curves/ratio.png, development.png, fields.png\n"
        "Again: `make demo` leaves the finished run alone. Now prove it: `make prove`"
    )
    return 0


def raykit(command: list[str], root: Path) -> int:
    """One command, as a person would type it, on this root."""
    program = Path(sys.executable).with_name("raykit")
    return subprocess.run([str(program), *command], env={**os.environ, "RAYKIT_ROOT": str(root)}).returncode


if __name__ == "__main__":
    sys.exit(main())
