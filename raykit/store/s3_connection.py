"""Connections to an S3 server: without retries and redirects of their own, and with a limit on every request."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import s3fs
from aiobotocore.httpsession import AIOHTTPSession

from raykit.errors import UnusableRootError
from raykit.store.s3_replies import RedirectedError

CONNECT_TIMEOUT_S = 3.0
_READ_TIMEOUT_S = 15.0
# Whoever sends or receives more slowly than this is taken for gone: no request may last for ever.
_SLOWEST_BYTES_PER_S = 100_000


def connect(endpoint_url: str | None) -> s3fs.S3FileSystem:
    """A file system whose every request is sent once; no connection is made before the first one."""
    fs = s3fs.S3FileSystem(
        anon=False,
        endpoint_url=endpoint_url,
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": _READ_TIMEOUT_S,
            "retries": {"total_max_attempts": 1},
            "http_session_cls": _OneHost,
            # Many servers refuse checksum trailers; the signed sha256 of each body does as well.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "s3": {"payload_signing_enabled": True},
        },
    )
    fs.retries = 1
    return fs


def limit_s_of(size_bytes: int) -> float:
    """How long a request that carries so many bytes may take."""
    return 2 * _READ_TIMEOUT_S + size_bytes / _SLOWEST_BYTES_PER_S


def check_endpoint(given: str | None) -> None:
    """Refuse an endpoint, given or from the environment, that is more than a scheme and a host.

    Raises:
        UnusableRootError: it is.
    """
    endpoint = given or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment:
        raise UnusableRootError(
            "the S3 endpoint is not a plain http or https URL",
            field="AWS_ENDPOINT_URL",
            rule="http://host:port or https://host, without user, password, query or fragment",
            remedy="put credentials into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )


class RangeReader(io.RawIOBase):
    """One object, read by ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._read = read
        self._at = 0
        self.size_bytes = size_bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}")
        self._at = start + offset
        return self._at

    def readall(self) -> bytes:
        # The inherited one asks for 8 KiB at a time.
        data = self._read(self._at, self.size_bytes) if self._at < self.size_bytes else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self.size_bytes)
        if end <= self._at:
            return 0
        data = self._read(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _OneHost(AIOHTTPSession):  # type: ignore[misc]
    """aiobotocore's session, as botocore's is: without redirects, which aiohttp follows to any host."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        return _NoRedirects(await super()._get_session(proxy_url))

    async def send(self, request: Any) -> Any:
        # aiohttp would wait without a limit for the answer to this header; signatures leave it out.
        request.headers.pop("Expect", None)
        response = await super().send(request)
        # botocore follows a bucket to its region, and without one asks itself until its stack is full. Should
        # a later aiobotocore open its sessions in another way, no other host's reply is believed.
        lost = 300 <= response.status_code < 400 and "x-amz-bucket-region" not in response.headers
        if lost or _host(str(response.url)) != _host(str(request.url)):
            raise RedirectedError
        return response


class _NoRedirects:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        return await self._session.request(*args, **kwargs, allow_redirects=False)


def _host(url: str) -> tuple[str | None, int]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
