"""The command line's edges: what it loads, what it prints where, and with which code it ends."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from raykit import errors
from raykit.cli import main as cli
from raykit.cli import output
from raykit.cli.main import COMMANDS, Entry, Group, LazyGroup, main, root_command
from raykit.errors import GateError, PlanError, RaykitError

HEAVY = ("ray", "torch", "numpy", "pyarrow", "matplotlib", "s3fs", "sklearn", "scipy", "rich")
TINY = Path(__file__).parents[1] / "tiny"
TIMEOUT_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a plan and its recipe."""
    for name in ("plan.toml", "recipe.py"):
        shutil.copy(TINY / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for name in ("RAYKIT_ROOT", "RAYKIT_DEBUG", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def raykit(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from raykit.cli.main import main; sys.exit(main())", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def child(tmp_path: Path, body: str) -> list[str]:
    """The command of a process in which `raykit probe` runs `body`."""
    (tmp_path / "probe_command.py").write_text(
        f"def probe() -> None:\n{textwrap.indent(body, '    ')}", "utf-8"
    )
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "from raykit.cli import main as cli;"
        "cli.COMMANDS = {'probe': cli.Entry('probe_command:probe', 'A probe.')};"
        "sys.exit(cli.main())"
    )
    return [sys.executable, "-c", script, str(tmp_path), "probe"]


# --- what is loaded -----------------------------------------------------------------------------------------


def test_help_and_mistakes_load_nothing_heavy(folder: Path) -> None:
    """Benchmarks say how fast that is; this says why."""
    calls = [
        ["--help"],
        ["plan", "--help"],
        ["plan", "check", "--help"],
        ["pause", "--help"],
        ["budget", "show", "--help"],
        ["watch", "--help"],
        ["lanuch"],
        ["plan", "check", "no.toml"],
    ]
    script = (
        "import sys; from raykit.cli.main import main;"
        f"codes = [main(arguments) for arguments in {calls!r}];"
        f"print('LOADED', codes, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.stdout.endswith("LOADED [0, 0, 0, 0, 0, 0, 2, 2] []\n"), done.stdout + done.stderr


def test_help_lists_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text
        assert " ".join(entry.help.split()) in " ".join(text.split()), name


def test_no_arguments_are_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"raykit {metadata.version('raykit')}\n"


# --- options are frozen -------------------------------------------------------------------------------------

ACT = ("--as", "--by", "--json", "--root")
"""What every act of a person takes."""

OPTIONS = {
    "plan new": ["--from", "--json", "--name", "--output", "--recipe", "--root", "-o"],
    "plan check": ["--json", "--root", "PLAN"],
    "plan show": ["--json", "--root", "PLAN"],
    "plan diff": ["--json", "--root", "PLAN", "[OTHER]"],
    "adopt": [
        "--accelerator-hours",
        "--as",
        "--by",
        "--correct",
        "--json",
        "--role",
        "--root",
        "--rows",
        "--source-note",
        "--trust-pickle",
        "--updates",
        "SOURCE",
    ],
    "submit": [
        "--address",
        "--approve",
        "--by",
        "--detach",
        "--deviation",
        "--json",
        "--root",
        "--scripted",
        "--shared",
        "PLAN|NAME",
    ],
    "launch": ["--approve", "--by", "--deviation", "--json", "--repair", "--root", "--scripted", "PLAN"],
    "resume": [
        "--approve",
        "--as",
        "--by",
        "--detach",
        "--json",
        "--reason",
        "--repair",
        "--root",
        "--scripted",
        "NAME|PLAN|SCOPE",
    ],
    "pause": [
        "--as",
        "--by",
        "--json",
        "--no-wait",
        "--premise",
        "--reason",
        "--root",
        "--timeout-s",
        "[SCOPE]",
    ],
    "report": ["--json", "--output", "--root", "-o", "EXPERIMENT"],
    "cancel": ["--as", "--by", "--json", "--reason", "--root", "NAME"],
    "approve plan": [*ACT, "--reason", "--scripted", "AMOUNT", "NAME|PLAN"],
    "approve account": [*ACT, "--reason", "--scripted", "ACCOUNT", "AMOUNT"],
    "approve restart": [*ACT, "--reason", "--scripted", "NAME|PLAN"],
    "approve harmless": [*ACT, "--reason", "NAME", "STATE..."],
    "budget show": ["--json", "--root", "[NAME|ACCOUNT]"],
    "budget replan": [*ACT, "--ceiling", "--move", "--reason", "--scripted", "--yes", "NAME"],
    "budget settle": [*ACT, "--account", "--cost", "--how", "LEASE"],
    "budget charge": [*ACT, "--how", "AMOUNT", "LINE", "NAME"],
    "budget rate": [*ACT, "--account", "--on", "--source", "POOL", "RATE", "[NAME]"],
    "budget part": [*ACT, "--from", "--reason", "--scripted", "--to", "NAME"],
    "budget free": [*ACT, "--how", "NAME"],
    "observe": [
        "--as",
        "--by",
        "--json",
        "--note",
        "--other",
        "--root",
        "--saw",
        "--scripted",
        "NAME|PLAN",
        "[TEST]",
    ],
    "conclude": [*ACT, "--effect", "--hypothesis", "--outcome", "--says", "--scripted", "NAME|PLAN"],
    "note": [*ACT, "--incident", "--limitation", "--selection", "NAME|PLAN"],
    "measured": [*ACT, "--how", "--memory", "--pool", "--time-s", "--units", "--what", "NAME|PLAN"],
    "counted": [*ACT, "--digest", "--how", "--rows", "--source", "NAME|PLAN"],
    "lessons": ["--json", "--like", "--root"],
    "qc status": ["--json", "--root", "--trial", "[NAME]"],
    "qc run": ["--json", "--root", "--trial", "--update", "--workers", "NAME"],
    "qc retry": [*ACT, "--reason", "--trial", "--update", "NAME"],
    "qc relock": [*ACT, "--deviation", "PLAN"],
    "qc review": [*ACT, "--note", "--scripted", "--trial", "--update", "--upto", "--verdict", "NAME"],
    "generate": [
        *ACT,
        "--approve",
        "--changed",
        "--reuse",
        "--scripted",
        "--set",
        "--workers",
        "PLAN",
    ],
    "generate status": ["--json", "--root", "[EXPERIMENT[/SET]]"],
    "generate export": ["--despite", "--format", "--json", "--manifest", "--root", "EXPERIMENT/SET", "TO"],
    "generate retry": [*ACT, "--reason", "--unit", "EXPERIMENT/SET"],
    "generate give-up": [*ACT, "--reason", "--unit", "EXPERIMENT/SET"],
    "search": [*ACT, "--approve", "--deviation", "--scripted", "PLAN"],
    "search status": ["--all", "--charts", "--json", "--limit", "--root", "[NAME]"],
    "candidates register": [*ACT, "--correct", "--role", "--surface", "EXPERIMENT[@UPDATE]", "NAME"],
    "candidates list": ["--json", "--root"],
    "candidates show": ["--json", "--root", "NAME"],
    "candidates dependents": [*ACT, "--add", "--cost", "--hours", "--name", "--stays", "NAME"],
    "candidates recommend": [
        *ACT,
        "--better",
        "--how",
        "--incumbent-value",
        "--reason",
        "--scripted",
        "--surface",
        "--unexamined",
        "--value",
        "NAME",
    ],
    "candidates approve": [*ACT, "--reason", "--scripted", "--unexamined", "--use", "NAME"],
    "candidates reject": [*ACT, "--reason", "--scripted", "NAME"],
    "candidates preserve": [*ACT, "--let-go", "--reason", "NAME"],
    "candidates switch": [*ACT, "--reason", "--scripted", "--seen", "NAME"],
    "checkpoints list": ["--json", "--root", "--trial", "RUN"],
    "checkpoints verify": ["--json", "--root", "--trial", "--update", "RUN"],
    "checkpoints pin": [*ACT, "--let-go", "--reason", "EXPERIMENT@UPDATE"],
    "checkpoints export": [*ACT, "CANDIDATE|EXPERIMENT@UPDATE", "DIR"],
    "diff": ["--json", "--root", "OTHER", "RUN"],
    "gc": ["--json", "--root", "RUN"],
    "watch": ["--as", "--by", "--once", "--root", "--trial", "[RUN]"],
    "dev up": ["--cpus", "--json"],
    "dev down": ["--json", "--now"],
    "dev status": ["--json"],
    "doctor": ["--address", "--json", "--root"],
}
"""Every option of every command. A new one is a promise for years: add it here on purpose, or put it in the plan."""


def _commands() -> Iterator[tuple[str, Any]]:
    for name, entry in COMMANDS.items():
        if isinstance(entry, Entry):
            yield name, entry
            continue
        if entry.own is not None:
            yield name, entry.own
        yield from ((f"{name} {n}", e) for n, e in entry.entries.items())


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_options_are_frozen(command: str) -> None:
    found: Any = root_command()
    for word in command.split():
        found = found.commands[word]
    loaded = (found.own if isinstance(found, LazyGroup) else found).load()
    names = [
        option for p in loaded.params for option in (p.opts if p.param_type_name == "option" else [p.metavar])
    ]
    assert sorted(names) == sorted(OPTIONS[command])
    assert loaded.help, "a command says what it does"
    assert "Raises:" not in loaded.help


def test_every_command_is_in_the_frozen_table_or_of_another_room() -> None:
    ours = {name for name, entry in _commands() if not entry.target.startswith("raykit.cli.reading:")}
    assert ours == set(OPTIONS)


# --- exit codes ---------------------------------------------------------------------------------------------


def _all_errors(root: type[RaykitError]) -> Iterator[type[RaykitError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _all_errors(kind)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """`raykit probe` raises what is put into the box; tracebacks go to `tmp_path`."""
    box: list[BaseException] = []

    def probe(json: bool = False) -> None:
        raise box[0]

    module = type(sys)("probe_command")
    module.probe = probe  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "probe_command", module)
    monkeypatch.setattr(cli, "COMMANDS", {"probe": Entry("probe_command:probe", "A probe.")})
    monkeypatch.delenv("RAYKIT_DEBUG", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield box.append


@pytest.mark.parametrize("kind", list(_all_errors(RaykitError)), ids=lambda kind: kind.__name__)
def test_an_error_of_each_kind_ends_with_its_code(
    kind: type[RaykitError], raising: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(kind("it is so", field="x.y", value=3, rule="at most 2", remedy="make it 2"))
    assert main(["probe"]) == kind.exit_code
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0].endswith(": it is so")
    assert lines[1:] == [
        "  at     x.y = 3",
        "  rule   at most 2",
        "  pass   make it 2",
        f"exit {kind.exit_code}",
    ]


@pytest.mark.parametrize("kind", [GateError, PlanError])
def test_an_error_as_json(kind: type[RaykitError], raising: Any, capsys: pytest.CaptureFixture[str]) -> None:
    raising(kind("it is so", field="x.y", value={"path": Path("a")}, remedy="make it 2"))
    assert main(["probe", "--json"]) == kind.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {
        "error": {
            "kind": kind.kind,
            "exit_code": kind.exit_code,
            "message": "it is so",
            "field": "x.y",
            "value": {"path": "a"},
            "remedy": "make it 2",
        }
    }


def test_the_unexpected_is_one_line_and_a_private_file(
    raising: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("one\ntwo"))
    assert main(["probe"]) == 1
    out, err = capsys.readouterr()
    (file,) = tmp_path.iterdir()
    assert out == ""
    assert err == f"unexpected: ZeroDivisionError: one (traceback in {file})\nexit 1\n"
    assert "in probe" in file.read_text("utf-8")
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_unexpected_without_a_place_for_its_traceback(
    raising: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    raising(ValueError())
    assert main(["probe"]) == 1
    assert capsys.readouterr().err == (
        "unexpected: ValueError (no traceback: No such file or directory; set RAYKIT_DEBUG=1 to see it)\nexit 1\n"
    )


def test_another_broken_pipe_is_unexpected(raising: Any, capsys: pytest.CaptureFixture[str]) -> None:
    raising(BrokenPipeError(32, "a socket"))
    assert main(["probe"]) == 1
    assert "a socket" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("x"), GateError("x")])
def test_tracebacks_are_shown_only_on_request(
    error: Exception, raising: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(error)
    main(["probe"])
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("RAYKIT_DEBUG", "1")
    main(["probe"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lanuch"], "raykit: No such command 'lanuch'. Did you mean 'launch'"),
        (["plan"], "raykit plan: Missing command. See raykit plan --help."),
        (["plan", "check"], "raykit plan check: Missing argument 'PLAN'"),
        (["plan", "check", "x", "--fast"], "raykit plan check: No such option: --fast"),
        (["plan", "check", "x", "y"], "raykit plan check: Got unexpected extra argument"),
        (["--rot", "x"], "raykit: No such option: --rot"),
    ],
)
def test_a_mistyped_command_is_one_line_and_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"usage: {says}")
    assert len(err.splitlines()) == 2
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "usage"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate"], "raykit generate: Missing command."),
        (["generate", "status", "a", "b"], "raykit generate status: Got unexpected extra argument"),
        (["generate", "plan.toml", "--fast"], "raykit generate: No such option: --fast"),
        (["generate", "--workers", "2"], "raykit generate: Missing argument 'PLAN'"),
    ],
)
def test_a_word_that_is_a_command_and_has_commands(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"usage: {says}")


def test_help_of_a_word_that_is_a_command_and_has_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--help"]) == 0
    text = capsys.readouterr().out
    assert "raykit generate PLAN" in text and all(word in text for word in COMMANDS["generate"].entries)
    assert "raykit generate PLAN:" in text and "--changed" in text, "and its own options"
    assert main(["generate", "plan.toml", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: raykit generate [OPTIONS]" in text and "PLAN" in text and "--changed" in text


def test_ctrl_c_is_a_sentence_and_130(tmp_path: Path) -> None:
    command = child(tmp_path, "import signal\nprint('ready', flush=True)\nsignal.pause()\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, "")
    assert err == "interrupted by Ctrl-C: what was written before stays written\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    command = child(tmp_path, "for i in range(200_000):\n    print('line', i)\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line 0\n"
        process.stdout.close()
        err = process.stderr.read()
        assert (process.wait(timeout=TIMEOUT_S), err) == (141, "")


def test_text_that_the_terminal_cannot_write_is_no_error(folder: Path) -> None:
    done = raykit("doctor", cwd=folder, PYTHONIOENCODING="ascii", RAYKIT_PERSON="Zo\u00eb")
    assert done.returncode == 0, done.stderr
    assert "Zo?" in done.stdout


# --- plan ---------------------------------------------------------------------------------------------------


def test_a_bad_plan_from_outside(folder: Path) -> None:
    text = Path("plan.toml").read_text("utf-8")
    Path("plan.toml").write_text(
        text.replace("seed ", "sede ").replace("updates          = 20", "updates = 0"), "utf-8"
    )
    done = raykit("plan", "check", "plan.toml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "plan.toml: 3 findings. Nothing was started, nothing was spent.\n"
        " 1  run.seed     missing (line 27)\n"
        "    want   the seed of everything random, at least 0\n"
        " 2  run.updates  is 0 (line 28)\n"
        "    want   optimizer updates of the whole run, at least 1\n"
        " 3  run.sede     unknown key (line 30)\n"
        "    pass   did you mean seed?\n"
        "exit 2\n"
    )
    as_json = raykit("plan", "check", "plan.toml", "--json", cwd=folder)
    error = json.loads(as_json.stderr)["error"]
    assert (as_json.returncode, error["kind"]) == (2, "plan")
    assert [finding["line"] for finding in error["findings"]] == [27, 28, 30]
    assert not Path("plan.lock").exists()


def test_check_writes_the_lock_and_show_does_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "show", "plan.toml"]) == 0
    shown = capsys.readouterr().out
    assert not Path("plan.lock").exists()
    assert main(["plan", "check", "plan.toml"]) == 0
    checked = capsys.readouterr().out
    lock = Path("plan.lock").read_text("utf-8")
    assert checked.splitlines()[0] == shown.splitlines()[0]
    assert "wrote" in checked and "raykit launch plan.toml" in checked
    # the statement has what a person decides on: covers PLAN-42, PLAN-64
    for part in (
        "Does the test pass?",
        "20 updates x 12 examples = 240 samples = 5.0 epochs",
        "12 effective = 12 a micro-batch x 1 accumulated x 1 workers",
        "5 checkpoints (update 0, every 5, the last)",
        "curves drawn 2 times (every 10, ema 0.9)",
        "min development.ratio",
        "never earlier",
        "from the start, nothing reused",
        "discards    nothing",
        "exact or better",
        "not billed; ceiling below $1.00",
        "train 48",
        "development 12 (selects)",
    ):
        assert part in shown, part
    assert main(["plan", "show", "plan.toml", "--json"]) == 0
    assert capsys.readouterr().out == lock
    assert main(["plan", "check", "plan.toml"]) == 0
    assert "same as before" in capsys.readouterr().out
    assert Path("plan.lock").read_text("utf-8") == lock
    assert {path.name for path in folder.iterdir()} <= {"plan.toml", "plan.lock", "recipe.py", "__pycache__"}


def test_a_lock_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.lock").mkdir()
    assert main(["plan", "check", "plan.toml"]) == 2
    assert "plan.lock cannot be written: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("width = 16", "widht = 16", "run.params.widht"),
        ("width = 16", 'width = "16"', "run.params.width"),
        ("recipe:Tiny", "recipe:Tini", "recipe has no class Tini"),
        ("recipe:Tiny", "other:Tiny", "there is no module other"),
        (
            "[budget]",
            '[base]\ncandidate = "x"\nstart = "continue"\nkeep = ["weights"]\n[budget]',
            "there is no candidate or experiment 'x'",
        ),
    ],
)
def test_what_only_the_recipe_knows(
    old: str, new: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("plan.toml").read_text("utf-8")
    Path("plan.toml").write_text(text.replace(old, new), "utf-8")
    assert main(["plan", "check", "plan.toml"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "(line " in err or "[base]" in err
    assert not Path("plan.lock").exists()


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_a_plan_that_cannot_be_read(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "check", name]) == 2
    assert f"{name} cannot be read: " in capsys.readouterr().err


def test_new_writes_a_plan_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "new", "--recipe", "recipe:Tiny", "-o", "mine.toml"]) == 0
    out = capsys.readouterr().out
    text = Path("mine.toml").read_text("utf-8")
    assert "params           = { width = 16, dropout = 0.2, lr = 0.02, poison_at = 0 }  # (r)" in text
    assert 'name     = "tiny"' in text
    assert f"{text.count('<- yours')} lines marked <- yours need your judgement" in out
    assert main(["plan", "check", "mine.toml"]) == 2
    assert f"mine.toml: {text.count('<- yours')} findings" in capsys.readouterr().err
    assert main(["plan", "new", "--recipe", "recipe:Tiny", "-o", "mine.toml", "--name", "other"]) == 2
    assert "mine.toml exists already" in capsys.readouterr().err
    assert Path("mine.toml").read_text("utf-8") == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--recipe", "recipe:Nobody"], "has no class Nobody"),
        (["--recipe", "recipe:Tiny", "--name", "../x"], "is not a safe name"),
        (["--recipe", "recipe:Tiny", "-o", "gone/plan2.toml"], "cannot be written"),
    ],
)
def test_new_refuses(
    arguments: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "new", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert Path("plan.toml").read_text("utf-8") == (TINY / "plan.toml").read_text("utf-8")


# --- doctor -------------------------------------------------------------------------------------------------


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["doctor", "--json", *arguments])
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == code
    return code, {line["check"]: line for line in report["checks"]}


