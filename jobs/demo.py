"""`make demo`: the bundled job on a local Ray, and where everything it made is.

    python -m jobs.demo --root demo/store
    python -m jobs.demo --root demo/paid --rate 36 --ceiling 0.5

Every act is a `raykit` command, printed before it runs, so that it can be typed again by hand. What a person has to do
(look at what QC has drawn, and choose a checkpoint) is asked for on a terminal, and labelled scripted anywhere else.
With a rate and a ceiling, this machine is priced as if it were rented: where the ceiling is below the cost, the run
ends paused, and the demo with it (exit code 4), saying how a person goes on.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PLAN = Path(__file__).parent / "digits" / "plan.toml"
NAME = "digits-vae"
SET = "digits"
CANDIDATE = "digits-best"
SCRIPT = "demo"
PAUSED = 4

Act = tuple[str, list[str] | Callable[[str], list[str]]]
"""What is done, and the command that does it: at once, or once somebody has said who they are."""


def main() -> int:
    """Run the demo; returns the exit code of the first command that did not end well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("demo/store"))
    parser.add_argument("--rate", type=float, help="US dollars that this machine costs for an hour")
    parser.add_argument("--ceiling", type=float, help="US dollars that the plan stays below")
    options = parser.parse_args()
    root = options.root
    plan = os.path.relpath(PLAN if options.rate is None else priced(root, options.rate, options.ceiling))
    acts: list[Act] = [
        ("check the plan", ["plan", "show", plan]),
        ("train it, and examine every checkpoint beside training", ["launch", plan]),
        ("what there is now", ["status"]),
        ("what was examined", ["qc", "status", NAME]),
        ("your turn: look at the contact sheet", review),
        ("give the checkpoint that the plan's rule selects a name", register),
        ("choose it, for generation", approve),
        ("what may rest on it now", ["candidates", "show", CANDIDATE]),
        ("make the synthetic digits that it was chosen for", ["generate", plan]),
        ("every row of it, accounted for", ["generate", "status", f"{NAME}/{SET}"]),
        ("the history of its teacher", ["history", NAME]),
        ("a page of all of it", ["report", NAME]),
        ("is the store in order?", ["check", "--read-data"]),
    ]
    person = ""
    for number, (what, act) in enumerate(acts, start=1):
        print(f"\n[{number}/{len(acts)}] {what}", flush=True)
        if callable(act):
            person = person or somebody(root)
        command = act(person) if callable(act) else act
        print(f"$ raykit {shlex.join(command)}", flush=True)
        code = raykit(command, root)
        if code == PAUSED:
            print(f"\nPaused. To see why, and to go on:{_going_on(root, priced=options.rate is not None)}")
        if code:
            return code
    print(
        f"\nResults: {root}/experiments/{NAME}\n"
        f"Open: {root}/experiments/{NAME}/report/index.html\n"
        f"Pictures: {root}/experiments/{NAME}/qc/pictures/contact-sheet.png (what was examined)\n"
        f"          {root}/experiments/{NAME}/generation/{SET}/pictures/samples.png (what was made)\n"
        f"          {root}/experiments/{NAME}/runs/main/curves/ratio.png (how it learned)\n"
        "Again: `make demo` leaves the finished run and the closed set alone. Now prove it: `make prove`"
    )
    return 0


# --- what a person does -------------------------------------------------------------------------------------


def somebody(root: Path) -> str:
    """Who looks at the sheet: whoever types a name, or the demo itself, which says that it is a script."""
    print(f"  the sheet  {root}/experiments/{NAME}/qc/pictures/contact-sheet.png", flush=True)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return SCRIPT
    return input(f'  Reviewed by (your name, or Enter for "{SCRIPT}, scripted"): ').strip() or SCRIPT


def said_by(person: str) -> list[str]:
    return ["--by", person, *(["--scripted"] if person == SCRIPT else [])]


def review(person: str) -> list[str]:
    note = "the digits are drawn again, each from its own latents"
    return ["qc", "review", NAME, "--note", note, *said_by(person)]


def register(person: str) -> list[str]:
    return ["candidates", "register", CANDIDATE, NAME, "--role", "production-candidate", "--by", person]


def approve(person: str) -> list[str]:
    reason = "the best development ratio of a run whose checkpoints all passed"
    return ["candidates", "approve", CANDIDATE, "--use", "generation", "--reason", reason, *said_by(person)]


def priced(root: Path, rate: float, ceiling: float | None) -> Path:
    """The plan with a price on this machine, beside the store; the recipe comes with it."""
    folder = root.parent / f"{root.name}-job"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PLAN.with_name("recipe.py"), folder)
    text = PLAN.read_text()
    if ceiling is not None:
        text = text.replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}")
    price = f'usd_per_hour = {{ rate = {rate}, source = "the demo", billed = "resource" }}'
    plan = folder / "plan.toml"
    plan.write_text(f"{text}\n[pools.train]\ngpus         = 0\n{price}\n")
    return plan


def _going_on(root: Path, *, priced: bool) -> str:
    """The commands for a ceiling that was too low, or for a pause that somebody asked for."""
    replan = [
        "budget",
        "replan",
        NAME,
        "--ceiling",
        "4",
        "--by",
        "you",
        "--reason",
        "it costs more than guessed",
    ]
    money = [["budget", "show", NAME], replan] if priced else [["status"]]
    commands = [*money, ["resume", NAME]]
    return "".join(f"\n  raykit {shlex.join([*command, '--root', str(root)])}" for command in commands)


def raykit(command: list[str], root: Path) -> int:
    """One command, as a person would type it, on this root."""
    program = Path(sys.executable).with_name("raykit")
    return subprocess.run([str(program), *command], env={**os.environ, "RAYKIT_ROOT": str(root)}).returncode


if __name__ == "__main__":
    sys.exit(main())
