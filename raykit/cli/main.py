"""`raykit`: finds the command, calls it, and turns what it raises into a short text and an exit code.

Commands are named here and imported when they are called, so that `raykit --help` and mistyped commands load
neither ray nor torch.
"""

from __future__ import annotations

import inspect
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, at_root
from raykit.errors import RaykitError

STDOUT = 1

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: where its function is, and one line about it."""

    target: str
    help: str


@dataclass(frozen=True, slots=True)
class Group:
    """Commands under one word."""

    help: str
    entries: Mapping[str, Entry]
    own: Entry | None = None
    """What the word itself does, where it is followed by none of theirs."""


COMMANDS: Mapping[str, Entry | Group] = {
    "plan": Group(
        "Write a plan, check it and compute its lock, explain it.",
        {
            "new": Entry(
                "raykit.cli.newplan:new", "Write a plan for a recipe, or from weights that are there."
            ),
            "check": Entry("raykit.cli.plan:check", "Judge a plan, say what it will do, and write its lock."),
            "show": Entry("raykit.cli.plan:show", "Explain a plan whole: alternatives, changes, money."),
            "diff": Entry("raykit.cli.plan:diff", "What a change does to a plan and to its approval."),
        },
    ),
    "adopt": Entry("raykit.cli.adopt:adopt", "Take weights that were made elsewhere as a base."),
    "launch": Entry(
        "raykit.cli.launch:launch", "Run a plan, or go on with it; a finished one is left alone."
    ),
    "submit": Entry("raykit.cli.submit:submit", "Run a plan as a job on a Ray cluster, and follow it."),
    "resume": Entry("raykit.cli.resume:resume", "Go on with a run from the store alone."),
    "pause": Entry("raykit.cli.pausing:pause", "Commit, release and wait (others say suspend)."),
    "cancel": Entry("raykit.cli.people:cancel", "End an experiment for good; nothing is deleted."),
    "approve": Group(
        "What a person lets happen: money, a restart, lost state.",
        {
            "plan": Entry("raykit.cli.people:approve_plan", "Let one plan, as it stands, come to an amount."),
            "account": Entry("raykit.cli.people:approve_account", "Let a whole account come to an amount."),
            "restart": Entry("raykit.cli.people:approve_restart", "Let one plan train from scratch."),
            "harmless": Entry(
                "raykit.cli.people:approve_harmless", "Say that state outside of checkpoints does not matter."
            ),
        },
    ),
    "budget": Group(
        "What is planned, spent and reserved, and moving it.",
        {
            "show": Entry("raykit.cli.budget:show", "Lines, reserves, what is unknown, what waits for you."),
            "replan": Entry("raykit.cli.budget:replan", "Move money between lines, or the ceiling."),
            "settle": Entry("raykit.cli.bookkeeping:settle", "Say what a lease really cost."),
            "charge": Entry("raykit.cli.bookkeeping:charge", "Charge a fixed cost to a line."),
            "rate": Entry(
                "raykit.cli.bookkeeping:rate", "Record what an accelerator-hour costs from now on."
            ),
            "part": Entry("raykit.cli.bookkeeping:part", "Let related work have an account of its own."),
            "free": Entry("raykit.cli.bookkeeping:free", "Say that held machines are given back."),
        },
    ),
    "observe": Entry("raykit.cli.observing:observe", "A diagnosis as a tree, or what a test has shown."),
    "conclude": Entry("raykit.cli.concluding:conclude", "What a person concludes from an experiment."),
    "note": Entry("raykit.cli.learned:note", "Keep an incident, a limitation, or an idea that was dropped."),
    "measured": Entry("raykit.cli.learned:measured", "Record a time that raykit did not measure itself."),
    "counted": Entry("raykit.cli.learned:counted", "Record how many rows a source holds."),
    "lessons": Entry("raykit.cli.lessons:lessons", "Negative results and incidents of all experiments."),
    "watch": Entry("raykit.cli.watch:watch", "A run live: state, money, ratio, attempts, the last events."),
    "status": Entry("raykit.cli.reading:status", "Every run: state, progress, health, what it waits for."),
    "ls": Entry("raykit.cli.reading:ls", "What is in the store."),
    "show": Entry("raykit.cli.reading:show", "One run, whole."),
    "diff": Entry("raykit.cli.diff:diff", "Two runs or trials: settings and results where they differ."),
    "logs": Entry("raykit.cli.reading:logs", "The log of a rank and attempt, kept in the store."),
    "history": Entry("raykit.cli.reading:history", "Every update of a run: losses, ratios, coverage."),
    "checkpoints": Group(
        "The checkpoints of a run.",
        {
            "list": Entry("raykit.cli.checkpoints:list_", "Every checkpoint, and which one is selected."),
            "verify": Entry("raykit.cli.checkpoints:verify_", "Read checkpoints and compare digests."),
            "pin": Entry("raykit.cli.checkpoints:pin", "Keep one for good, or no longer."),
            "export": Entry("raykit.cli.checkpoints:export", "Take an approved candidate out of the store."),
        },
    ),
    "qc": Group(
        "Examining checkpoints, and what people say of them.",
        {
            "status": Entry("raykit.cli.qc:status", "What has to be examined, how far each is, what failed."),
            "run": Entry("raykit.cli.qc:run", "Examine what is open, without training."),
            "retry": Entry("raykit.cli.qc:retry", "Let a parked check be tried again."),
            "relock": Entry("raykit.cli.relock:relock", "Ask again, with the QC and code of today."),
            "review": Entry("raykit.cli.qc:review", "Say what you saw in the receipts."),
        },
    ),
    "generate": Group(
        "Make a plan's synthetic sets: raykit generate PLAN.",
        {
            "status": Entry(
                "raykit.cli.generate:status", "How far each set is, what it is, what it waits for."
            ),
            "export": Entry("raykit.cli.generate:export", "Take a complete set out of the store."),
            "retry": Entry("raykit.cli.generate:retry", "Let parked units be tried again."),
            "give-up": Entry("raykit.cli.generate:give_up", "Let the rows of parked units count as failed."),
        },
        own=Entry("raykit.cli.generate:generate", "Make the synthetic sets of a plan, or go on with them."),
    ),
    "search": Group(
        "Registered trials of settings: raykit search PLAN.",
        {
            "status": Entry("raykit.cli.search:status", "The table of trials, the pick, who is waited for."),
        },
        own=Entry("raykit.cli.search:search", "Run the trials of a plan with [search], or go on with them."),
    ),
    "candidates": Group(
        "Weights that can be chosen, and what people decide of them.",
        {
            "register": Entry("raykit.cli.candidates:register", "Give a checkpoint a name."),
            "list": Entry("raykit.cli.candidates:list_", "Every candidate, and which one is in production."),
            "show": Entry("raykit.cli.candidates:show", "One candidate, whole."),
            "dependents": Entry("raykit.cli.candidates:dependents", "What depends on it; what would fall."),
            "recommend": Entry("raykit.cli.choosing:recommend", "Say why it should be chosen."),
            "approve": Entry("raykit.cli.choosing:approve", "Choose it, for a use."),
            "reject": Entry("raykit.cli.choosing:reject", "Decide against it; nothing is deleted."),
            "preserve": Entry("raykit.cli.choosing:preserve", "Keep it for good, or no longer."),
            "switch": Entry("raykit.cli.choosing:switch", "Put it into production in the place of another."),
        },
    ),
    "report": Entry("raykit.cli.report:report", "One experiment as a page that needs nothing else."),
    "gc": Entry("raykit.cli.gc:gc", "Which checkpoints could go; nothing is deleted."),
    "check": Entry("raykit.cli.reading:check", "Check what a store holds against its digests."),
    "dev": Group(
        "A private local Ray with its dashboard, to submit to.",
        {
            "up": Entry("raykit.cli.dev:up", "Start it in the background, and wait until it answers."),
            "down": Entry("raykit.cli.dev:down", "End it: exactly the processes that it started."),
            "status": Entry("raykit.cli.dev:status", "Is it up, where is it, and what runs there?"),
        },
    ),
    "doctor": Entry("raykit.cli.doctor:doctor", "Is this machine, and this store, fit to run on?"),
}


# --- commands that load when they are called ----------------------------------------------------------------


class _LazyCommand(TyperCommand):
    """Stands for a command in a listing."""

    target: str

    def load(self) -> Any:
        """Import the command and build it."""
        module, _, name = self.target.partition(":")
        function = getattr(import_module(module), name)
        text = inspect.cleandoc(function.__doc__ or "").partition("\nRaises:")[0].strip()
        app = _typer()
        app.command(self.name, help=text)(function)
        return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """Commands by name; only the one that is called is imported. `own` is what the group's own word does."""

    own: _LazyCommand | None = None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The group's own options, and those of what its own word does."""
        super().format_options(ctx, formatter)
        if self.own is not None:
            own = self.own.load()
            found = [each.get_help_record(ctx) for each in own.params]
            with formatter.section(f"{ctx.command_path} {own.params[0].metavar}"):
                formatter.write_dl([record for record in found if record is not None])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, LazyGroup):
            command = command.meant(rest, ctx.help_option_names)
        return name, command.load() if isinstance(command, _LazyCommand) else command, rest

    def meant(self, args: list[str], help_words: list[str]) -> Any:
        """This group, or its own command: where the first argument is none of its words."""
        return self.own if self.own and args and args[0] not in (*self.commands, *help_words) else self


