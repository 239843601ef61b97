"""What git knows of the files that are about to be frozen: the revision, and all in which they differ from it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DIFF_CHARS = 4 * 1024 * 1024
UNTRACKED = "?? "
"""How the line of a frozen file begins that git does not track, as in `git status`."""
CUT = "(cut here: "
"""How the last line of a difference begins that is longer than what is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """All None outside of git."""

    revision: str | None = None
    dirty: bool | None = None
    """Whether what is frozen is more, less or other than what the revision has."""
    diff: str | None = None
    """A line `?? NAME` for each frozen file that git does not track, then the difference of those that it does."""


def git_of(
    folder: Path, files: Collection[str] = (), *, scope: Collection[str] = (".",), plan: Path | None = None
) -> Git:
    """What git knows of `files` below `folder`, and of the plan's file.

    The difference is that of `scope`, in the folder: what git tracks there and is gone belongs to it.
    """
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return Git()
    changed = _git(folder, "diff", "HEAD", *_PLAINLY, "--", *scope)
    tracked = _tracked(folder, scope)
    if changed is None or tracked is None:
        return Git(revision=revision.strip())
    names = [name for name in sorted(files) if name not in tracked]
    if plan is not None:
        name, differs = _plan(folder, plan, scope)
        names += name
        changed += differs
    diff = "".join(f"{UNTRACKED}{name}\n" for name in names) + changed
    return Git(revision=revision.strip(), dirty=bool(diff.strip()), diff=_cut(diff) or None)


def _cut(diff: str) -> str:
    more = len(diff) - MAX_DIFF_CHARS
    return diff if more <= 0 else f"{diff[:MAX_DIFF_CHARS]}\n{CUT}{more} characters more)\n"


_PLAINLY = ("--no-color", "--no-ext-diff", "--no-textconv")
"""Whatever somebody's settings make of a difference."""


def _tracked(folder: Path, scope: Collection[str]) -> frozenset[str] | None:
    found = _git(folder, "ls-files", "-z", "--recurse-submodules", "--", *scope)
    return None if found is None else frozenset(found.split("\0"))


def _plan(folder: Path, plan: Path, scope: Collection[str]) -> tuple[list[str], str]:
    """The plan's name if git does not track it, and its difference if that is not in the `scope`.

    Asked apart, since git has no answer at all where one of the paths is outside of its tree.
    """
    path = str(plan.resolve())
    if not _git(folder, "ls-files", "--", path):
        return [os.path.relpath(path, folder.resolve())], ""
    covered = any(place in (folder.resolve() / part for part in scope) for place in _and_above(Path(path)))
    return [], "" if covered else _git(folder, "diff", "HEAD", *_PLAINLY, "--", path) or ""


def _and_above(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None if there is no git, or it has no answer."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, and names after `--`
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - git from PATH, or none
            capture_output=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
