"""Every key of the store, in one place. `docs/FORMAT.md` shows the same tree with what each file holds.

A function per key; nothing else in raykit joins strings into keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from raykit.ids import safe_name

ENTRY = re.compile(r"(?P<n>\d{12})\.json")
UPDATE = re.compile(r"update-(?P<update>\d{8,})")


def log_entry(log: str, number: int) -> str:
    """`<log>/000000000012.json`: entry `number` (from 1) of the log at `log`."""
    return f"{log}/{number:012d}.json"


def log_snapshot(log: str) -> str:
    """All entries so far, one a line. Derived."""
    return f"{log}-snapshot.jsonl"


def experiments() -> str:
    return "experiments"


def experiment(name: str) -> str:
    return f"experiments/{safe_name(name)}"


def experiment_log(name: str) -> str:
    return f"{experiment(name)}/log"


def plan(name: str, digest: str, file: str) -> str:
    """`file` is `plan.toml`, `plan.lock`, or `shared.toml`: what some tables of the plan are from."""
    return f"{experiment(name)}/plans/{safe_name(digest)}/{safe_name(file)}"


def code(name: str, digest: str) -> str:
    return f"{experiment(name)}/code/{safe_name(digest)}.tar"


def environment(name: str, digest: str) -> str:
    return f"{experiment(name)}/env/{safe_name(digest)}.json"


def membership(name: str, digest: str, file: str) -> str:
    """`file` is `manifest.json` or `<role>.parquet`."""
    return f"{experiment(name)}/data/{safe_name(digest)}/{safe_name(file)}"


def runs(name: str) -> str:
    return f"{experiment(name)}/runs"


def run(name: str, run_name: str) -> str:
    return f"{experiment(name)}/runs/{safe_name(run_name)}"


def run_record(name: str, run_name: str) -> str:
    return f"{run(name, run_name)}/run.json"


def run_log(name: str, run_name: str) -> str:
    return f"{run(name, run_name)}/log"


def segment(name: str, run_name: str, attempt: int, series: str, first: int, last: int) -> str:
    """Rows `first` to `last` of one series: `train` (no prefix), `development`, `monitor`."""
    stem = f"{first:08d}-{last:08d}.jsonl"
    return f"{run(name, run_name)}/history/{attempt}/" + (
        stem if series == "train" else f"{safe_name(series)}-{stem}"
    )


def worker_log(name: str, run_name: str, attempt: int, rank: int) -> str:
    return f"{run(name, run_name)}/logs/{attempt}/{rank}.log"


def curve(name: str, run_name: str, file: str) -> str:
    return f"{run(name, run_name)}/curves/{safe_name(file)}"


def checkpoints(name: str, run_name: str) -> str:
    return f"{run(name, run_name)}/checkpoints"


def checkpoint(name: str, run_name: str, update: int, attempt: int, file: str) -> str:
    return f"{checkpoints(name, run_name)}/update-{update:08d}/{attempt}/{safe_name(file)}"


def qc(name: str) -> str:
    """Where everything lies that examining the checkpoints of an experiment leaves behind."""
    return f"{experiment(name)}/qc"


def qc_suite(name: str, digest: str) -> str:
    return f"{qc(name)}/suites/{safe_name(digest)}.json"


def qc_roster(name: str, digest: str) -> str:
    return f"{qc(name)}/rosters/{safe_name(digest)}.json"


def qc_request(name: str, request: str) -> str:
    return f"{qc(name)}/requests/{safe_name(request)}.json"


def qc_attempt(name: str, kind: str, request: str, n: int) -> str:
    """What is said of attempt `n` (from 1) at a request; `kind` is `claims`, `failures`, `took` or `conflicts`."""
    return f"{qc(name)}/{safe_name(kind)}/{safe_name(request)}/{n}.json"


def qc_receipt(name: str, request: str) -> str:
    return f"{qc(name)}/receipts/{safe_name(request)}.json"


def qc_artifact(name: str, request: str, file: str) -> str:
    """A picture of a receipt; `file` is its sha256 and suffix."""
    return f"{qc(name)}/artifacts/{safe_name(request)}/{safe_name(file)}"


def qc_picture(name: str, file: str) -> str:
    """A chart or contact sheet over all receipts. Derived."""
    return f"{qc(name)}/pictures/{safe_name(file)}"


def generation(name: str, set_name: str, contract: str) -> str:
    """Where everything lies that making a synthetic set under one contract leaves behind."""
    return f"{experiment(name)}/generation/{safe_name(set_name)}/{safe_name(contract)}"


def generation_contract(name: str, set_name: str, contract: str) -> str:
    return f"{generation(name, set_name, contract)}/contract.json"


def generation_data(name: str, set_name: str, contract: str, unit: int, digest: str) -> str:
    """The produced rows of a unit; `digest` is the sha256 of the file: equal attempts write one file.

    All units share one folder, here and below: a folder of its own would double what a unit costs to write, and make a
    listing ten times as slow.
    """
    return f"{generation(name, set_name, contract)}/units/{unit:08d}-{safe_name(digest)}.parquet"


def generation_attempt(name: str, set_name: str, contract: str, kind: str, unit: int, n: int) -> str:
    """What is said of attempt `n` (from 1) at a unit; `kind` is `claims`, `failures` or `conflicts`."""
    return f"{generation(name, set_name, contract)}/{safe_name(kind)}/{unit:08d}-{n}.json"


def generation_receipt(name: str, set_name: str, contract: str, unit: int) -> str:
    return f"{generation(name, set_name, contract)}/receipts/{unit:08d}.json"


def generation_manifest(name: str, set_name: str, contract: str) -> str:
    return f"{generation(name, set_name, contract)}/manifest.json"


def generation_snapshot(name: str, set_name: str, contract: str) -> str:
    """The rows of all units that were published when it was written. Derived."""
    return f"{generation(name, set_name, contract)}/published.parquet"


def generation_inputs(name: str, digest: str, file: str) -> str:
    """The inputs of synthetic sets; `file` is `manifest.json`, or `<sha256>.parquet` of a chunk."""
    return f"{experiment(name)}/inputs/{safe_name(digest)}/{safe_name(file)}"


def generation_picture(name: str, set_name: str, file: str) -> str:
    """A picture of rows of a synthetic set. Derived."""
    return f"{experiment(name)}/generation/{safe_name(set_name)}/pictures/{safe_name(file)}"


def search(name: str, search_name: str) -> str:
    return f"{experiment(name)}/searches/{safe_name(search_name)}"


def search_registration(name: str, search_name: str) -> str:
    return f"{search(name, search_name)}/registration.json"


def search_log(name: str, search_name: str) -> str:
    return f"{search(name, search_name)}/log"


def search_picture(name: str, search_name: str, file: str) -> str:
    """A chart of the trials. Derived."""
    return f"{search(name, search_name)}/pictures/{safe_name(file)}"


def report(name: str, file: str) -> str:
    """A page about an experiment. Derived."""
    return f"{experiment(name)}/report/{safe_name(file)}"


def fleet_log() -> str:
    """Pauses and resumes that concern more than one experiment."""
    return "fleet/log"


def candidates_log() -> str:
    """The registry of the root: weights that can be chosen."""
    return "candidates/log"


def adopted(digest: str, file: str) -> str:
    """A file of weights that were made elsewhere; `digest` is that of their manifest."""
    return f"candidates/adopted/{safe_name(digest)}/{safe_name(file)}"


def accounts() -> str:
    return "accounts"


def account_log(name: str) -> str:
    return f"accounts/{safe_name(name)}/log"


def account_of(kind: str, digest: str) -> str:
    """Which account work with this identity belongs to; `kind` is experiment, decision, lineage or data."""
    return f"accounts/by/{safe_name(kind)}/{safe_name(digest)}.json"


def probe(token: str) -> str:
    """Where a store is tried out before it is trusted; removed again."""
    return f"probes/{safe_name(token)}"


# --- what a key is ------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """A key that one of the functions above makes: of what kind, and its parts by name."""

    kind: str
    parts: Mapping[str, str]


DERIVED = frozenset(
    {
        "snapshot",
        "worker-log",
        "curve",
        "qc-picture",
        "generation-snapshot",
        "generation-picture",
        "search-picture",
        "report",
    }
)
"""Kinds that can be drawn again, and are read by no decision."""

_NAME = "[a-z0-9][a-z0-9._-]{0,127}"
_GROUPS = {
    "E": f"experiments/(?P<experiment>{_NAME})",
    "R": f"experiments/(?P<experiment>{_NAME})/runs/(?P<run>{_NAME})",
    "A": f"accounts/(?P<account>{_NAME})",
    "n": r"(?P<n>\d{12})",
    "Q": f"experiments/(?P<experiment>{_NAME})/qc",
    "S": f"experiments/(?P<experiment>{_NAME})/generation/(?P<set>{_NAME})",
    "G": f"experiments/(?P<experiment>{_NAME})/generation/(?P<set>{_NAME})/(?P<contract>[0-9a-f]{{64}})",
    "T": f"experiments/(?P<experiment>{_NAME})/searches/(?P<search>{_NAME})",
    "unit": r"(?P<unit>\d{8}|[1-9]\d{8,})",
    "digest": "(?P<digest>[0-9a-f]{64})",
    "request": "(?P<request>[0-9a-f]{64})",
    "try": "(?P<try>[1-9][0-9]*)",
    "attempt": "(?P<attempt>[1-9][0-9]*)",
    "update": r"(?P<update>\d{8,})",
    "rows": r"((?P<series>[a-z]+)-)?(?P<first>\d{8,})-(?P<last>\d{8,})",
    "file": f"(?P<file>{_NAME})",
    "parquet": rf"{_NAME}\.parquet",
    "path": f"(?P<file>{_NAME}(/{_NAME})*)",
}
_KINDS = tuple(
    (kind, re.compile(pattern.format(**_GROUPS)))
    for kind, pattern in (
        ("experiment-entry", r"{E}/log/{n}\.json"),
        ("run-entry", r"{R}/log/{n}\.json"),
        ("snapshot", r"{E}/log-snapshot\.jsonl"),
        ("snapshot", r"{R}/log-snapshot\.jsonl"),
        ("plan", r"{E}/plans/{digest}/(?P<file>plan\.(toml|lock)|shared\.toml)"),
        ("code", r"{E}/code/{digest}\.tar"),
        ("environment", r"{E}/env/{digest}\.json"),
        ("membership", r"{E}/data/{digest}/(manifest\.json|{parquet})"),
        ("run-record", r"{R}/run\.json"),
        ("segment", r"{R}/history/{attempt}/{rows}\.jsonl"),
        ("checkpoint", r"{R}/checkpoints/update-{update}/{attempt}/{file}"),
        ("worker-log", r"{R}/logs/{attempt}/(?P<rank>\d+)\.log"),
        ("curve", r"{R}/curves/{file}"),
        ("qc-suite", r"{Q}/suites/{digest}\.json"),
        ("qc-roster", r"{Q}/rosters/{digest}\.json"),
        ("qc-request", r"{Q}/requests/{request}\.json"),
        ("qc-claim", r"{Q}/claims/{request}/{try}\.json"),
        ("qc-failure", r"{Q}/failures/{request}/{try}\.json"),
        ("qc-took", r"{Q}/took/{request}/{try}\.json"),
        ("qc-conflict", r"{Q}/conflicts/{request}/{try}\.json"),
        ("qc-receipt", r"{Q}/receipts/{request}\.json"),
        ("qc-artifact", r"{Q}/artifacts/{request}/{file}"),
        ("qc-picture", r"{Q}/pictures/{file}"),
        ("generation-contract", r"{G}/contract\.json"),
        ("generation-data", r"{G}/units/{unit}-{digest}\.parquet"),
        ("generation-claim", r"{G}/claims/{unit}-{try}\.json"),
        ("generation-failure", r"{G}/failures/{unit}-{try}\.json"),
        ("generation-conflict", r"{G}/conflicts/{unit}-{try}\.json"),
        ("generation-took", r"{G}/took/{unit}-{try}\.json"),
        ("generation-receipt", r"{G}/receipts/{unit}\.json"),
        ("generation-manifest", r"{G}/manifest\.json"),
        ("generation-snapshot", r"{G}/published\.parquet"),
        ("generation-picture", r"{S}/pictures/{file}"),
        ("inputs", r"{E}/inputs/{digest}/(manifest\.json|{parquet})"),
        ("search-registration", r"{T}/registration\.json"),
        ("search-entry", r"{T}/log/{n}\.json"),
        ("snapshot", r"{T}/log-snapshot\.jsonl"),
        ("search-picture", r"{T}/pictures/{file}"),
        ("report", r"{E}/report/{path}"),
        ("fleet-entry", r"fleet/log/{n}\.json"),
        ("snapshot", r"fleet/log-snapshot\.jsonl"),
        ("candidates-entry", r"candidates/log/{n}\.json"),
        ("snapshot", r"candidates/log-snapshot\.jsonl"),
        ("adopted", r"candidates/adopted/{digest}/{file}"),
        ("account-entry", r"{A}/log/{n}\.json"),
        ("snapshot", r"{A}/log-snapshot\.jsonl"),
        ("account-of", r"accounts/by/(?P<identity>experiment|decision|lineage|data)/{digest}\.json"),
        ("probe", r"probes/{file}"),
    )
)


def known(key: str) -> Known | None:
    """What `key` is; None if raykit makes no such key."""
    for kind, pattern in _KINDS:
        if found := pattern.fullmatch(key):
            return Known(kind, {name: part for name, part in found.groupdict().items() if part is not None})
    return None