def test_a_fit_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = doctor(capsys)
    assert code == 0
    assert lines["ray"]["found"] == metadata.version("ray")
    assert lines["torch"]["found"] == metadata.version("torch")
    assert "not there yet, and can be made" in lines["root"]["found"]
    assert {"cores", "memory", "space", "clock", "umask", "RAY_ADDRESS"} <= lines.keys()
    assert sorted(path.name for path in folder.iterdir()) == ["plan.toml", "recipe.py"]


def test_a_root_that_is_there_is_proved_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("store").mkdir()
    Path("store").chmod(0o777)
    code, lines = doctor(capsys)
    assert code == 0
    assert "creates, reads back, never replaces" in lines["root"]["found"]
    assert lines["root's mode"]["remedy"] == "chmod o-w store"
    assert not any(path.is_file() for path in Path("store").rglob("*"))


@pytest.mark.parametrize("root", ["ftp://x/y", "s3://user:hunter2@b/x", "plan.toml/x", "/proc/no/such"])
def test_a_root_that_cannot_be_used(root: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--root", root]) == 2
    out = capsys.readouterr().out
    assert "  bad   root" in out
    assert "hunter2" not in out


def test_settings_that_mean_nothing_or_mislead(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAYKIT_ROT", "x")
    monkeypatch.setenv("RAYKIT_PERSON", "AKIA" + "IOSFODNN7EXAMPLE")
    monkeypatch.setenv("RAY_ADDRESS", "ray://elsewhere:10001")
    old = os.umask(0)
    try:
        code, lines = doctor(capsys)
    finally:
        os.umask(old)
    assert code == 0
    assert lines["RAYKIT_ROT"]["remedy"] == "did you mean RAYKIT_ROOT?"
    assert lines["RAYKIT_PERSON"]["found"] == "(not shown)"
    assert (lines["RAY_ADDRESS"]["state"], lines["umask"]["state"]) == ("warn", "warn")


def test_a_session_folder_that_others_can_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rk") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        parent = Path(short) / f"raykit-{os.geteuid()}"
        parent.mkdir()
        parent.chmod(0o777)
        assert main(["doctor"]) == 7
    assert "  bad   " in capsys.readouterr().out


def test_packages_that_are_too_old_or_absent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return "2.55.1" if name == "ray" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    code, lines = doctor(capsys)
    assert code == 2
    assert (lines["ray"]["state"], lines["torch"]["state"]) == ("bad", "bad")
    assert lines["torch"]["found"] == "not installed"


# --- what is printed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0042, "0.0042 s"),
        (0.42, "0.42 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (38, "38 s"),
        (59.6, "1m00"),
        (242, "4m02"),
        (3599.7, "1h00"),
        (19_290, "5h21"),
        (86_399.9, "1d00h"),
        (183_600, "2d03h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (13_200_000_000, "13.2 GB"),
        (10**15, "1.0 PB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert output.size(size_bytes) == text


def test_other_numbers() -> None:
    assert output.count(5503) == "5,503"
    assert (output.pace(2.19), output.pace(0.0042)) == ("2.19 s/update", "4.2 ms/update")
    assert output.usd(1449) == "$1,449.00"
    assert output.short("7f3a90c1" + "0" * 56) == "7f3a90c1"


def test_a_table_is_never_cut() -> None:
    long = "x" * 300
    text = output.table(["NAME", "UPDATE"], [["a", "5,503"], [long, "7"]], right={"UPDATE"})
    lines = text.split("\n")
    assert lines[0] == "NAME" + " " * 298 + "UPDATE"
    assert lines[1] == "a" + " " * 302 + "5,503"
    assert lines[2] == long + " " * 7 + "7"


def test_the_console_is_plain_in_a_pipe() -> None:
    stream = io.StringIO()
    output.console(stream).print("[red]5,503[/red] " + "y" * 200, style="bold")
    assert stream.getvalue() == "[red]5,503[/red] " + "y" * 200 + "\n"


def test_nothing_that_a_terminal_obeys_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    error = GateError("bad \x1b[31m name \u202e", field="a\nb", value="\x1b[2J", rule="\x07", remedy="\r")
    output.print_error(error, as_json=False)
    err = capsys.readouterr().err
    assert err == (
        "refused: bad \\x1b[31m name \\u202e\n"
        '  at     a\\nb = "\\u001b[2J"\n'
        "  rule   \\x07\n"
        "  pass   \\r\n"
        "exit 3\n"
    )


def test_many_findings_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = tuple(PlanError("wrong", field=f"f{i}", line=i) for i in range(40))
    output.print_error(PlanError("p.toml: 40 findings", findings=found), as_json=False)
    err = capsys.readouterr().err
    assert err.count("wrong") == output.MAX_FINDINGS
    assert "and 10 more" in err


def test_groups_have_help() -> None:
    assert all(entry.help.endswith((".", "?")) for entry in COMMANDS.values())
    assert isinstance(COMMANDS["plan"], Group)
