"""What `raykit launch` refuses: one short text with field and remedy, the right exit code, nothing written.

covers must-hold 8, HIST-17..19, S21
"""

from __future__ import annotations

from pathlib import Path

import pytest
import servers
from plainrun import write_job

from raykit.cli.main import main


def edited(tmp_path: Path, edit: str) -> Path:
    """The tiny job with one thing wrong."""
    plan = write_job(tmp_path / "job")
    text, recipe = plan.read_text(), tmp_path / "job" / "recipe.py"
    match edit:
        case "unknown key":
            text = text.replace("seed             = 3", "seed             = 3\nsede = 4")
        case "wrong type":
            text = text.replace("seed             = 3", 'seed             = "three"')
        case "cadence 0":
            text = text.replace("checkpoint_every = 5", "checkpoint_every = 0")
        case "no plotting cadence":
            text = "\n".join(line for line in text.splitlines() if not line.startswith("curves"))
        case "unknown recipe":
            text = text.replace("recipe:Tiny", "recipe:Huge")
        case "unknown module":
            text = text.replace("recipe:Tiny", "recipes:Tiny")
        case "unknown params":
            text = text.replace("{ width = 16 }", "{ width = 16, depth = 2 }")
        case "params of another type":
            text = text.replace("{ width = 16 }", '{ width = "wide" }')
        case "no losses":
            recipe.write_text(recipe.read_text().replace("def losses(", "def lost("))
        case "recipe that does not parse":
            recipe.write_text("def losses(:\n")
        case "batch that does not divide":
            text = text.replace("seed             = 3", "seed             = 3\naccumulate = 5")
        case "not in this version":
            text = text.replace("seed             = 3", 'seed             = 3\nshard = "fsdp2"')
    plan.write_text(text)
    return plan


EDITS = {
    "unknown key": "run.sede",
    "wrong type": "run.seed",
    "cadence 0": "run.checkpoint_every",
    "no plotting cadence": "run.curves",
    "unknown recipe": "recipe",
    "unknown module": "recipe",
    "unknown params": "run.params.depth",
    "params of another type": "run.params.width",
    "no losses": "losses",
    "recipe that does not parse": "recipe",
    "batch that does not divide": "run.batch",
    "not in this version": "run.shard",
}


@pytest.mark.parametrize(("edit", "field"), EDITS.items())
def test_a_bad_plan(edit: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = edited(tmp_path, edit)
    assert main(["launch", str(plan), "--root", str(tmp_path / "store")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and field in err and "Traceback" not in err
    assert len(err) < 1200
    assert not (tmp_path / "store").exists()


def test_a_missing_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", str(tmp_path / "none.toml"), "--root", str(tmp_path / "store")]) == 2
    assert "none.toml" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "root",
    ["ftp://host/x", "s3://", "s3://user:secret@bucket/x", "simplecache::s3://bucket/x", "s3://b/x?y=1"],
)
def test_a_root_that_is_none(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", str(write_job(tmp_path / "job")), "--root", root]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err and "secret" not in err


def test_a_root_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    assert main(["launch", str(write_job(tmp_path / "job")), "--root", str(tmp_path / "store")]) in (2, 6)
    err = capsys.readouterr().err
    assert "store" in err and "Traceback" not in err


def test_an_s3_endpoint_that_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = servers.free_ports(1)
    for name, value in servers.credentials().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    code = main(["launch", str(write_job(tmp_path / "job")), "--root", "s3://bucket/run"])
    err = capsys.readouterr().err
    assert code in (2, 6), err
    assert "Traceback" not in err and "AWS_ENDPOINT_URL" in err
