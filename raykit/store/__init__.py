"""The store: the only place in raykit that keeps anything. `base` is its protocol, `layout` has every key.

Importing this package, and using a local root, needs the standard library alone; s3fs is loaded for `s3://`.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from raykit.errors import UnusableRootError
from raykit.store.base import Data, Listed, ObjectStore, Put, Stored
from raykit.store.local import LocalStore

__all__ = ["Data", "Listed", "LocalStore", "ObjectStore", "Put", "Stored", "open_store"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_store(root: str) -> ObjectStore:
    """The store at `root`, a plain path or `s3://bucket/prefix`. Nothing is read, written or connected yet.

    Raises:
        UnusableRootError: a file, another scheme, a chained URL, credentials in the URL, `?`, `#` or a control
            character.
    """
    if not root or "::" in root or "?" in root or "#" in root or not root.isprintable():
        raise _refused(root, "a root is one path or URL, without '::', '?', '#' and control characters")
    if not root.startswith("s3://"):
        if _SCHEME.match(root):
            raise _refused(root, "a root is a plain path or s3://bucket/prefix")
        path = Path(root).expanduser()
        if path.is_file():
            raise UnusableRootError(
                f"{root} is a file", field="root", value=root, rule="a folder, or s3://bucket/prefix"
            )
        return LocalStore(path)
    parts = urlsplit(root)
    if "@" in parts.netloc or ":" in parts.netloc:
        raise _refused(root, "an s3 URL names a bucket and a prefix, no user, password or port")
    from raykit.store.s3 import S3Store

    return S3Store(parts.netloc, parts.path.removeprefix("/").removesuffix("/"))


def _refused(root: str, message: str) -> UnusableRootError:
    # What follows '@', '?' or '#', or stands before '@', may be a secret: only the scheme is repeated.
    scheme = _SCHEME.match(root)
    secret = any(sign in root for sign in "@?#")
    return UnusableRootError(
        message,
        field="root",
        value=f"{scheme.group() if scheme else ''}..." if secret else root,
        rule="a plain path, or s3://bucket/prefix",
        remedy="for a path that looks like a URL write ./ before it; credentials belong in the environment",
    )
