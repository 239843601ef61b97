"""The ledger of an experiment: source to comparison, with digests, whatever happened to it.

covers LEDGER-01..07, LEDGER-09..11, DISP-13..15, BUD-16, BUD-17, BUD-33, BUD-37, BUD-39
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from makebudget import PaidByNode, usd
from makerun import ELSEWHERE, START_AT, RunMaker, make_run
from pydantic import ValidationError

import raykit
from raykit.budget import acts
from raykit.cli import look, runlook
from raykit.cli.dossier import dossier_lines
from raykit.cli.main import main
from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import canonical, sha256
from raykit.plan import Judged, Lock, LockedBase, Looked, RunSeen
from raykit.read.dossier import Dossier, dossier_of
from raykit.records import (
    Amended,
    Cancelled,
    CandidatesEntry,
    Concluded,
    ExperimentEntry,
    Line,
    Locked,
    Measured,
    Noted,
    Observed,
    Place,
    Record,
    Registered,
    Repaired,
    RestartApproved,
    RowsCounted,
    Superseded,
)
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.log import Log, RunLog
from raykit.store.place import this_place
from raykit.testing import MemoryStore

FILES = {"recipe.py": b"class Tiny: ...\n", "words.txt": b"a\nb\n"}
MISSING_MANIFEST = sha256(b"weights that were made elsewhere")


# --- making experiments -------------------------------------------------------------------------------------


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def environment(revision: str | None = "4be1f0c" * 5, **git: Any) -> bytes:
    record = {
        "schema": 1,
        "python": "3.11.9",
        "platform": "Linux",
        "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
        "cpu_count": 2,
        "cpu_model": "a processor",
        "memory_bytes": 8_000_000_000,
        "image": "ghcr.io/corp/train@sha256:0d4e",
        "git_revision": revision,
        "git_dirty": True,
        "git_diff": "+ a line\n",
        **git,
    }
    return canonical(record)


def looked(*runs: RunSeen, unread: tuple[str, ...] = ()) -> Looked:
    return Looked(store="file:///store", runs=runs, unread=unread)


def judged(around: Looked | None = None) -> Judged:
    return Judged(
        stage="screening",
        stage_why="shorter than the target protocol",
        ceiling=usd("900"),
        lines=(Line(line="train", purpose="target", planned=usd("900")),),
        worst=usd("516.30"),
        expected=usd("354"),
        expected_ms=31_320_000,
        uncertain=False,
        rates={"train": "2.99 (invoice 2026-10), billed by the node"},
        passed=("a decision", "an owner"),
        limitations=("one seed",),
        looked=around or looked(),
    )


class Frozen(RunMaker):
    """A run whose code, environment and members are what a launch really freezes."""

    def freeze(self) -> Locked:
        super().freeze()
        return self.lock_again(judged=judged())

    def _members(self) -> str:
        files = {role: f"PAR1 {role} ".encode() * 50 for role in ("train", "development")}
        roles = {
            role: {
                "rows": 1258 if role == "train" else 270,
                "groups": 200,
                "contents": 250,
                "strata": {"all": 1},
                "members": sha256(role.encode()),
                "sha256": sha256(data),
                "size_bytes": len(data),
            }
            for role, data in files.items()
        }
        policy = {"fractions": {"train": 0.8, "development": 0.2}, "group": "content", "seed": 0}
        overlaps = [{"roles": ["train", "development"], "contents": 3, "rows": [3, 4], "groups": 0}]
        manifest = canonical(
            {"schema": 1, "policy": policy, "rows": 1528, "roles": roles, "overlaps": overlaps}
        )
        for role, data in files.items():
            self.store.put_new(layout.membership(self.experiment, sha256(manifest), f"{role}.parquet"), data)
        self.store.put_new(layout.membership(self.experiment, sha256(manifest), "manifest.json"), manifest)
        return sha256(manifest)

    def lock_again(
        self,
        *,
        settings: dict[str, Any] | None = None,
        files: dict[str, bytes] = FILES,
        env: bytes | None = None,
        seen_update: int | None = None,
        deviation: str | None = None,
        **more: Any,
    ) -> Locked:
        """Lock the plan once more, with what is given changed in it; later attempts are of this lock."""
        name, key = self.experiment, layout.plan(self.experiment, self.locked.plan, "plan.lock")
        old = Lock.from_bytes(self.store.get(key), key)
        code, record = tar_of(files), env or environment()
        shown = {**old.settings, "recipe": "recipe:Tiny", **(settings or {})}
        lock = old.model_copy(update={"settings": shown, "code": sha256(code), **more})
        self.store.put_new(layout.code(name, sha256(code)), code)
        self.store.put_new(layout.environment(name, sha256(record)), record)
        self.store.put_new(layout.plan(name, lock.digest, "plan.toml"), self.plan_file())
        self.store.put_new(layout.plan(name, lock.digest, "plan.lock"), lock.to_bytes())
        self.locked = Locked(
            plan=lock.digest,
            contract=lock.contract,
            code=lock.code,
            environment=sha256(record),
            data=lock.data,
            seen_update=seen_update,
            deviation=deviation,
        )
        self.people(self.locked)
        return self.locked

    def people(self, *events: Record, by: str = "maker") -> None:
        """Append to the experiment's log what people say."""
        log = Log(self.store, layout.experiment_log(self.experiment), ExperimentEntry, by=by)
        log.append(lambda entries: events, at=self._tick())


def frozen(store: Any = None, **options: Any) -> Frozen:
    maker = Frozen(MemoryStore() if store is None else store, **options)
    maker.freeze()
    return maker


