"""Every bad plan is refused by name, fast, in little memory, and without a trace.

# covers HIST-19, CONTRACT-28, PLAN-01, PLAN-21, PLAN-61, PLAN-67, S6, S10, S14
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bad_plans import GOOD, SECRETS, Bad, bad_plans, write

from raykit.cli.main import main
from raykit.errors import PlanError
from raykit.plan import load_plan

MAX_S = 1.0
MAX_RSS_BYTES = 200_000_000
EVERY = bad_plans()


def each(bads: list[Bad]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bad", bads, ids=lambda bad: bad.name)


def test_the_plan_that_they_are_made_from_is_good() -> None:
    assert load_plan(GOOD.encode(), where="good.toml").name == "digits-vae"


@each(EVERY)
def test_is_refused_by_field_and_line(bad: Bad) -> None:
    start = time.perf_counter()
    with pytest.raises(PlanError) as caught:
        load_plan(bad.data, where="bad.toml")
    took_s = time.perf_counter() - start
    error = caught.value
    matching = [f for f in error.findings if f.field == bad.field and bad.says in _text(f)]
    assert matching, [(f.field, _text(f)) for f in error.findings]
    assert (error.kind, error.exit_code) == ("plan", 2)
    assert "bad.toml" in error.message
    assert took_s < MAX_S
    if bad.field is not None and bad.says != "missing":
        assert matching[0].line is not None


def _text(error: PlanError) -> str:
    return " ".join(part for part in (error.message, error.rule, error.remedy) if part)


@each(EVERY)
def test_the_command_line_says_so_shortly(
    bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_bytes(bad.data)
    code = main(["plan", "check", "bad.toml"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "bad.toml" in err
    assert err.endswith("exit 2\n")
    assert "Traceback" not in err
    assert err.isascii() or err.replace("\n", "").isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


@each([bad for bad in EVERY if bad.name.startswith("secret")])
def test_no_secret_is_shown(bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(bad.data)
    for arguments in (["plan", "check", str(path)], ["plan", "check", str(path), "--json"]):
        assert main(arguments) == 2
        shown = "".join(capsys.readouterr())
        for secret in (*SECRETS.values(), "hunter2"):
            assert secret not in shown
    with pytest.raises(PlanError) as caught:
        load_plan(bad.data, where="bad.toml")
    kept = [str(vars(error)) for error in (caught.value, *caught.value.findings)]
    assert not any(secret in text for secret in (*SECRETS.values(), "hunter2") for text in kept)


def test_all_of_them_fit_in_little_memory(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "expect.toml").rename(tmp_path / "expect")
    script = """
import json, pathlib, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))
from raykit.errors import PlanError
from raykit.plan import load_plan
refused = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.toml")):
    try:
        load_plan(path.read_bytes(), where=path.name)
    except PlanError:
        refused += 1
# Not ru_maxrss: that one keeps the size of the process that this one was forked from.
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(json.dumps([refused, int(status["VmHWM"].split()[0]) * 1024]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    refused, most_bytes = json.loads(done.stdout)
    assert refused == len(EVERY)
    assert most_bytes < MAX_RSS_BYTES
