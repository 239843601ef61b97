"""The two options that every command shares."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_ROOT = "./store"

Root = Annotated[
    str, typer.Option("--root", envvar="RAYKIT_ROOT", help="The store: a path, or s3://bucket/prefix.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, on stderr too.")]