def trained(maker: RunMaker, updates: int = 10) -> None:
    """A launch that trains a little and lets go."""
    maker.launch()
    maker.begin()
    maker.rows(updates)
    maker.look()
    maker.commit()
    maker.end("paused", detail="SIGTERM")
    maker.release("paused")


def open_at(maker: RunMaker, *, now: float | None = None, name: str | None = None) -> Dossier:
    at = maker.at if now is None else now
    return dossier_of(raykit.open(maker.store, clock=lambda: at), name or maker.experiment)


def text_of(dossier: Dossier) -> str:
    return "\n".join(dossier_lines(dossier))


# --- source to comparison -----------------------------------------------------------------------------------


def test_everything_from_source_to_comparison_has_its_digest() -> None:
    """covers LEDGER-01 DISP-13 DISP-14"""
    maker = frozen()
    trained(maker)
    store, found = maker.store, open_at(maker)
    (source,) = found.sources
    assert (source.rows, source.digest) == (1528, maker.locked.data), "the source by the content of its rows"
    (members,) = found.frozen.members
    assert members.policy is not None
    assert members.policy["group"] == "content", "the transformation"
    manifest_key = layout.membership("digits", members.digest, "manifest.json")
    assert sha256(store.get(manifest_key)) == members.digest
    assert {each.role: (each.rows, each.members) for each in members.roles} == {
        "train": (1258, sha256(b"train")),
        "development": (270, sha256(b"development")),
    }
    code = found.frozen.code[-1]
    assert (code.recipe, code.digest) == ("recipe:Tiny", maker.locked.code)
    assert code.files is not None
    assert {each.name: each.sha256 for each in code.files} == {k: sha256(v) for k, v in FILES.items()}
    runtime = found.frozen.runtimes[-1]
    assert runtime.record is not None
    assert (runtime.digest, runtime.record["packages"]["torch"]) == (maker.locked.environment, "2.13.0")
    lock = found.frozen.lock
    assert lock is not None
    assert (lock.digest, lock.contract) == (maker.locked.plan, maker.contract)
    newest = found.checkpoints[-1]
    assert newest.selected
    assert sha256(store.get(newest.commit.key)) == newest.commit.sha256
    assert newest.files is not None
    for file in newest.files:
        key = newest.commit.key.replace("manifest.json", file.name)
        assert sha256(store.get(key)) == file.sha256, "output checksums"
    assert found.plain()["comparison"] == {
        "made": False,
        "says": "none yet: nothing has been compared, and no conclusion here is a comparison",
        "arms": [],
    }


def test_the_text_names_every_step_in_its_order() -> None:
    """covers LEDGER-01"""
    maker = frozen()
    trained(maker)
    text = text_of(open_at(maker))
    steps = ["active", "sources", "divided", "members", "base", "model", "runtime", "inputs"]
    later = ["LOCK", "LAUNCH", "gates", "checkpoints", "projected", "comparison", "review"]
    at = [text.index(f"\n  {step:<11}  ") for step in steps]
    at += [text.index(f"\n{step} " if step.isupper() else f"\n  {step:<11}  ") for step in later]
    assert at == sorted(at)
    assert "train 0.8, development 0.2; kept together: content; seed 0" in text
    assert "exact contents in two roles: train and development 3" in text
    assert "recipe:Tiny, code " in text
    assert "2 files\n" in text
    assert "python 3.11.9, 2 packages, image ghcr.io/corp/train@sha256:0d4e" in text
    assert "git 4be1f0c4 + a difference of 9 B (kept)" in text
    assert "base         none: trained from the start" in text
    assert "LOCK      LOCKED" in text


GIT = {
    "no git": (
        environment(None, git_dirty=None, git_diff=None),
        "git revision not known",
    ),
    "nothing differs": (
        environment(git_dirty=False, git_diff=None),
        "git 4be1f0c4, no difference found",
    ),
    "git did not answer": (
        environment(git_dirty=None, git_diff=None),
        "git 4be1f0c4, what differs is not known",
    ),
    "a file that git does not track": (
        environment(git_diff="?? recipe.py\n"),
        "git 4be1f0c4 + a difference of 13 B (kept), in which git does not track 1 file: recipe.py",
    ),
    "more than is kept": (
        environment(git_diff="+ a line\n(cut here: 7 characters more)\n"),
        "git 4be1f0c4 + a difference of 39 B (kept in part)",
    ),
}


@pytest.mark.parametrize("what", GIT)
def test_what_git_knew_is_said_as_it_is_recorded(what: str) -> None:
    record, says = GIT[what]
    maker = frozen()
    maker.lock_again(env=record, judged=judged())
    assert f"{says}\n" in text_of(open_at(maker))


def test_an_environment_that_is_back_is_the_one_in_force() -> None:
    maker = frozen()
    for revision in ("aa", "bb", "aa"):
        maker.lock_again(env=environment(revision * 20), judged=judged())
    assert f"git {'aa' * 4} + " in text_of(open_at(maker))


def test_every_frozen_input_is_there_as_it_was() -> None:
    """covers DISP-13: launch inputs are immutable, and preserved through later locks and attempts"""
    maker = frozen()
    trained(maker)
    before = {item.key: item.sha256 for item in open_at(maker).frozen.inputs}
    maker.lock_again(settings={"run": {"updates": 60}}, files={"recipe.py": b"other\n"})
    trained(maker)
    found = open_at(maker).frozen
    assert before.items() <= {item.key: item.sha256 for item in found.inputs}.items()
    assert {item.held for item in found.inputs} == {"verified", "there"}
    for item in found.inputs:
        assert item.sha256 == sha256(maker.store.get(item.key)), item.key
    assert [item.held for item in found.inputs if item.key.endswith(".parquet")] == ["there", "there"]


