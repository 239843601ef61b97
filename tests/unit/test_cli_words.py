"""Words of people are kept for ever and read in terminals: what cannot be shown is refused, and never obeyed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from makebudget import PLAN, PaidByNode
from safetensors.numpy import save_file

from raykit.cli.main import main
from raykit.cli.watchrun import RunScreen
from raykit.ids import sha256
from raykit.records import Concluded, Measured, Noted, Observed, RestartApproved
from raykit.store import people
from raykit.store.learned import learn
from raykit.store.local import LocalStore

HOSTILE = {
    "escape": "a\x1b[2Jb",
    "bell": "a\x07b",
    "reversed": "a\u202eb",
    "lines": "a\n  approved by mira",
    "c1": "a\x9bb",
}
WORDS = "all\x1b[31m of\x07 it\u202e\nis kept"

DIAGNOSIS = """
[diagnosis.hypotheses]
mask = { says = "a wrong mask" }
rate = { says = "too high a rate" }
[diagnosis.tests.fixture]
does     = "a fixture"
cost_usd = 0.5
covers   = { rows = 128 }
predicts = { mask = "scales", rate = "flat" }
next     = { mask = "repair it", rate = "halve it" }
"""

Raykit = Callable[..., tuple[int, str]]


@pytest.fixture
def raykit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


def plan_file(root: Path, name: str = "padded") -> str:
    path = root / f"{name}.toml"
    path.write_text(
        PLAN.format(name=name, updates=20, rate="2.99", account="corp", ceiling="900") + DIAGNOSIS
    )
    return str(path)


def shown(text: str) -> bool:
    return text.replace("\n", "").isprintable()


ACTS = (
    ("observe", "PLAN", "fixture", "--as", "mask", "--saw", "WORDS", "--by", "ada"),
    ("observe", "PLAN", "fixture", "--as", "mask", "--saw", "it scales", "--note", "WORDS", "--by", "ada"),
    ("observe", "PLAN", "fixture", "--as", "mask", "--saw", "it scales", "--by", "WORDS"),
    ("conclude", "PLAN", "--outcome", "invalid", "--says", "WORDS", "--by", "ada"),
    ("conclude", "PLAN", "--outcome", "invalid", "--says", "no", "--effect", "1 WORDS", "--by", "ada"),
    ("conclude", "PLAN", "--outcome", "invalid", "--says", "no", "--hypothesis", "WORDS", "--by", "ada"),
    ("note", "PLAN", "--incident", "WORDS", "--by", "ada"),
    ("note", "PLAN", "--limitation", "WORDS", "--by", "ada"),
    ("note", "PLAN", "--selection", "WORDS", "--by", "ada"),
    ("note", "PLAN", "--incident", "a node was lost", "--by", "WORDS"),
    ("measured", "PLAN", "--what", "save", "--time-s", "2", "--how", "bill 1 WORDS", "--by", "ada"),
    ("measured", "PLAN", "--what", "memory", "--memory", "WORDS=1", "--how", "bill 1", "--by", "ada"),
    ("counted", "PLAN", "--source", "WORDS", "--rows", "1", "--how", "wc -l, 2026-11-01", "--by", "ada"),
    ("adopt", "WEIGHTS", "--as", "prod", "--by", "WORDS"),
    ("adopt", "WEIGHTS", "--as", "prod", "--by", "ada", "--source-note", "WORDS"),
    ("approve", "restart", "PLAN", "--reason", "WORDS", "--by", "ada"),
    ("approve", "plan", "PLAN", "5", "--reason", "WORDS", "--by", "ada"),
    ("approve", "harmless", "refresh", "recipe.calls", "--reason", "WORDS", "--by", "ada"),
    ("approve", "harmless", "refresh", "recipe.WORDS", "--reason", "a counter", "--by", "ada"),
    ("launch", "PLAN", "--repair", "WORDS", "--by", "ada"),
    ("resume", "PLAN", "--repair", "WORDS", "--by", "ada"),
    ("resume", "all", "--by", "WORDS"),
    ("pause", "all", "--reason", "WORDS", "--by", "ada"),
    ("pause", "all", "--reason", "storage", "--by", "WORDS"),
)


@pytest.mark.parametrize("act", ACTS, ids=" ".join)
def test_words_that_cannot_be_shown_are_refused(raykit: Raykit, tmp_path: Path, act: tuple[str, ...]) -> None:
    save_file({"w": np.ones(3, np.float32)}, tmp_path / "m.safetensors")
    place = {"PLAN": plan_file(tmp_path), "WEIGHTS": str(tmp_path / "m.safetensors")}
    for what, words in HOSTILE.items():
        given = [place.get(part, part.replace("WORDS", words)) for part in act]
        code, told = raykit(*given)
        assert code == 2, (what, told)
        assert "control characters" in told or "no term of a memory" in told
        assert shown(told), what
        assert not (tmp_path / "store").exists(), what


def test_words_may_be_of_any_language(raykit: Raykit, tmp_path: Path) -> None:
    said = "die Verteilung ist schief: \u5206\u5e03 \u00b1 0.1 \u2192 0.2"
    code, told = raykit("note", plan_file(tmp_path), "--incident", f"  {said}\n", "--by", "Zo\u00eb")
    assert (code, said in told) == (0, True)


@pytest.fixture
def spoken(tmp_path: Path) -> LocalStore:
    """A store that was written before words were looked at: all that people say in it would move a cursor."""
    store = LocalStore(tmp_path / "store")
    maker = PaidByNode(store, experiment="refresh", updates=20)
    maker.freeze()
    maker.approve()
    maker.launch()
    maker.begin()
    maker.rows(5)
    maker.end("failed", detail=WORDS, hours=0.25)
    maker.release("failed")
    digest = sha256(b"x")
    said = (
        Observed(
            plan=digest, test="fixture", saw=WORDS, supports=("mask",), removed=("rate",), next=WORDS,
            covers={"rows": WORDS}, note=WORDS, hypotheses={"mask": WORDS}, predicts={"mask": WORDS},
            next_by={"mask": WORDS}, person=WORDS,
        ),
        Concluded(outcome="worse", says=WORDS, hypothesis=WORDS, effect=WORDS, decision=digest, contract=digest,
                  update=5, person=WORDS),
        Noted(kind="incident", says=WORDS, person=WORDS),
        Measured(what="memory", pool="train", time_ms=0, memory_bytes={WORDS: 5}, how=WORDS, person=WORDS),
    )  # fmt: skip
    for event in said:
        learn(store, "refresh", lambda _, event=event: event, person="ada", at=2.0)  # type: ignore[misc]
    restart = RestartApproved(projection=digest, covers=WORDS, reason=WORDS, person=WORDS)
    people.approve_restart(store, "refresh", restart, at=3.0)
    people.pause(store, "experiment:refresh", reason=WORDS, person=WORDS, at=4.0)
    people.pause(store, "all", reason=WORDS, person=WORDS, at=4.0)
    return store


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lessons",),
    ("observe", "PLAN"),
    ("status",),
    ("show", "refresh"),
    ("ls",),
    ("budget", "show", "refresh"),
    ("budget", "show"),
    ("watch", "refresh", "--once"),
    ("conclude", "PLAN", "--outcome", "invalid", "--says", "no", "--by", "ada"),
    ("resume", "all"),
)


@pytest.mark.parametrize(
    ("command", "as_json"),
    [
        (each, as_json)
        for each in COMMANDS
        for as_json in (False, True)
        if (each[0], as_json) != ("watch", True)
    ],
)
@pytest.mark.parametrize("columns", [None, "60"])
def test_a_terminal_obeys_nothing_that_is_stored(
    raykit: Raykit,
    spoken: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    as_json: bool,
    columns: str | None,
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    plan = plan_file(tmp_path, "refresh")
    code, told = raykit(
        *(plan if part == "PLAN" else part for part in command), *(["--json"] if as_json else [])
    )
    assert code == 0, told
    assert shown(told), [c for c in told if not c.isprintable() and c != "\n"]
    assert not any(line.startswith("is kept") for line in told.splitlines()), (
        "nor does a line begin where it did not"
    )


def test_the_screen_obeys_nothing_that_is_stored(spoken: LocalStore, tmp_path: Path) -> None:
    import raykit

    screen = RunScreen(raykit.open(str(tmp_path / "store")), "refresh")
    screen.refresh(10.0)
    screen.press("p")
    for key in ("x", "\r"):
        screen.press(key)
    assert screen.said.startswith("already")
    assert all(line.isprintable() for line in [*screen.lines(80), screen.foot()])
