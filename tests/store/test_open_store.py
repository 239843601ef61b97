"""Which roots are taken, which are refused, and what a refusal repeats. S12, S21, and the corpus of 2.7."""

from __future__ import annotations

from pathlib import Path

import pytest

from raykit.errors import UnusableRootError
from raykit.store import LocalStore, open_store
from raykit.store.s3 import S3Store


@pytest.mark.parametrize(
    "root", ["store", "./store", "/data/store", "../store", "./a:b", "/data/a:b@c", "a b/c"]
)
def test_a_plain_path_is_a_folder(root: str) -> None:
    store = open_store(root)
    assert isinstance(store, LocalStore)
    assert store.url == str(Path(root).absolute())


def test_a_home_folder_is_meant_as_a_shell_means_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert open_store("~/store").url == "/home/somebody/store"


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://my-bucket.eu/Team_1/raykit/", "s3://my-bucket.eu/Team_1/raykit"),
    ],
)
def test_an_s3_url_is_a_bucket_and_a_prefix(root: str, url: str) -> None:
    store = open_store(root)
    assert isinstance(store, S3Store)
    assert store.url == url


REFUSED = [
    "",
    "file:///data/store",
    "file:/data/store",
    "http://host/store",
    "https://bucket.s3.amazonaws.com/prefix",
    "S3://bucket/prefix",
    "s3a://bucket/prefix",
    "s3:bucket/prefix",
    "gs://bucket/prefix",
    "memory://store",
    "simplecache::s3://bucket/prefix",
    "s3://bucket/prefix::file://x",
    "zip://a.zip::/data",
    "/data::/store",
    "C:\\store",
    "s3://",
    "s3:///prefix",
    "s3://bucket//prefix",
    "s3://bucket/../other",
    "s3://bucket/a/../../other",
    "s3://bucket/%2e%2e/other",
    "s3://bucket:9000/prefix",
    "s3://bucket/pre fix",
    "s3://bucket/prefix\n",
    "/data/st\x00ore",
    "/data/store\n",
    "/data/\u202estore",
]
SECRET = [
    "s3://user:hunter2@bucket/prefix",
    "s3://hunter2@bucket/prefix",
    "s3://bucket/prefix?secret=hunter2",
    "s3://bucket/prefix#hunter2",
    "s3://bucket/prefix?versionId=hunter2",
    "https://user:hunter2@host/store",
    "/data/store?hunter2",
    "/data/store#hunter2",
]


@pytest.mark.parametrize("root", REFUSED + SECRET, ids=ascii)
def test_everything_else_is_refused_and_no_secret_is_repeated(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnusableRootError) as caught:
        open_store(root)
    error = caught.value
    assert error.field == "root"
    assert error.rule
    assert "hunter2" not in f"{error} {vars(error)}"
    assert list(tmp_path.iterdir()) == []