@pytest.mark.parametrize(
    ("file", "held", "said"),
    [
        ("code", "changed", "the files of code"),
        ("code", "missing", "the files of code"),
        ("environment", "changed", "environment: "),
        ("plan.lock", "missing", "what had been seen when lock"),
        ("plan.toml", "changed", "plan.toml: "),
        ("members", "missing", "was divided"),
        ("members, train", "missing", "members, train: "),
        ("members, train", "changed", "members, train: "),
    ],
)
def test_what_is_damaged_is_said_to_be_and_hides_nothing_else(file: str, held: str, said: str) -> None:
    """covers LEDGER-06: what is not known is said, not passed over"""
    maker = frozen()
    trained(maker)
    assert isinstance(maker.store, MemoryStore)
    key = [item.key for item in open_at(maker).frozen.inputs if item.what == file][-1]
    if held == "missing":
        del maker.store.objects[key]
    else:
        maker.store.objects[key] += b"more"
    found = open_at(maker)
    (item,) = [item for item in found.frozen.inputs if item.key == key]
    assert item.held == held
    assert any(said in each for each in found.unknown), found.unknown
    assert any(key in each for each in found.unknown)
    assert len(found.jobs) == 1
    text = text_of(found)
    assert f"1 {held.upper()}" in text
    assert "not known" in text


def test_a_damaged_log_or_account_leaves_the_rest_to_be_read() -> None:
    store = MemoryStore()
    maker = PaidByNode(store, experiment="lm")
    maker.freeze()
    trained(maker)
    for log, words in (("experiments/lm/log", "its own log"), ("accounts/corp-lm/log", "its account")):
        broken = MemoryStore()
        broken.objects.update(store.objects)
        for key in [key for key in broken.objects if key.startswith(log)]:
            broken.objects[key] = broken.objects[key][:30]
        found = dossier_of(raykit.open(broken, clock=lambda: maker.at), "lm")
        assert any(each.startswith(words) for each in found.unknown), found.unknown
        assert [job.launch for job in found.jobs] == ["lm-launch-1"]
        assert found.checkpoints


def test_a_log_that_cannot_be_read_is_an_error_as_before() -> None:
    maker = frozen()
    trained(maker)
    assert isinstance(maker.store, MemoryStore)
    log = layout.run_log("digits", "main")
    maker.store.objects[layout.log_entry(log, 2)] = b"{}"
    del maker.store.objects[layout.log_snapshot(log)]
    with pytest.raises(CorruptError):
        open_at(maker)


# --- restarts: old evidence, and what is active -------------------------------------------------------------


