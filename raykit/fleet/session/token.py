"""The token of a cluster, from where Ray looks for one: the environment, a file that it names, the home folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from raykit.errors import InsecureClusterError, InvalidInput

TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of the variable
TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of the variable
AT_HOME: Final = Path(".ray") / "auth_token"
_LONGEST: Final = 4096


def token_is_said() -> bool:
    """Whether somebody names the token of a cluster for this process; the one in the home folder nobody names."""
    return any(os.environ.get(variable, "").strip() for variable in (TOKEN, TOKEN_PATH))


def environment_token(*, private: bool = True) -> str | None:
    """The token that this process has been given, in the order in which Ray itself looks; None if there is none.

    `private`: a file that other users can read is refused. On a node that is for whoever started the cluster to see to.

    Raises:
        InvalidInput: the file that is named cannot be read, or holds no token.
        InsecureClusterError: other users of this machine can read it.
    """
    if said := os.environ.get(TOKEN, "").strip():
        return said
    if named := os.environ.get(TOKEN_PATH, "").strip():
        return read_token(Path(named), private=private)
    home = Path.home() / AT_HOME
    return read_token(home, private=private) if home.is_file() else None


def read_token(path: Path, *, private: bool = True) -> str:
    """The token in a file, which nobody else can read if it has to be `private`.

    Raises:
        InvalidInput: it cannot be read, or holds no token.
        InsecureClusterError: other users of this machine can read it.
    """
    try:
        mode, folder_mode = path.stat().st_mode, path.resolve().parent.stat().st_mode
        with path.open(encoding="utf-8") as file:
            token = file.read(_LONGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInput(f"the token file {path} cannot be read: {why}", field=TOKEN_PATH) from error
    if private and mode & (stat.S_IRGRP | stat.S_IROTH) and folder_mode & (stat.S_IXGRP | stat.S_IXOTH):
        raise InsecureClusterError(
            f"other users of this machine can read the token in {path}",
            rule="mode 0600, or a folder that is closed to others",
            remedy=f"chmod 600 {path}",
        )
    if not token:
        raise InvalidInput(f"the token file {path} is empty", field=TOKEN_PATH)
    return token
