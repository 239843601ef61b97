"""A run whose store is a real S3 server on loopback: killed, gone on with, the same to the bit as on a disk.

covers I1 I4 I5 I10
"""

from __future__ import annotations

from pathlib import Path

import pytest
import servers
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.store import open_store
from raykit.testing.invariants import check_invariants


def test_a_killed_run_on_s3_is_the_run_on_a_disk(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job(tmp_path / "job")
    on_disk = Launches(nursery, freeze_job(tmp_path / "store", job))
    assert [code for code, _ in on_disk.run()] == [0]

    (tmp_path / "seaweedfs").mkdir()
    with servers.seaweedfs(tmp_path / "seaweedfs") as server:
        environment = {**servers.credentials(), "AWS_ENDPOINT_URL": server.endpoint}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        root = f"s3://{servers.BUCKET}/tiny"
        run = Launches(nursery, freeze_job(root, job), env=environment)
        run.killed({"put": "update-00000010/1/manifest", "when": "after"})
        assert state_of(run.task).committed == 5
        assert [code for code, _ in run.run()] == [0]
        assert final_digest(run.task) == final_digest(on_disk.task)
        assert rows_bits(run.task) == rows_bits(on_disk.task)
        check_invariants(open_store(root))