def test_a_restart_keeps_all_that_was_there() -> None:
    """covers LEDGER-02 LEDGER-11: the killed attempt, what it had trained beyond its checkpoint, and its files"""
    store = MemoryStore()
    maker = Frozen(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(10)
    maker.look()
    maker.commit()
    maker.rows(5)
    before = {key: data for key, data in store.objects.items() if "snapshot" not in key}
    maker.launch()
    maker.begin()
    maker.rows(8)
    maker.look()
    maker.commit("final")
    maker.end("completed")
    maker.release("completed")
    assert before.items() <= store.objects.items(), "nothing was replaced, nothing removed"
    found = open_at(maker)
    first, second = found.jobs
    assert (first.end, first.taken_over_by, second.end) == (None, "launch-2", "completed")
    (killed,) = first.attempts
    assert killed.ended is not None
    assert (killed.ended.reason, killed.ended.update) == ("killed", 15)
    (again,) = second.attempts
    assert (again.resumed_from, again.exactness.words) == (10, "exact (declared)")
    (gone,) = found.superseded
    assert (gone.superseded.from_, gone.superseded.to) == (11, 15)
    assert [each.commit.update for each in found.checkpoints] == [0, 10, 18]
    text = text_of(found)
    assert "never said; launch-2 took over" in text
    assert "killed at 15" in text
    assert "updates 11 to 15, kept as cost: attempt 2 resumes" in text


def test_where_an_attempt_started_is_the_same_in_both_tables() -> None:
    maker = Frozen(MemoryStore())
    maker.freeze()
    base = LockedBase(
        candidate="digits-vae", origin="run", experiment="digits-vae", update=2000, attempt=1,
        manifest=sha256(b"m"), key="experiments/digits-vae/manifest.json",
    )  # fmt: skip
    maker.lock_again(base=base, settings={"base": {"candidate": "digits-vae", "start": "continue"}})
    trained(maker)
    found = open_at(maker)
    assert found.view is not None
    above = "\n".join(runlook.run_lines(found.view, None, {}, maker.at))
    (attempt,) = [line for line in above.splitlines() if line.startswith("1  ")]
    assert "digits-vae at 2,000" in attempt
    text = text_of(found)
    table = text[text.index("LAUNCH") : text.index("gates")]
    assert "digits-vae at 2,000" in table
    assert "the start" not in table


def test_a_launch_that_a_gate_has_ended_trained_nothing_that_could_be_superseded() -> None:
    maker = frozen()
    maker.launch()
    maker.begin()
    maker.end("failed", detail="gate first failed")
    maker.release("failed")
    maker.launch()
    maker.say([Superseded(from_=0, to=0, why="attempt 2 starts from update 0")])
    found = open_at(maker)
    assert found.view is not None
    assert found.view.superseded == 0
    assert "trained and superseded" not in "\n".join(runlook.run_lines(found.view, None, {}, maker.at))
    assert "superseded   update 0, before any training, kept as cost: attempt 2 starts" in text_of(found)
    assert look.span(Superseded(from_=0, to=5, why="w")) == "updates 1 to 5"
    assert look.span(Superseded(from_=5, to=5, why="w")) == "update 5"


HERE = this_place()
GONE = HERE.model_copy(update={"started": HERE.started + 1})
LEASE_S = 60.0


@pytest.mark.parametrize(
    ("place", "silent_s", "answer", "why"),
    [
        (HERE, 5.0, "at work", f"process {os.getpid()} of launch launch-1 on {HERE.host} is there"),
        (HERE, 9_000.0, "at work", "it was heard 9,000 s ago"),
        (GONE, 5.0, "nothing", "is gone, and never said how it ended"),
        (ELSEWHERE, 5.0, "at work", "cannot be seen from here; it was heard 5 s ago, within 60 s"),
        (ELSEWHERE, 61.0, "unknown", "cannot be seen from here; it was heard 61 s ago, past its 60 s"),
    ],
)
def test_what_is_active_follows_from_who_holds_the_run(
    place: Place, silent_s: float, answer: str, why: str
) -> None:
    """covers LEDGER-03"""
    maker = frozen(place=place)
    maker.launch()
    maker.begin()
    maker.rows(5)
    maker.flush()
    found = open_at(maker, now=maker.at + silent_s)
    assert (found.active.answer, found.active.launch) == (answer, "launch-1")
    assert why in found.active.why
    assert any("whether it is at work" in each for each in found.unknown) == (answer == "unknown")
    assert f"active       {answer}: " in text_of(found)


def test_nothing_is_active_once_it_let_go_and_before_anything_was_launched() -> None:
    """covers LEDGER-03"""
    maker = frozen()
    assert open_at(maker).active.why == "nothing was launched from this store"
    trained(maker)
    found = open_at(maker).active
    assert (found.answer, found.why) == ("nothing", "launch launch-1 has let go of the run: paused")


def test_every_physical_job_is_kept() -> None:
    """covers DISP-15"""
    maker = frozen()
    trained(maker)
    maker.place = Place(host="n8", boot="boot/2", pid=99, started=7)
    trained(maker)
    jobs = open_at(maker).jobs
    places = [ELSEWHERE, maker.place]
    assert [job.place for job in jobs] == places
    assert [job.attempts[0].place for job in jobs] == places
    assert [job.attempts[0].facts for job in jobs] == [{"torch": "2.13"}] * 2
    rows = [line.split() for line in text_of(open_at(maker)).splitlines()]
    assert [row[3:5] for row in rows if row[:1] in (["launch-1"], ["launch-2"])] == [
        ["n7", "4711"],
        ["n8", "99"],
    ]


# --- plans that were locked again ---------------------------------------------------------------------------


def kinds(maker: RunMaker) -> list[str]:
    return [revision.kind for revision in open_at(maker).frozen.revisions]


def test_amendments_and_deviations_are_told_apart_by_what_had_been_seen() -> None:
    """covers LEDGER-01: what changed between locks"""
    maker = frozen()
    maker.lock_again(settings={"run": {"updates": 60, "select": "min development.ratio"}}, judged=judged())
    maker.lock_again(
        settings={"run": {"updates": 80, "select": "min development.ratio"}},
        judged=judged(),
        seen_update=40,
        deviation="the curve was still falling",
    )
    maker.lock_again(
        settings={"run": {"updates": 80, "select": "min development.ratio"}},
        env=environment("ff" * 20),
        judged=judged(),
        seen_update=50,
    )
    revisions = open_at(maker).frozen.revisions
    assert [revision.kind for revision in revisions[2:]] == ["amendment", "deviation", "same plan"]
    changes = {change.field: (change.was, change.now) for change in revisions[3].changes}
    assert changes == {"run.updates": (60, 80)}
    text = text_of(open_at(maker))
    assert "amendment, nothing seen: run.updates: 40 -> 60" in text
    assert "deviation, update 40 seen: run.updates: 60 -> 80 (said: the curve was still falling)" in text
    assert "the same plan: environment: " in text


def test_a_lock_from_before_reviews_cannot_say_what_had_been_seen() -> None:
    """covers LEDGER-06: silence of an old store is not taken for `nothing had been seen`"""
    maker = RunMaker(MemoryStore())
    maker.freeze()
    again = Frozen(maker.store)
    again.locked = maker.locked
    again.lock_again(settings={"run": {"updates": 60}})
    assert kinds(again) == ["first", "unknown"]
    found = open_at(again)
    assert found.judged is None
    assert any(each.startswith("what had been seen when lock ") for each in found.unknown)
    assert "what was reviewed before it was launched: its lock keeps no review" in found.unknown
    assert "review       not known: its lock keeps none" in text_of(found)


def test_other_code_and_another_base_are_changes_too() -> None:
    maker = frozen()
    base = LockedBase(
        candidate="lm1b-prod",
        origin="adopted",
        experiment="lm1b-prod",
        update=95_000,
        attempt=0,
        manifest=MISSING_MANIFEST,
        key=layout.adopted(MISSING_MANIFEST, "manifest.json"),
    )
    shared = b"[claim]\n"
    digest = maker.lock_again(
        files={"recipe.py": b"other\n"}, base=base, shared=sha256(shared), judged=judged()
    ).plan
    maker.store.put_new(layout.plan("digits", digest, "shared.toml"), shared)
    found = open_at(maker)
    fields = {change.field for change in found.frozen.revisions[-1].changes}
    assert {"code", "base.manifest", "shared"} <= fields
    assert [item.held for item in found.frozen.inputs if item.what == "shared.toml"] == ["verified"]
    assert found.base is not None
    assert found.base.held == "missing"
    assert any("the weights that it starts from" in each for each in found.unknown)
    assert "lm1b-prod at update 95,000" in text_of(found)
    assert "adopted, its history is absent, missing" in text_of(found)


def test_adopted_weights_say_that_their_history_is_absent() -> None:
    """covers LEDGER-06, BUD-17: who brought them in, and what is known of what they took"""
    maker = frozen()
    manifest = canonical({"schema": 1, "files": []})
    key = layout.adopted(sha256(manifest), "manifest.json")
    maker.store.put_new(key, manifest)
    common: dict[str, Any] = {"manifest": sha256(manifest), "key": key, "update": 95_000}
    base = LockedBase(candidate="lm1b-prod", origin="adopted", experiment="lm1b-prod", attempt=0, **common)
    maker.lock_again(base=base, judged=judged())
    register(
        maker,
        Registered(candidate="lm1b-prod", role="base", origin="adopted", history="absent", person="mira",
                   source="hf:org/name@3f2c", **common),
        Registered(candidate="mine", role="search-checkpoint", origin="run", manifest=sha256(b"x"), key="x",
                   experiment="digits", update=40, accelerator_ms=7_200_000, cost=usd("5.98"), person="ada"),
        Registered(candidate="other", role="search-checkpoint", origin="run", manifest=sha256(b"y"), key="y",
                   experiment="another", person="ada"),
    )  # fmt: skip
    found = open_at(maker)
    assert found.base is not None
    assert found.base.held == "verified"
    assert "how lm1b-prod was trained: it was adopted, and its history is absent" in found.unknown
    assert [said.event.plain()["candidate"] for said in found.candidates] == ["lm1b-prod", "mine"]
    text = text_of(found)
    assert "invested not known, cost not known, by mira" in text
    assert "invested 2 accelerator-hours, cost 5.98, by ada" in text


def test_a_statement_that_was_corrected_is_marked() -> None:
    maker = frozen()
    said = Registered(candidate="mine", role="search-checkpoint", origin="run", manifest=sha256(b"x"), key="x",
                      experiment="digits", rows=7, person="ada")  # fmt: skip
    register(maker, said, said.model_copy(update={"rows": 8, "corrects": True}))
    assert [each.superseded for each in open_at(maker).candidates] == [True, False]
    assert text_of(open_at(maker)).count("by ada: corrected since") == 1


def register(maker: Frozen, *events: Registered) -> None:
    log = Log(maker.store, layout.candidates_log(), CandidatesEntry, by="maker")
    log.append(lambda entries: events, at=maker._tick())


# --- the review of what ran before --------------------------------------------------------------------------


def seen(name: str, state: str, update: int = 40, outcome: str | None = None) -> RunSeen:
    return RunSeen(experiment=name, state=state, update=update, updates=40, outcome=outcome)


def test_the_review_says_what_it_looked_at_however_it_had_ended() -> None:
    """covers LEDGER-04 LEDGER-05"""
    maker = frozen()
    around = looked(
        seen("good", "completed", outcome="better"),
        seen("bad", "failed", 3),
        seen("ended", "cancelled", 10),
        seen("half", "killed", 20),
        unread=("torn",),
    )
    maker.lock_again(judged=judged(around))
    found = open_at(maker)
    review = found.plain()["review"]
    assert [run["state"] for run in review["looked"]["runs"]] == [
        "completed",
        "failed",
        "cancelled",
        "killed",
    ]
    assert review["scope"] == "4 related in file:///store; runs elsewhere were not looked at"
    text = text_of(found)
    assert "looked at: 4 related in file:///store; runs elsewhere were not looked at" in text
    for line in ("good: completed at 40 of 40, better", "bad: failed at 3 of 40", "ended: cancelled at 10"):
        assert line in text
    assert "could not be read: torn" in text
    assert "limitation: one seed" in text


def test_no_listing_proves_that_there_is_no_run() -> None:
    """covers LEDGER-06"""
    maker = frozen()
    found = open_at(maker)
    assert found.judged is not None
    assert found.judged.looked.words == (
        "file:///store shows no related run; runs elsewhere were not looked at"
    )
    assert found.unknown[-1] == f"runs outside {maker.store.url}: they were not looked at"
    text = text_of(found)
    assert "not known here, which does not show that it is nowhere" in text
    assert "no run exists" not in text
    with pytest.raises(NotFoundError) as refused:
        open_at(maker, name="absent")
    assert maker.store.url in refused.value.message, "not here; more nobody says"


# --- where the rows are from --------------------------------------------------------------------------------


def test_what_the_sources_are_called_is_in_the_record() -> None:
    """covers LEDGER-07: from the plan and the log of the experiment, with the newest count of each"""
    maker = frozen()
    data = {
        "train": ["s3://corp/docs@v7", "s3://corp/new@11"],
        "mix": {"docs@v7": 0.75},
        "development": "s3://corp/dev@v3",
    }
    maker.lock_again(settings={"data": data}, judged=judged())
    for rows in (5, 59_022_310):
        maker.people(
            RowsCounted(source="s3://corp/docs@v7", rows=rows, digest=sha256(b"%d" % rows), how="a listing")
        )
    docs, new, dev = open_at(maker).sources
    assert (docs.role, docs.rows, docs.digest) == ("train", 59_022_310, sha256(b"59022310"))
    assert (new.source, new.rows, new.digest, new.how) == (
        "s3://corp/new@11",
        None,
        None,
        "not known: nobody counted",
    )
    assert dev.role == "development"
    assert "the checksum of s3://corp/new@11" in open_at(maker).unknown
    assert "train s3://corp/new@11: rows not known, checksum not known" in text_of(open_at(maker))


def test_no_dataset_or_recipe_is_named_in_the_code() -> None:
    """covers LEDGER-07: outside docstrings, raykit's own code names no source and no recipe of a job"""
    for path in sorted(Path(raykit.__file__).parent.rglob("*.py")):
        if "testing" in path.parts:
            continue  # a kit for tests of stores
        for text in constants(ast.parse(path.read_text())):
            assert "load_digits" not in text, path
            assert not text.startswith(("s3://", "hf:", "dcp:")) or len(text) < 8, (path, text)
    for job in (Path(raykit.__file__).parents[1] / "jobs").iterdir():
        for path in Path(raykit.__file__).parent.rglob("*.py"):
            assert f"jobs.{job.name}" not in path.read_text(), path


def constants(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


# --- money --------------------------------------------------------------------------------------------------


@pytest.fixture
def paid() -> PaidByNode:
    """Two attempts that were paid for, one of them failed, and one whose end nobody knows."""
    maker = PaidByNode(MemoryStore(), experiment="lm")
    maker.freeze()
    maker.approve()
    for reason, hours in (("failed", 1.5), ("paused", 2.0)):
        maker.launch()
        maker.begin(hours=3.0, lease=f"lm-launch-{maker.launches}-1")
        maker.rows(10)
        maker.commit()
        maker.end(reason, hours=hours)  # type: ignore[arg-type]
        maker.release(reason)  # type: ignore[arg-type]
    maker.launch()
    maker.begin(hours=3.0, lease="lm-launch-3-1")
    maker.rows(5)
    maker.launch()
    return maker


def test_every_setting_that_was_tried_stays_with_its_cost(paid: PaidByNode) -> None:
    """covers LEDGER-11 BUD-33: failed, stopped, and of unknown end"""
    failed, paused, unknown = open_at(paid).charges
    eight = usd("2.99") * 8
    assert [(c.state, c.reason, c.cost) for c in (failed, paused)] == [
        ("settled", "failed", eight * 3 // 2),
        ("settled", "paused", eight * 2),
    ]
    assert (unknown.state, unknown.cost, unknown.charged) == ("open", None, unknown.worst)
    assert [c.attempt for c in (failed, paused, unknown)] == [1, 2, 3]
    assert {c.plan for c in (failed, paused, unknown)} == {paid.locked.plan}, "the setting that was tried"
    assert [c.launch for c in (failed, paused, unknown)] == [f"lm-launch-{n}" for n in (1, 2, 3)]
    text = text_of(open_at(paid))
    for lease in ("lm-launch-1-1", "lm-launch-2-1", "lm-launch-3-1"):
        assert lease in text
    assert "35.88" in text
    assert "47.84" in text
    assert "what became of lease lm-launch-3-1: it stays charged in full" in text


def test_the_projection_stands_beside_what_it_came_to(paid: PaidByNode) -> None:
    """covers BUD-16 BUD-17 BUD-37: accelerator time, wall time and cost"""
    outlay = open_at(paid).outlay
    assert outlay is not None
    assert (outlay.projected.cost, outlay.projected.wall_ms) == (usd("354"), 31_320_000)
    assert outlay.projected.accelerator_ms == 8 * 31_320_000
    assert outlay.actual.cost == usd("35.88") + usd("47.84")
    assert (outlay.actual.wall_ms, outlay.actual.accelerator_ms) == (12_600_000, 8 * 12_600_000)
    assert not outlay.uncertain
    text = text_of(open_at(paid))
    assert "at launch  cost 354.00, wall 8h42, 69.6 accelerator-hours\n" in text
    assert "actually   cost 83.72, held 3h30, 28 accelerator-hours" in text


class Guessed(PaidByNode):
    def _planned(self, locked: Locked) -> Any:
        return super()._planned(locked).model_copy(update={"uncertain": True})


def test_a_projection_without_measurement_is_called_a_guess() -> None:
    """covers BUD-37"""
    maker = Guessed(MemoryStore(), experiment="lm")
    maker.freeze()
    found = open_at(maker)
    assert found.outlay is not None
    assert found.outlay.uncertain
    assert "accelerator-hours (a guess: nothing compatible was measured)" in text_of(found)


def test_the_sizing_shows_each_term() -> None:
    """covers BUD-39: memory by term at the longest representative input, not a count of parameters"""
    maker = frozen()
    terms = {"model": 4_400_000_000, "optimizer": 8_800_000_000, "activations": 47_000_000_000}
    maker.people(
        Measured(what="memory", pool="train", time_ms=580_000, memory_bytes=terms, how="the longest 1 %")
    )
    maker.people(Measured(what="update", pool="train", time_ms=2_190, how="gate memory", person="mira"))
    memory, update = open_at(maker).learned.measured
    assert memory.event.plain()["memory_bytes"] == terms
    text = text_of(open_at(maker))
    assert "memory on train: activations 47.0 GB, model 4.4 GB, optimizer 8.8 GB (the longest 1 %)" in text
    assert "update on train: 2.2 s for 1 (gate memory)" in text
    assert update.at > memory.at


# --- people -------------------------------------------------------------------------------------------------


def test_who_allowed_what_is_all_there_and_scripts_are_labelled(paid: PaidByNode) -> None:
    """covers LEDGER-01: approvals with persons, replans, repairs, the end for good"""
    log = Log(paid.store, layout.experiment_log("lm"), ExperimentEntry, by="ada")
    said: list[Record] = [
        RestartApproved(
            projection=sha256(b"p"), covers="5.0 % more rows", reason="asked", person="eve", scripted=True
        ),
        Amended(run="main", allows="state-exact", reason="a patched image", differences=sha256(b"d")),
        Repaired(what="the mask", attempt=1, person="mira"),
        Cancelled(reason="flat", person="mira"),
    ]
    log.append(lambda entries: said, at=paid._tick())
    lines = list(paid.ledger.book.allocations["lm"].lines.values())
    moved = acts.moved(paid.ledger.book.allocations["lm"], [("recovery", "train", usd("5"))])
    assert moved != lines
    paid.decide(
        lambda book: acts.replan(
            book, "lm", moved, ceiling=usd("900"), reason="new rate", person="mira", scripted=True
        )
    )
    found = {act.kind: act for act in open_at(paid).acts}
    assert found.keys() == {"money", "restart", "less exactly", "repair", "cancelled", "replan"}
    assert (found["money"].person, found["money"].covers, found["money"].current) == (
        "mira",
        usd("900"),
        True,
    )
    assert found["less exactly"].person == "ada", "whoever wrote the entry"
    assert [kind for kind, act in found.items() if act.scripted] == ["restart", "replan"]
    text = text_of(open_at(paid))
    assert "eve (scripted)" in text
    assert "up to 900.00, covers the plan as it is" in text
    assert "main may go on state-exact: a patched image" in text


def test_a_gate_that_failed_stays_beside_its_repair() -> None:
    """covers LEDGER-11 BUD-26"""
    maker = frozen()
    maker.launch()
    maker.begin()
    maker.gate("first", passed=False)
    maker.people(Repaired(what="the mask's denominator", attempt=1, person="ada"))
    maker.gate("first")
    found = open_at(maker)
    assert [(g.result.gate, g.result.passed) for g in found.gates] == [
        ("first", True),
        ("resume", True),
        ("first", False),
        ("first", True),
    ]
    text = text_of(found)
    assert "4 results: 3 passed, 1 failed" in text
    assert "first failed after attempt 1: finite" in text
    assert "through attempt 1: the mask's denominator" in text


# --- what was learned ---------------------------------------------------------------------------------------

DIAGNOSIS = {
    "hypotheses": {
        "mask": {"says": "the mask's denominator is wrong", "stop_after": 1},
        "rate": {"says": "the rate is too high", "stop_after": 1},
        "row": {"says": "a row is corrupt", "stop_after": 1},
    },
    "tests": {"finite": {"does": "first batch"}, "halve": {"does": "half the rate"}},
}


def observed(**more: Any) -> Observed:
    given: dict[str, Any] = {
        "plan": sha256(b"plan"),
        "test": "finite",
        "saw": "no NaN in the inputs",
        "supports": ("rate",),
        "removed": ("row",),
        "next": "halve the rate",
        "covers": {"rows": "128"},
        "person": "ada",
    }
    return Observed(**{**given, **more})


def test_the_branch_that_was_taken_and_what_it_removed() -> None:
    """covers LEDGER-01: hypotheses are removed, none is ever proved"""
    maker = frozen()
    maker.lock_again(settings={"diagnosis": DIAGNOSIS}, judged=judged())
    maker.people(observed(scripted=True))
    found = open_at(maker).diagnosed
    assert found is not None
    assert (found.removed, found.left) == ({"row": "finite"}, ("mask", "rate"))
    assert {test.test: test.runs for test in found.tests} == {"finite": 1, "halve": 0}
    text = text_of(open_at(maker))
    assert "finite: saw no NaN in the inputs; removed row; next halve the rate (scripted)" in text
    assert "not removed: mask, rate; that shows none of them to be true" in text
    assert "not run: halve" in text
    for word in ("prove", "stable", "confirmed"):
        assert word not in text


def test_an_observation_stays_when_its_diagnosis_left_the_plan() -> None:
    maker = frozen()
    maker.people(observed())
    found = open_at(maker).diagnosed
    assert found is not None
    assert (found.hypotheses, found.left) == ({}, ("rate",))
    assert open_at(frozen()).diagnosed is None


def test_what_was_predicted_stays_with_what_was_seen_though_no_plan_has_it() -> None:
    """covers PLAN-73: a later reader can tell that the prediction was there first"""
    maker = frozen()
    maker.people(
        observed(
            hypotheses={"mask": "a wrong mask", "rate": "too high a rate", "row": "one bad row"},
            predicts={"mask": "finite", "rate": "finite", "row": "not finite"},
            next_by={"mask": "halve it", "rate": "halve it", "row": "find it"},
        )
    )
    found = open_at(maker).diagnosed
    assert found is not None
    assert found.hypotheses["row"] == "one bad row"
    assert found.left == ("mask", "rate"), "also those that no observation has supported"
    assert "predicted before: mask: 'finite' -> halve it; rate: 'finite' -> halve it; row: 'not finite'" in (
        text_of(open_at(maker))
    )


def concluded(**more: Any) -> Concluded:
    given: dict[str, Any] = {
        "outcome": "equivalent",
        "says": "flat within noise",
        "hypothesis": "a lower peak loses less of the base",
        "effect": "-0.0003 +/- 0.0011 bits per byte",
        "decision": sha256(b"decision"),
        "contract": sha256(b"setting"),
        "update": 1500,
        "person": "mira",
    }
    return Concluded(**{**given, **more})


def test_a_negative_result_stays_by_hypothesis_and_setting() -> None:
    """covers LEDGER-10"""
    maker = frozen()
    maker.people(concluded())
    maker.people(Cancelled(reason="lr flat", person="mira"))
    maker.lock_again(settings={"run": {"updates": 60}}, judged=judged())
    (kept,) = open_at(maker).learned.concluded
    assert isinstance(kept.event, Concluded)
    assert (kept.event.hypothesis, kept.event.contract) == (
        "a lower peak loses less of the base",
        sha256(b"setting"),
    )
    text = text_of(open_at(maker))
    assert "equivalent; flat within noise; of: a lower peak loses less of the base; -0.0003" in text
    assert "at update 1,500, by mira" in text


def test_what_happened_once_is_an_incident_and_never_a_rule() -> None:
    """covers LEDGER-09"""
    maker = frozen()
    maker.people(Noted(kind="incident", says="three of eight nodes were lost at 02:10", person="ada"))
    assert "incident: three of eight nodes were lost at 02:10, by ada" in text_of(open_at(maker))
    for kind in ("rule", "lesson", "law"):
        with pytest.raises(ValidationError):
            Noted(kind=kind, says="never use eight nodes", person="ada")  # type: ignore[arg-type]


def test_a_comparison_that_the_plan_binds_is_not_taken_for_one_that_was_made() -> None:
    """covers LEDGER-01"""
    maker = frozen()
    arms = {"base": {}, "wide": {"params.width": 64}}
    maker.lock_again(settings={"comparison": {"arms": arms, "varies": "params.width"}}, judged=judged())
    maker.people(concluded(outcome="better"))
    found = open_at(maker)
    assert found.plain()["comparison"]["made"] is False
    assert found.plain()["comparison"]["arms"] == ["base", "wide"]
    assert "no conclusion here is a comparison; the plan binds base, wide" in text_of(found)


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))

    def call(*arguments: str) -> tuple[int, str]:
        code = main(["show", *arguments])
        said = capsys.readouterr()
        return code, said.out if code == 0 else said.err

    return call


def test_show_prints_the_run_and_then_its_ledger(show: Any, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    make_run(store)
    before = {item.key: item for item in store.list("")}
    code, text = show("digits")
    assert code == 0
    assert text.startswith("digits/main\n")
    assert text.count("\nledger of digits, source to comparison\n") == 1
    assert text.index("MANIFEST") < text.index("ledger of digits")
    assert {item.key: item for item in store.list("")} == before, "nothing is written"
    code, text = show("digits/main", "--json")
    found = json.loads(text)
    assert (code, found["state"], found["ledger"]["experiment"]) == (0, "completed", "digits")
    assert found["ledger"]["jobs"][0]["attempts"][0]["place"]["host"] == "n7"
    assert found["ledger"]["unknown"]
    assert found["ledger"]["frozen"]["revisions"][0]["lock"]["name"] == "digits"


def test_show_of_what_was_never_launched(show: Any, tmp_path: Path) -> None:
    """An experiment that people have only spoken of has a ledger, and no run."""
    store = LocalStore(tmp_path / "store")
    log = Log(store, layout.experiment_log("planned"), ExperimentEntry, by="ada")
    log.append(lambda entries: [concluded(outcome="no-full-run", update=0)], at=START_AT)
    code, text = show("planned")
    assert code == 0
    assert text.startswith("ledger of planned, source to comparison\n")
    assert "no-full-run" in text
    assert "its plan: nothing is locked here" in text
    assert json.loads(show("planned", "--json")[1])["ledger"]["learned"]["concluded"]


def test_show_refuses_what_is_not_one_experiment(show: Any, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    for run in ("main", "again"):
        maker = RunMaker(store, run=run)
        maker.freeze()
    assert show("digits")[0] == InvalidInput.exit_code
    code, text = show("digit")
    assert (code, "did you mean digits" in text) == (2, True)
    assert show("digits/nothing")[0] == 2
    assert show("../etc")[0] == 2
    assert show("digits/again")[0] == 0


def test_words_of_people_do_nothing_to_a_terminal() -> None:
    maker = frozen()
    maker.people(Noted(kind="incident", says="a\x1b[31mred\x07", person="ev\x1b[0me"))
    maker.people(observed(saw="\x1b]0;title\x07"))
    text = text_of(open_at(maker))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_the_ledger_needs_neither_ray_nor_torch(tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path))
    script = (
        "import sys; from raykit.cli.main import main; "
        "code = main(['show', 'digits', '--root', sys.argv[1]]); "
        "print(sorted({'ray', 'torch', 'pyarrow'} & sys.modules.keys()), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_long_stories_are_cut_in_the_text_and_whole_as_json() -> None:
    maker = frozen()
    for n in range(25):
        maker.people(Repaired(what=f"repair {n}", attempt=n, person="ada"))
    found = open_at(maker)
    text = text_of(found)
    assert "and 5 before them (--json lists all)" in text
    assert "repair 24" in text
    assert len(found.plain()["acts"]) == 25
    json.dumps(found.plain(), allow_nan=False)
    RunLog(maker.store, "digits", "main", by="reader").refresh()
