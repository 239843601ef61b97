"""Every promise of the protocol, on every store. Covers I2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import servers

from raykit.store import LocalStore
from raykit.store.s3 import S3Store
from raykit.testing import FaultStore, MemoryStore, StoreTests


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestLocalStore(StoreTests):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        return LocalStore(tmp_path / "root")


class TestFaultStoreWithoutFault(StoreTests):
    @pytest.fixture
    def store(self) -> FaultStore:
        return FaultStore(MemoryStore())


class TestS3StoreOnSeaweedfs(StoreTests):
    @pytest.fixture
    def store(self, seaweedfs: servers.Server, make_s3: Callable[..., S3Store]) -> S3Store:
        return make_s3(seaweedfs.endpoint)
