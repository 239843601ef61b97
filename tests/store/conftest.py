"""One server of each kind for the whole test session, and a fresh prefix in it for each test."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import botocore.session
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import servers

from raykit.store.s3 import S3Store

_number = itertools.count()

MakeStore = Callable[..., S3Store]


@pytest.fixture(scope="session", autouse=True)
def one_loader() -> Iterator[None]:
    """botocore reads its model of S3 once for all sessions, as it does for all clients of one session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def proxy(moto: servers.Server) -> Iterator[servers.Proxy]:
    with servers.Proxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.credentials().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)


@pytest.fixture
def make_s3(s3_environment: None) -> Iterator[MakeStore]:
    """Make an S3Store for an endpoint, under a prefix of its own; all are closed at the end."""
    made: list[S3Store] = []

    def make(endpoint: str, **options: object) -> S3Store:
        store = S3Store(servers.BUCKET, f"test-{next(_number)}", endpoint_url=endpoint, **options)
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()