def _stand_in(name: str, entry: Entry | Group) -> Any:
    if isinstance(entry, Entry):
        return _lazy(name, entry)
    commands = {name: _stand_in(name, inner) for name, inner in entry.entries.items()}
    group = LazyGroup(name=name, help=entry.help, commands=commands, rich_markup_mode=None)
    group.own = None if entry.own is None else _lazy(name, entry.own)
    return group


def _lazy(name: str, entry: Entry) -> _LazyCommand:
    command = _LazyCommand(name, help=entry.help, rich_markup_mode=None)
    command.target = entry.target
    return command


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings
    )


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"raykit {metadata.version('raykit')}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Training runs on Ray that resume bit for bit, on a store that cannot lie."""


def root_command() -> LazyGroup:
    """The whole command line as one command."""
    app = _typer(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_root)
    command = typer.main.get_command(app)
    assert isinstance(command, LazyGroup)
    command.commands = {name: _stand_in(name, entry) for name, entry in COMMANDS.items()}
    return command


# --- the one way in -----------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0, the code of the error's group, 1 if something unexpected happened, 130 on Ctrl-C.
    """
    args = list(sys.argv[1:] if arguments is None else arguments)
    if (
        sys.stdout is None or sys.stderr is None
    ):  # closed by whoever started us; what is printed has nowhere to go
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the whole life of this process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _run(args, as_json="--json" in args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # whoever read the output has gone; nothing may be written to it again, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        return EXIT_BROKEN_PIPE
    return code


def _run(args: list[str], *, as_json: bool) -> int:
    try:
        # not the command's own main(), which has other ideas about what is printed where
        root = root_command()
        with root.make_context("raykit", args or ["--help"]) as context:
            root.invoke(context)
        return 0
    except typer.Exit as end:
        return end.exit_code
    except RaykitError as error:
        _debug()
        output.print_error(error, as_json=as_json, at=at_root(_root_of(args)))
        return error.exit_code
    except typer.TyperException as error:
        _say("usage", _usage(error), EXIT_USAGE, as_json=as_json)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        text = f"interrupted by Ctrl-C: {str(interrupt) or 'what was written before stays written'}"
        _say("interrupted", text, EXIT_INTERRUPTED, as_json=as_json)
        return EXIT_INTERRUPTED
    except Exception as error:  # the last resort: people get one line, and the traceback goes to a file
        if isinstance(error, BrokenPipeError) and _reader_left():
            raise
        _debug()
        _say("unexpected", _unexpected(error), 1, as_json=as_json)
        return 1


def _root_of(args: Sequence[str]) -> str:
    """The store that a command was given."""
    for at, word in enumerate(args):
        if word.startswith("--root="):
            return word.removeprefix("--root=")
        if word == "--root" and at + 1 < len(args):
            return args[at + 1]
    return os.environ.get("RAYKIT_ROOT", DEFAULT_ROOT)


def _reader_left() -> bool:
    """Has whoever read our output gone? If not, it was another pipe that broke."""
    poll = select.poll()
    poll.register(STDOUT, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "raykit"
    return f"{path}: {error.format_message()} See {path} --help."


def _unexpected(error: Exception) -> str:
    """One line about an error that nobody raised on purpose, and where its traceback is."""
    first = output.clean((str(error).splitlines() or [""])[0][:200])
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    try:
        handle, name = tempfile.mkstemp(prefix="raykit-unexpected-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
    except OSError as failure:
        return f"{text} (no traceback: {failure.strerror}; set RAYKIT_DEBUG=1 to see it)"
    return f"{text} (traceback in {Path(name)})"


def _say(kind: str, text: str, code: int, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"error": {"kind": kind, "exit_code": code, "message": text}}, sys.stderr)
    else:
        sys.stderr.write(f"{kind}: {text}\nexit {code}\n" if kind != "interrupted" else f"{text}\n")


def _debug() -> None:
    if os.environ.get("RAYKIT_DEBUG") == "1":
        traceback.print_exc()
