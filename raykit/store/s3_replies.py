"""What a reply of an S3 server means: by its HTTP status alone, since s3fs maps one status to several exceptions.

No URL and no message of an error is ever quoted: they can hold what should stay private.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProxyConnectionError,
    SSLError,
)
from s3fs.core import S3_RETRYABLE_ERRORS

_CODE = re.compile(r"[A-Za-z0-9]{1,64}")

# Everything that s3fs, botocore and aiohttp raise when a request does not succeed.
ERRORS = (OSError, BotoCoreError, aiohttp.ClientError, *S3_RETRYABLE_ERRORS)


class RedirectedError(BotoCoreError):  # type: ignore[misc]
    """The endpoint sent the request to another address, which is never followed."""

    fmt = "the endpoint redirects to another address"


_NOT_REACHED = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_NO_REPLY = (HTTPClientError, IncompleteReadError, aiohttp.ClientError, OSError, *S3_RETRYABLE_ERRORS)


class Kind(enum.Enum):
    """What a request that did not succeed has come to."""

    MISSING = "missing"
    EXISTS = "exists"
    TRANSIENT = "transient"
    NO_REPLY = "no reply"
    UNREACHED = "unreached"
    REFUSED = "refused"


def _response(error: BaseException | None) -> dict[str, Any]:
    """What the server replied, from the ClientError that caused `error`; empty if there was no reply."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return response
        error = error.__cause__
    return {}


def _status(error: BaseException) -> int | None:
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def _code(error: BaseException) -> str:
    code = str(_response(error).get("Error", {}).get("Code", ""))
    return code if _CODE.fullmatch(code) else ""


def kind_of(error: BaseException) -> Kind:
    """What an error of s3fs, botocore or aiohttp says of the request."""
    status = _status(error)
    if status is None:
        if isinstance(error, SSLError):
            return Kind.REFUSED
        if isinstance(error, _NOT_REACHED):
            return Kind.UNREACHED
        return Kind.NO_REPLY if isinstance(error, _NO_REPLY) else Kind.REFUSED
    if status == 404:
        return Kind.REFUSED if _code(error) == "NoSuchBucket" else Kind.MISSING
    if status == 412:
        return Kind.EXISTS
    if status in (408, 409, 429) or (status >= 500 and status != 501) or _code(error) == "RequestTimeout":
        return Kind.TRANSIENT
    return Kind.REFUSED


def reason(error: BaseException) -> str:
    """Why a request did not succeed, in words that hold nothing private."""
    status = _status(error)
    if status is not None:
        return f"HTTP {status} {_code(error)}".rstrip()
    if isinstance(error, RedirectedError):
        return str(error)
    kinds = {Kind.UNREACHED: "no connection to the endpoint", Kind.NO_REPLY: "no reply"}
    return f"{kinds.get(kind_of(error), 'not sent')} ({type(error).__name__})"


def cure(error: BaseException) -> tuple[str | None, str | None]:
    """The rule that an error breaks, and what a person can do; None for each that nobody knows."""
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return "credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(error, RedirectedError):
        return "an endpoint that does not redirect", "set AWS_REGION, or correct AWS_ENDPOINT_URL"
    if isinstance(error, SSLError):
        return "a certificate that can be verified", "set AWS_CA_BUNDLE, or correct AWS_ENDPOINT_URL"
    match _status(error):
        case 401 | 403:
            return (
                "credentials that may s3:ListBucket, s3:GetObject and s3:PutObject here",
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the policy of the bucket",
            )
        case 404 if _code(error) == "NoSuchBucket":
            return "a bucket that exists", "create the bucket, or correct its name"
        case 501:
            return "a store that honours If-None-Match", "use another store, or a local path"
        case _:
            return None, None if kind_of(error) is Kind.REFUSED else "check AWS_ENDPOINT_URL and the network"
