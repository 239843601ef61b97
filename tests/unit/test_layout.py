"""Keys: every one is safe, stays in the root, and can be told for what it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raykit.errors import UnsafeNameError
from raykit.ids import safe_key, sha256
from raykit.store import layout

D = sha256(b"")
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,30}", fullmatch=True)
NUMBERS = st.integers(1, 10**6)


def kinds(name: str, run: str, number: int, file: str) -> Mapping[str, str]:
    return {
        layout.log_entry(layout.experiment_log(name), number): "experiment-entry",
        layout.log_entry(layout.run_log(name, run), number): "run-entry",
        layout.log_snapshot(layout.experiment_log(name)): "snapshot",
        layout.log_snapshot(layout.run_log(name, run)): "snapshot",
        layout.plan(name, D, "plan.toml"): "plan",
        layout.plan(name, D, "plan.lock"): "plan",
        layout.code(name, D): "code",
        layout.environment(name, D): "environment",
        layout.membership(name, D, "manifest.json"): "membership",
        layout.membership(name, D, "report_only.parquet"): "membership",
        layout.run_record(name, run): "run-record",
        layout.segment(name, run, number, "train", number, number + 3): "segment",
        layout.segment(name, run, number, "development", 0, number): "segment",
        layout.checkpoint(name, run, number, number, file): "checkpoint",
        layout.worker_log(name, run, number, 0): "worker-log",
        layout.curve(name, run, file): "curve",
        layout.log_entry(layout.fleet_log(), number): "fleet-entry",
        layout.log_snapshot(layout.fleet_log()): "snapshot",
        layout.log_entry(layout.account_log(name), number): "account-entry",
        layout.log_snapshot(layout.account_log(name)): "snapshot",
        layout.account_of("experiment", D): "account-of",
        layout.account_of("decision", D): "account-of",
        layout.account_of("lineage", D): "account-of",
        layout.account_of("data", D): "account-of",
        layout.probe(file): "probe",
        layout.generation_contract(name, run, D): "generation-contract",
        layout.generation_attempt(name, run, D, "claims", number, number): "generation-claim",
        layout.generation_attempt(name, run, D, "failures", number, number): "generation-failure",
        layout.generation_attempt(name, run, D, "conflicts", number, number): "generation-conflict",
        layout.generation_attempt(name, run, D, "took", number, number): "generation-took",
        layout.generation_data(name, run, D, number, D): "generation-data",
        layout.generation_receipt(name, run, D, number): "generation-receipt",
        layout.generation_manifest(name, run, D): "generation-manifest",
        layout.generation_snapshot(name, run, D): "generation-snapshot",
        layout.generation_picture(name, run, file): "generation-picture",
        layout.generation_inputs(name, D, "manifest.json"): "inputs",
        layout.generation_inputs(name, D, f"{D}.parquet"): "inputs",
    }


@given(NAMES, NAMES, NUMBERS, NAMES)
def test_a_key_is_told_for_what_it_is(name: str, run: str, number: int, file: str) -> None:
    found = kinds(name, run, number, file)
    assert len(found) == 37, "no two of them are the same key"
    for key, kind in found.items():
        assert safe_key(key) == key
        known = layout.known(key)
        assert known is not None, key
        assert known.kind == kind
        assert known.parts.get("experiment", name) == name
        assert known.parts.get("run", run) == run
        assert known.parts.get("account", name) == name
        assert known.parts.get("set", run) == run
        assert int(known.parts.get("unit", number)) == number


@given(NAMES, NUMBERS)
def test_an_account_may_have_any_name(name: str, number: int) -> None:
    for account in (name, "by", "log", "fleet"):
        known = layout.known(layout.log_entry(layout.account_log(account), number))
        assert known == layout.Known("account-entry", {"account": account, "n": f"{number:012d}"})


def test_the_parts_of_a_key_are_those_it_was_made_of() -> None:
    known = layout.known(layout.segment("e", "r", 3, "development", 0, 200))
    assert known == layout.Known(
        "segment",
        {
            "experiment": "e",
            "run": "r",
            "attempt": "3",
            "series": "development",
            "first": "00000000",
            "last": "00000200",
        },
    )
    known = layout.known(layout.checkpoint("e", "r", 400, 2, "model.safetensors"))
    assert known is not None
    assert known.parts == {
        "experiment": "e",
        "run": "r",
        "update": "00000400",
        "attempt": "2",
        "file": "model.safetensors",
    }


@pytest.mark.parametrize(
    "key",
    [
        "readme.md",
        "experiments/e/notes.txt",
        "experiments/e/runs/r/log/1.json",
        "experiments/e/runs/r/log/000000000001.json.bak",
        "experiments/e/runs/r/log/000000000001.json/x",
        "experiments/e/runs/r/history/0/00000001-00000002.jsonl",
        f"experiments/e/plans/{D[:-1]}/plan.lock",
        f"experiments/e/plans/{D}/plan.yaml",
        f"experiments/e/data/{D}/train.pickle",
        f"experiments/e/code/{D.upper()}.tar",
        "experiments/e/runs/r/checkpoints/update-00000400/2/a/b",
        f"accounts/by/name/{D}.json",
        f"accounts/by/decision/{D[:-1]}.json",
        "accounts/a/log/1.json",
        "accounts/a/notes.txt",
        "fleet/log/000000000001.txt",
        "fleet/other/000000000001.json",
    ],
)
def test_other_keys_are_unknown(key: str) -> None:
    assert layout.known(key) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/abs",
        "a/b",
        "a//b",
        "A",
        "a b",
        "a\n",
        "a\x00",
        "-a",
        "_a",
        "é",
        "a" * 129,
        "a%2e",
        "a:b",
        "a?",
        "a#",
        "CON",
    ],
)
def test_no_name_leaves_the_root(name: str) -> None:
    # covers S11
    for make in (
        lambda: layout.experiment(name),
        lambda: layout.run("e", name),
        lambda: layout.plan("e", D, name),
        lambda: layout.code("e", name),
        lambda: layout.environment("e", name),
        lambda: layout.membership("e", D, name),
        lambda: layout.curve("e", "r", name),
        lambda: layout.checkpoint("e", "r", 1, 1, name),
        lambda: layout.segment("e", "r", 1, name, 1, 2),
        lambda: layout.account_log(name),
        lambda: layout.account_of(name, D),
        lambda: layout.account_of("data", name),
        lambda: layout.probe(name),
    ):
        with pytest.raises(UnsafeNameError):
            make()
