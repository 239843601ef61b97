"""`raykit gc`: which checkpoints could go, and why each other one stays. Nothing is deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raykit.cli import look, output
from raykit.cli.checkpoints import Run
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_root, open_root

if TYPE_CHECKING:
    from raykit.read.retention import RetentionRead


def gc(run: Run, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Which checkpoints could go under run.keep_checkpoints, and why each other one stays. This only says it.

    What somebody has pinned, registered or preserved stays, and so does what a plan starts from, and what is still to
    be examined or reviewed.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: the experiment has several runs.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.read.retention import read_retention

    found = read_retention(open_root(root).store, run, now=time.time())
    if as_json:
        output.print_json(found.plain())
    else:
        output.print_lines(_lines(found, at=at_root(root)))


def _lines(read: RetentionRead, *, at: str) -> Iterator[str]:
    found, rule = read.found, read.rule
    total = len(found.goes) + len(found.stays)
    if rule is None:
        yield f"{read.run}: the plan has no run.keep_checkpoints, so all {total} checkpoints stay"
    else:
        every = "" if rule.every is None else f" and every {rule.every:,}"
        yield (
            f"{read.run}: the last {rule.last}{every}: {len(found.goes)} of {look.many(total, 'checkpoint')} could go, "
            f"{output.size(found.size_bytes)}"
        )
    rows = [
        *((point, "could go") for point in found.goes),
        *((each.point, "stays: " + "; ".join(each.why)) for each in found.stays),
    ]
    rows.sort(key=lambda row: (row[0].update, row[0].attempt))
    cells = [
        (
            output.count(each.update),
            str(each.attempt),
            output.size(each.size_bytes),
            output.short(each.manifest),
            why,
        )
        for each, why in rows
    ]
    headers = ("UPDATE", "ATTEMPT", "SIZE", "MANIFEST", "")
    yield from output.table(headers, cells, right=("UPDATE", "SIZE")).splitlines()
    yield "  nothing was deleted: this version only says what could go"
    yield f"  -> raykit checkpoints pin EXPERIMENT@UPDATE --reason ... --by NAME{at}"
