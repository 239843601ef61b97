"""What lies in more than one split, though the data say that it belongs together: groups, and rows of equal content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from raykit.data.members import Role, Source, overlaps
from raykit.review import Straddling
from raykit.train.prepare import Prepared


def straddling_of(ready: Prepared | None) -> Straddling | None:
    """What lies in more than one split of a plan; None if nothing does."""
    if ready is None:
        return None
    groups, parted = (0, 0) if ready.policy.group == "group" else _groups(ready.source, ready.tables)
    contents = () if ready.policy.group == "content" else _contents(ready.tables)
    return Straddling(groups=groups, parted=parted, contents=contents) if parted or contents else None


def _groups(source: Source, tables: Mapping[Role, pa.Table]) -> tuple[int, int]:
    """How many groups the data have, and how many of them have rows in more than one split."""
    column, ids = source.table["group"].combine_chunks(), source.table["id"].combine_chunks()
    roles: Counter[str] = Counter()
    for table in tables.values():
        places = pc.drop_null(pc.index_in(table["id"], value_set=ids))
        roles.update(pc.unique(pc.drop_null(column.take(places.combine_chunks()))).to_pylist())
    return len(roles), sum(many > 1 for many in roles.values())


def _contents(tables: Mapping[Role, pa.Table]) -> tuple[tuple[str, int, int, str], ...]:
    """Of each pair of splits with rows of equal content, those of the second one."""
    return tuple(
        (shared.roles[1], shared.rows[1], tables[shared.roles[1]].num_rows, shared.roles[0])
        for shared in overlaps(tables)
        if shared.contents
    )
