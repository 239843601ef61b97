"""Every key of the store, in one place. `docs/FORMAT.md` shows the same tree with what each file holds.

A function per key; nothing else in raykit joins strings into keys.
"""

from __future__ import annotations

import re

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
    """`file` is `plan.toml` or `plan.lock`."""
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
    return f"{run(name, run_name)}/history/{attempt}/" + (stem if series == "train" else f"{safe_name(series)}-{stem}")


def worker_log(name: str, run_name: str, attempt: int, rank: int) -> str:
    return f"{run(name, run_name)}/logs/{attempt}/{rank}.log"


def curve(name: str, run_name: str, file: str) -> str:
    return f"{run(name, run_name)}/curves/{safe_name(file)}"


def checkpoints(name: str, run_name: str) -> str:
    return f"{run(name, run_name)}/checkpoints"


def checkpoint(name: str, run_name: str, update: int, attempt: int, file: str) -> str:
    return f"{checkpoints(name, run_name)}/update-{update:08d}/{attempt}/{safe_name(file)}"


def probe(token: str) -> str:
    """Where a store is tried out before it is trusted; removed again."""
    return f"probes/{safe_name(token)}"
