"""Does a cluster ask for its token? Asked from outside, the way a stranger would."""

from __future__ import annotations

import http.client
import secrets
from typing import Final
from urllib.parse import SplitResult, urlsplit

from raykit.errors import DeadlineError, InsecureClusterError, InvalidInput

_JOBS: Final = "/api/jobs/"
_TIMEOUT_S: Final = 10.0
_SCHEMES: Final = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


def check_cluster(address: str, token: str | None) -> None:
    """Refuse a cluster whose Jobs API answers without `token`, or with any other.

    `address` is that of the dashboard, `http://host:port`. The token itself is sent last, to a server that
    has just refused a wrong one; without one, the cluster is found out all the same, before that is refused.

    Raises:
        InsecureClusterError: the Jobs API does not answer 401 without a token and 403 to a wrong one.
        InvalidInput: no such address, nobody answers there, there is no token, or the cluster does not accept it.
        DeadlineError: no answer within ten seconds.
    """
    require_asking(address)
    require_accepted(address, token)


def require_asking(address: str) -> None:
    """Refuse a cluster that serves strangers: whoever has no token, or a wrong one.

    Raises:
        InsecureClusterError: the Jobs API does not answer 401 without a token and 403 to a wrong one.
        InvalidInput: no such address, or nobody answers there.
        DeadlineError: no answer within ten seconds.
    """
    server = _server(address)
    without = _status(server, None)
    if without != 401:
        raise _insecure(address, f"answered {without} without a token", "401 without a token")
    wrong = _status(server, secrets.token_hex(32))
    if wrong != 403:
        raise _insecure(address, f"answered {wrong} to a wrong token", "403 to a wrong token")


def require_accepted(address: str, token: str | None) -> None:
    """See that a cluster which refuses strangers accepts this token.

    Raises:
        InvalidInput: nobody answers there, there is no token, or the cluster does not accept it.
        DeadlineError: no answer within ten seconds.
    """
    if token is None:
        raise InvalidInput(
            f"the cluster at {address} asks for its token, and there is none here",
            field="RAY_AUTH_TOKEN_PATH",
            rule="the file that holds that cluster's token",
            remedy="set RAY_AUTH_TOKEN_PATH to the token file of that cluster",
        )
    right = _status(_server(address), token)
    if right != 200:
        raise InvalidInput(
            f"the cluster at {address} answered {right} to this token",
            rule="200 to the cluster's own token",
            remedy="set RAY_AUTH_TOKEN_PATH to the token file of that cluster",
        )


def nobody_answers(where: str, why: str) -> InvalidInput:
    """What to say of an address at which there is no cluster that this machine reaches."""
    return InvalidInput(
        f"no Ray dashboard answers at {where}: {why}",
        field="--address",
        rule="http://HOST:PORT of a dashboard that is up and reached from here; by itself Ray takes port 8265, and "
        "listens on its own machine alone",
        remedy="raykit dev up, for a cluster on this machine; or --address URL of one that is up",
    )


def _insecure(address: str, what: str, rule: str) -> InsecureClusterError:
    return InsecureClusterError(
        f"the Jobs API at {address} {what}: anyone who reaches it can run commands there",
        rule=rule,
        remedy="start that cluster with RAY_AUTH_MODE=token",
    )


def _server(address: str) -> SplitResult:
    try:
        server = urlsplit(address)
        usable = server.scheme in _SCHEMES and server.hostname and server.port != 0 and not server.username
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        # The address is not repeated: it may hold a password.
        raise InvalidInput(
            "the cluster's address is not usable", field="--address", rule="http://HOST:PORT, no user"
        )
    return server


def _status(server: SplitResult, token: str | None) -> int:
    # http.client follows no redirect and no proxy, so the token reaches this host or nobody.
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = _SCHEMES[server.scheme](server.hostname or "", server.port, timeout=_TIMEOUT_S)
    where = f"{server.scheme}://{server.netloc}"
    try:
        connection.request("GET", server.path.rstrip("/") + _JOBS, headers=headers)
        return int(connection.getresponse().status)
    except TimeoutError as error:
        raise DeadlineError(f"the cluster at {where} did not answer within {_TIMEOUT_S:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise nobody_answers(where, str(error)) from error
    finally:
        connection.close()
