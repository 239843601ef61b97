"""A store in an S3 bucket: `If-None-Match: *` on every create, and no reply is believed to be lost in vain.

s3fs makes the requests. Its own retries and botocore's are off, so that each is counted and bounded here;
aiohttp may still send a request twice on a connection that it had kept open, which turns a lost reply into
"already exists". What a reply means is decided by its HTTP status alone (s3fs maps one status to different
exception classes, by server).

    reply to a create        what is done
    2xx                      written
    412                      read the key back: the same bytes are success, others a conflict
    409, 408, 429, 5xx       read back, then send again, at most five times and a minute
    none                     the same; if the read-back fails too, the outcome is unknown
    no connection            send again for a few seconds; nothing was written
    other                    refused: nothing was written, and sending it again would not help

Objects above `part_bytes` go up in parts, of which only those on their way are kept in memory; the
conditional request is then the one that completes the upload.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar

import s3fs
from fsspec.asyn import sync

from raykit.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    StoreUnavailableError,
    UnknownOutcomeError,
    UnsafeNameError,
    UnusableRootError,
)
from raykit.ids import NAME, safe_key
from raykit.store.base import Data, Listed, Put, Stored, chunks
from raykit.store.s3_connection import RangeReader, check_endpoint, connect, limit_s_of
from raykit.store.s3_replies import ERRORS, Kind, cure, kind_of, reason

T = TypeVar("T")

_PART_BYTES = 16 * 1024 * 1024
_UPLOADS = 3
_READ_BYTES = 4 * 1024 * 1024

_MAX_RETRIES = 5
_PAUSE_S = 0.1
_RETRY_S = 60.0
# Without any connection it gives up sooner: a launch has to say so while its user waits.
_UNREACHED_S = 6.0

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9._=+-]*(/[A-Za-z0-9_=+-][A-Za-z0-9._=+-]*)*|")
_CREATE_ONLY = {"IfNoneMatch": "*"}


class _Retry:
    """At most five retries within a time limit, with a growing pause before each."""

    def __init__(self, limit_s: float) -> None:
        self._start_s = time.monotonic()
        self._limit_s = limit_s
        self._retries = 0

    def again(self, kind: Kind) -> bool:
        """Pause and say yes, or say no."""
        pause_s = _PAUSE_S * 2**self._retries * random.uniform(0.5, 1.0)  # noqa: S311
        self._retries += 1
        limit_s = min(self._limit_s, _UNREACHED_S) if kind is Kind.UNREACHED else self._limit_s
        if self._retries > _MAX_RETRIES or time.monotonic() + pause_s > self._start_s + limit_s:
            return False
        time.sleep(pause_s)
        return True

    def left(self) -> _Retry:
        """A new count of retries in the time that this one has left."""
        return _Retry(self._limit_s - (time.monotonic() - self._start_s))


class S3Store:
    """An `ObjectStore` under `prefix` in `bucket`.

    Endpoint and credentials come from the usual environment (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...)
    unless `endpoint_url` is given. No connection is made before the first verb.

    Raises:
        UnusableRootError: the bucket, the prefix or the endpoint is not one that can be used.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        part_bytes: int = _PART_BYTES,
        retry_s: float = _RETRY_S,
    ) -> None:
        # Neither is repeated: whoever put credentials into the URL has them here.
        if not _BUCKET.fullmatch(bucket):
            raise UnusableRootError("that is not a bucket name", field="root", rule=_BUCKET.pattern)
        if not _PREFIX.fullmatch(prefix):
            raise UnusableRootError("that is not a usable prefix", field="root", rule=_PREFIX.pattern)
        check_endpoint(endpoint_url)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._part_bytes = part_bytes
        self._retry_s = retry_s
        # By process id: a connection does not survive a fork.
        self._connections: dict[int, s3fs.S3FileSystem] = {}

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connections": {}}

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def close(self) -> None:
        """Close the connections. The store can be used again; it then opens new ones."""
        fs = self._connections.pop(os.getpid(), None)
        if fs is not None:
            sync(fs.loop, fs.s3.close, timeout=5)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """All bytes of `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
            CorruptError: it is longer than `max_bytes`.
            StoreUnavailableError: the store did not answer, or refused.
        """
        name = self._name(key)

        async def read() -> bytes:
            reply = await fs._call_s3("get_object", Bucket=self._bucket, Key=name)
            async with reply["Body"] as body:
                size_bytes = int(reply["ContentLength"])
                if max_bytes is not None and size_bytes > max_bytes:
                    raise CorruptError(
                        f"{key} is {size_bytes} bytes long",
                        field=key,
                        value=size_bytes,
                        rule=f"at most {max_bytes}",
                    )
                content: bytes = await body.read()
                return content

        fs = self._fs()
        limit_s = limit_s_of(2**30 if max_bytes is None else max_bytes)
        data: bytes | None = self._find(f"read {key}", lambda: sync(fs.loop, read, timeout=limit_s))
        if data is None:
            raise self._no_such(key)
        return data

    def open(self, key: str) -> BinaryIO:
        """A streaming reader over `key`, which can seek; close it.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
            StoreUnavailableError: the store did not answer, or refused.
        """
        reader = self._reader(key, lambda: _Retry(self._retry_s))
        if reader is None:
            raise self._no_such(key)
        return io.BufferedReader(reader, _READ_BYTES)

    def head(self, key: str) -> int | None:
        """The size of `key` in bytes, or None if there is no such object.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            StoreUnavailableError: the store did not answer, or refused.
        """
        found = self._find(f"look at {key}", self._request("head_object", {"Key": self._name(key)}))
        return None if found is None else int(found["ContentLength"])

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key is `prefix` + "/" + ..., in key order; `""` lists the root.

        All pages are read before the first result: not every server lists in the order of keys.

        Raises:
            UnsafeNameError: `prefix` is not `/`-joined safe names.
            StoreUnavailableError: the store did not answer, or refused.
        """
        start = self._name(prefix) + "/" if prefix else self._prefix
        return iter(sorted(self._pages(start)))

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The next part of every key that has at least two more after `prefix`.

        Raises:
            UnsafeNameError: `prefix` is not `/`-joined safe names.
            StoreUnavailableError: the store did not answer, or refused.
        """
        start = self._name(prefix) + "/"
        pages = self._listed(start, {"Delimiter": "/"})
        found = (str(item["Prefix"]) for page in pages for item in page.get("CommonPrefixes", []))
        names = sorted({each.removeprefix(start).rstrip("/") for each in found})
        return tuple(name for name in names if NAME.fullmatch(name))

    def put_new(self, key: str, data: Data) -> Stored:
        """Create `key`, durably, unless it exists.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            ConflictError: the key holds other bytes. Final.
            UnknownOutcomeError: the reply was lost and the key could not be read back.
            StoreUnavailableError: nothing was written (no answer, or a refusal).
        """
        name = self._name(key)
        parts = _parts(data, self._part_bytes)
        first, second = next(parts, b""), next(parts, None)
        if second is not None:
            return self._put_parts(key, itertools.chain([first, second], parts))
        request = self._request("put_object", {"Key": name, **_CREATE_ONLY}, first)
        return self._create(key, request, hashlib.sha256(first).hexdigest(), len(first))

    def put_derived(self, key: str, data: Data) -> None:
        """Create or replace `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            StoreUnavailableError: the store did not answer, or refused.
        """
        body = b"".join(bytes(view) for view in chunks(data))
        self._ask(f"write {key}", self._request("put_object", {"Key": self._name(key)}, body))

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            StoreUnavailableError: the store did not answer, or its policy forbids it.
        """
        self._find(f"delete {key}", self._request("delete_object", {"Key": self._name(key)}))

    def leftovers(self) -> Sequence[str]:
        """The uploads that were begun and neither completed nor aborted: of a writer at work, or a dead one.

        Raises:
            StoreUnavailableError: the store did not answer, or refused.
        """
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            request = self._request("list_multipart_uploads", {"Prefix": self._prefix, **after})
            page = self._ask("list uploads", request)
            for upload in page.get("Uploads", []):
                found.append(f"{upload['Key'].removeprefix(self._prefix)} (upload {upload['UploadId']})")
            if not page.get("IsTruncated"):
                return sorted(found)
            after = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def check_conditions(self, key: str) -> None:
        """Prove that completing an upload over `key`, which exists, is refused too (some servers replace).

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            UnusableRootError: the upload replaced the object.
            UnknownOutcomeError: the reply was lost and the key could not be read back.
            StoreUnavailableError: the store did not answer, or refused.
        """
        with contextlib.suppress(ConflictError):
            self._put_parts(key, [b"an upload of one part"])
            raise UnusableRootError(
                f"{self.url} replaces objects when an upload in parts is completed",
                field="root",
                value=self.url,
                rule="If-None-Match is honoured by CompleteMultipartUpload",
                remedy="use a store that honours it, such as AWS S3 or SeaweedFS, or a local path",
            )

    def _fs(self) -> s3fs.S3FileSystem:
        # Of several threads that come first, one wins, before any of them has connected.
        fs = self._connections.get(os.getpid())
        return fs or self._connections.setdefault(os.getpid(), connect(self._endpoint_url))

    def _name(self, key: str) -> str:
        return self._prefix + safe_key(key)

    def _request(
        self, method: str, arguments: Mapping[str, object], body: bytes | None = None
    ) -> Callable[[], Any]:
        def send() -> Any:
            # A new file for each attempt, as one attempt reads it to its end.
            content = {} if body is None else {"Body": io.BytesIO(body)}
            fs = self._fs()
            limit_s = limit_s_of(len(body or b""))
            return sync(
                fs.loop, fs._call_s3, method, Bucket=self._bucket, **arguments, **content, timeout=limit_s
            )

        return send

    def _find(self, doing: str, request: Callable[[], T], retry: _Retry | None = None) -> T | None:
        """The reply to a request that may be repeated, or None if what it names does not exist."""
        retry = retry or _Retry(self._retry_s)
        while True:
            try:
                return request()
            except ERRORS as error:
                kind = kind_of(error)
                if kind is Kind.MISSING:
                    return None
                if kind in (Kind.REFUSED, Kind.EXISTS) or not retry.again(kind):
                    raise self._unavailable(doing, error) from error

    def _ask(self, doing: str, request: Callable[[], T], retry: _Retry | None = None) -> T:
        reply = self._find(doing, request, retry)
        if reply is None:
            raise StoreUnavailableError(f"cannot {doing}: the store says that it does not exist")
        return reply

    def _reader(self, key: str, retry: Callable[[], _Retry]) -> RangeReader | None:
        """A reader over `key` each of whose requests takes its patience from `retry`."""
        name = self._name(key)
        found = self._find(f"open {key}", self._request("head_object", {"Key": name}), retry())
        if found is None:
            return None
        etag = str(found["ETag"])

        def read(start: int, end: int) -> bytes:
            async def receive() -> bytes:
                span = f"bytes={start}-{end - 1}"
                # The ETag keeps a derived file that is replaced meanwhile from being read as a mixture.
                reply = await fs._call_s3(
                    "get_object", Bucket=self._bucket, Key=name, Range=span, IfMatch=etag
                )
                async with reply["Body"] as body:
                    content: bytes = await body.read()
                    return content

            fs = self._fs()
            limit_s = limit_s_of(end - start)
            data: bytes = self._ask(f"read {key}", lambda: sync(fs.loop, receive, timeout=limit_s), retry())
            return data

        return RangeReader(read, int(found["ContentLength"]))

    def _pages(self, prefix: str) -> Iterator[Listed]:
        for page in self._listed(prefix, {}):
            for item in page.get("Contents", []):
                key = str(item["Key"]).removeprefix(self._prefix)
                with contextlib.suppress(UnsafeNameError):
                    yield Listed(safe_key(key), int(item["Size"]))

    def _listed(self, prefix: str, how: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing."""
        after: dict[str, str] = {}
        while True:
            request = self._request("list_objects_v2", {"Prefix": prefix, **how, **after})
            page = self._ask(f"list {prefix or self.url}", request)
            yield page
            if not page.get("IsTruncated"):
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}

    def _put_parts(self, key: str, parts: Iterable[bytes]) -> Stored:
        name = {"Key": self._name(key)}
        begun = self._ask(f"begin {key}", self._request("create_multipart_upload", name))
        upload = {**name, "UploadId": str(begun["UploadId"])}
        try:
            etags, sha256, size_bytes = self._upload(key, parts, upload)
            sent = [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(etags, 1)]
            request = self._request(
                "complete_multipart_upload", {**upload, "MultipartUpload": {"Parts": sent}, **_CREATE_ONLY}
            )
            stored = self._create(key, request, sha256, size_bytes)
        except UnknownOutcomeError:
            # The upload may be the object: nothing is cleaned up under doubt.
            raise
        except BaseException:
            self._abort(upload)
            raise
        if stored.outcome is Put.ALREADY_MINE:
            self._abort(upload)
        return stored

    def _upload(
        self, key: str, parts: Iterable[bytes], upload: dict[str, str]
    ) -> tuple[Sequence[str], str, int]:
        """Send `parts`, a few at a time, and hash them meanwhile: their ETags, the sha256 and the size."""
        digest = hashlib.sha256()
        size_bytes = 0
        etags: list[str] = []
        on_their_way: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(_UPLOADS) as pool:
            for number, part in enumerate(parts, 1):
                if len(on_their_way) == _UPLOADS:
                    etags.append(on_their_way.popleft().result()["ETag"])
                request = self._request("upload_part", {**upload, "PartNumber": number}, part)
                on_their_way.append(pool.submit(self._ask, f"upload part {number} of {key}", request))
                digest.update(part)
                size_bytes += len(part)
            etags.extend(sent.result()["ETag"] for sent in on_their_way)
        return etags, digest.hexdigest(), size_bytes

    def _abort(self, upload: dict[str, str]) -> None:
        # The outcome does not depend on it: what stays behind is named by `leftovers`.
        with contextlib.suppress(StoreUnavailableError):
            self._find("abort an upload", self._request("abort_multipart_upload", upload))

    def _create(self, key: str, request: Callable[[], Any], sha256: str, size_bytes: int) -> Stored:
        """Send the one request that creates `key` until its outcome is known, or cannot be."""
        retry = _Retry(self._retry_s)
        lost: Exception | None = None
        while True:
            try:
                request()
                return Stored(Put.WRITTEN, sha256, size_bytes)
            except ERRORS as caught:
                error = caught
            kind = kind_of(error)
            if kind is Kind.REFUSED:
                raise self._unavailable(f"create {key}", error) from error
            if kind is Kind.NO_REPLY:
                lost = error
            if kind is not Kind.UNREACHED and self._read_back(key, sha256, size_bytes, retry):
                return Stored(Put.ALREADY_MINE, sha256, size_bytes)
            if kind is Kind.MISSING or not retry.again(kind):
                if lost:
                    raise self._unknown(
                        key, "the reply was lost; it is not there, but may still appear"
                    ) from lost
                raise self._unavailable(f"create {key}", error) from error

    def _read_back(self, key: str, sha256: str, size_bytes: int, retry: _Retry) -> bool:
        """Whether `key` exists, if it holds exactly these bytes."""
        try:
            reader = self._reader(key, retry.left)
            if reader is None:
                return False
            same = reader.size_bytes == size_bytes
            with io.BufferedReader(reader, _READ_BYTES) as held:
                same = same and hashlib.file_digest(held, "sha256").hexdigest() == sha256
        except StoreUnavailableError as error:
            raise self._unknown(key, "the reply was lost, and it could not be read back") from error
        if not same:
            raise ConflictError(f"{key} already holds other bytes", field=key)
        return True

    def _no_such(self, key: str) -> NotFoundError:
        return NotFoundError(f"there is no {key} in {self.url}", field=key)

    def _unknown(self, key: str, why: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"whether {key} was created in {self.url} is not known: {why}",
            field=key,
            remedy="put the same bytes again once the store answers",
        )

    def _unavailable(self, doing: str, error: BaseException) -> StoreUnavailableError:
        """The error for people. It quotes no URL and no message: they can hold what should stay private."""
        rule, remedy = cure(error)
        return StoreUnavailableError(
            f"cannot {doing} in {self.url}: {reason(error)}", value=reason(error), rule=rule, remedy=remedy
        )


def _parts(data: Data, part_bytes: int) -> Iterator[bytes]:
    """`data` in parts. They grow every 1,000 parts, so that the 10,000 that S3 takes reach 880 GiB."""
    number = 0
    buffer = bytearray()
    for view in chunks(data):
        while view:
            wanted = part_bytes * (1 + number // 1000) - len(buffer)
            buffer += view[:wanted]
            view = view[wanted:]
            if len(buffer) == part_bytes * (1 + number // 1000):
                yield bytes(buffer)
                number += 1
                buffer.clear()
    if buffer:
        yield bytes(buffer)
