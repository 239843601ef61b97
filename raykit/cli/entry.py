"""What a Ray job runs: one command of raykit, once it is seen that this process has the raykit that was sent.

python -m raykit.cli.entry --launch 1f0c2b3a4d5e --raykit SHA256 launch job/plan.toml --root s3://bucket/prefix
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from raykit.cli.main import main as raykit
from raykit.cli.options import LAUNCH, TYPED
from raykit.fleet.jobs.archive import GIT
from raykit.fleet.jobs.last import ENDS_WELL, Last
from raykit.fleet.package import package_digest, package_folder
from raykit.fleet.site import SENT_GIT

EXIT_ANOTHER = 5
"""This process has another raykit than the one that was sent: bytes disagree."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it was done, paused or refused, else its own exit code, which the last line has."""
    parser = argparse.ArgumentParser(prog="raykit.cli.entry")
    parser.add_argument("--launch", required=True, help="what the launch is called")
    parser.add_argument("--raykit", required=True, help="sha256 of the raykit that was sent")
    parser.add_argument("--typed", action="store_true", help="a person typed the command at a terminal")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(arguments)
    os.environ[LAUNCH] = asked.launch
    git = Path(GIT).resolve()
    if git.is_file():
        os.environ[SENT_GIT] = str(git)
    if asked.typed:
        os.environ[TYPED] = "1"
    code = _deployed(asked.raykit) or raykit(asked.command)
    sys.stderr.flush()
    print(Last(launch=asked.launch, exit_code=code).line(), flush=True)
    return 0 if code in ENDS_WELL else code


def _deployed(sent: str) -> int:
    """Whether this process runs the raykit that was sent; 0 if it does."""
    own = package_digest()
    if own != sent:
        sys.stderr.write(
            f"broken: this process has raykit {own[:12]} from {package_folder()}, "
            f"and {sent[:12]} was sent with the job\n"
            "  pass   take raykit out of the image's PYTHONPATH, or make it the one that is sent\n"
        )
        return EXIT_ANOTHER
    print(
        f"  raykit {metadata.version('raykit')}, sha256 {own[:12]}, as it was sent",
        file=sys.stderr,
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
