"""The address of a cluster, as people give it, and the token that goes with it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import psutil

from raykit.errors import InvalidInput, NotFoundError
from raykit.fleet.dev import find_dev
from raykit.fleet.jobs.api import JobsApi
from raykit.fleet.session.probe import require_accepted, require_asking
from raykit.fleet.session.token import environment_token, read_token, token_is_said

AUTO: Final = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a cluster's dashboard answers."""

    url: str
    dev: bool = False
    """It is this user's own, on this machine."""

    @property
    def here(self) -> bool:
        """Whether it is a cluster on this machine: paths mean the same, and its CPUs are this machine's own."""
        return self.dev or _is_here(urlsplit(self.url).hostname or "")


def address_of(said: str) -> Address:
    """The cluster that somebody means. `auto` is this user's dev cluster, or else what RAY_ADDRESS says.

    Raises:
        InvalidInput: it is no address of a dashboard.
        NotFoundError: `auto`, and there is none.
        InsecureClusterError: the folder of sessions is not private.
    """
    if said != AUTO:
        return Address(url=_url(said, field="--address"))
    dev = find_dev()
    if dev is not None and dev.dashboard_url is not None:
        return Address(url=dev.dashboard_url, dev=True)
    named = os.environ.get("RAY_ADDRESS", "")
    if named in ("", AUTO):
        raise NotFoundError(
            "no cluster is meant: there is no dev cluster, and RAY_ADDRESS is not set",
            field="--address",
            value=said,
            rule="the address of a cluster's dashboard, http://HOST:PORT",
            remedy="raykit dev up",
        )
    return Address(url=_url(named, field="RAY_ADDRESS"))


def token_of(address: Address) -> str | None:
    """The token for a cluster: where Ray looks for one; None if there is none.

    The dev cluster's own where that is what `auto` means, or where nobody names another: what is said is never
    replaced by what would have worked.

    Raises:
        InvalidInput: the file that holds it cannot be read, or is empty.
        InsecureClusterError: other users of this machine can read it.
    """
    dev = find_dev()
    if dev is not None and dev.dashboard_url == address.url and (address.dev or not token_is_said()):
        return read_token(dev.token_path)
    return environment_token()


def connect(address: Address) -> JobsApi:
    """The Jobs API of a cluster that is seen to refuse strangers.

    Raises:
        InsecureClusterError: it answers without a token, or to a wrong one; or others can read the token's file.
        InvalidInput: nobody answers there, there is no token, or the cluster does not accept it.
        DeadlineError: no answer in time.
    """
    require_asking(address.url)  # first: what is wrong with the token here says nothing about the cluster
    token = token_of(address)
    require_accepted(address.url, token)
    assert token is not None
    return JobsApi(address.url, token)


def _url(said: str, *, field: str) -> str:
    """The address as a URL without anything behind host and port."""
    text = said if "://" in said else f"http://{said}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.username
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        # The address is not repeated: it may hold a password.
        raise InvalidInput(
            "the cluster's address is not usable",
            field=field,
            rule="auto, or http://HOST:PORT of its dashboard, 8265 unless somebody chose another port; no user",
        )
    return text.rstrip("/")


def _is_here(host: str) -> bool:
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    return bool(found) and all(address in own or address.startswith("127.") for address in found)
