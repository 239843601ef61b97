"""A split in the store: `data/<digest>/{manifest.json, <role>.parquet}`, written once.

The manifest names every file by sha256 and is written last; its own sha256 is the name of the split. Reading
goes the other way, and no parser sees a byte before its digest holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raykit.data.members.membership import Membership, Overlap, RoleRecord, SplitManifest
from raykit.data.members.split import ROLES, Policy, Role
from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.ids import MAX_JSON_BYTES, canonical, sha256
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.parquet import refuse_arrow_schema

MANIFEST = "manifest.json"
MEMBER_COLUMNS = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "group", "stratum", "sha256")]
)
"""What a member is. Its place in the dataset is not part of it: reordered data has the same members."""


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """A split as the bytes that are stored: `digest` is the sha256 of the manifest."""

    digest: str
    manifest: bytes
    members: Mapping[Role, bytes]


def split_files(tables: Mapping[Role, pa.Table], policy: Policy) -> SplitFiles:
    """The files of a split, before anything is written.

    Raises:
        PlanError: the tables are not those of the policy, or a row or a group is in two roles.
    """
    members = {role: _member_rows(tables[role]) for role in ROLES if role in tables}
    _refuse_mixed(members, policy)
    files = {role: _parquet(table) for role, table in members.items()}
    manifest = SplitManifest(
        policy=policy,
        rows=sum(table.num_rows for table in members.values()),
        roles={role: _record(table, files[role]) for role, table in members.items()},
        overlaps=overlaps(members),
    ).to_bytes()
    return SplitFiles(digest=sha256(manifest), manifest=manifest, members=files)


def write(store: ObjectStore, experiment: str, tables: Mapping[Role, pa.Table], policy: Policy) -> str:
    """Write the members of each role and return the digest of the split. Writing the same again is fine.

    Raises:
        PlanError: the tables are not those of the policy, or a row or a group is in two roles.
        UnsafeNameError: `experiment` is not a safe name.
        ConflictError: another file is already in the place of one of these.
        UnknownOutcomeError: a write whose result could not be read back.
        StoreUnavailableError: nothing was written.
    """
    files = split_files(tables, policy)
    for role, file in files.members.items():
        store.put_new(layout.membership(experiment, files.digest, f"{role}.parquet"), file)
    store.put_new(layout.membership(experiment, files.digest, MANIFEST), files.manifest)
    return files.digest


def load(store: ObjectStore, experiment: str, digest: str) -> Membership:
    """The split `digest`, verified: every file's sha256 first, then its schema, its rows and its roles.

    Raises:
        NotFoundError: there is no such split.
        CorruptError: a file is missing, or is not what the manifest says.
        UnsafeNameError: `experiment` or `digest` is not a safe name.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.membership(experiment, digest, MANIFEST)
    data = store.get(key, max_bytes=MAX_JSON_BYTES)
    if sha256(data) != digest:
        raise CorruptError(f"{key} is not the manifest that its name says", value=sha256(data), rule=digest)
    manifest = SplitManifest.from_bytes(data, key)
    if set(manifest.roles) != set(manifest.policy.fractions):
        raise CorruptError(f"{key} has other roles than its policy", field="roles")
    if manifest.rows != sum(record.rows for record in manifest.roles.values()):
        raise CorruptError(f"{key} has another number of rows than its roles", field="rows")
    # As JSON sorts its keys; people read roles in the order in which they are used.
    roles = [role for role in ROLES if role in manifest.roles]
    tables = {role: _read(store, experiment, digest, role, manifest.roles[role]) for role in roles}
    if mixed := _mixed(tables):
        raise CorruptError(f"{key} lists {mixed}", field="roles")
    if overlaps(tables) != manifest.overlaps:
        raise CorruptError(f"{key} counts other overlaps than its members have", field="overlaps")
    return Membership(digest=digest, manifest=manifest, tables=tables)


def _member_rows(table: pa.Table) -> pa.Table:
    return table.select(MEMBER_COLUMNS.names).cast(MEMBER_COLUMNS).sort_by("id").combine_chunks()


def _refuse_mixed(members: Mapping[Role, pa.Table], policy: Policy) -> None:
    if set(members) != set(policy.fractions) or not all(table.num_rows for table in members.values()):
        raise PlanError(
            f"the policy divides the data into {', '.join(policy.fractions)}",
            field="splits",
            value=[role for role, table in members.items() if table.num_rows],
            rule="rows for each role of the policy, and for no other",
        )
    if mixed := _mixed(members):
        raise PlanError(
            f"the splits have {mixed}",
            field="splits",
            rule="each row and each group in one role",
            remedy="divide by whole groups, as raykit.data.members.split does",
        )


def _mixed(members: Mapping[Role, pa.Table]) -> str | None:
    """The first row or group that is in two places, in words."""
    for column in ("id", "group"):
        seen: dict[str, Role] = {}
        for role, table in members.items():
            names = table[column].to_pylist()
            if column == "id" and len(set(names)) < len(names):
                return f"an id twice in {role}"
            for name in names:
                if (other := seen.setdefault(name, role)) != role:
                    return f"the {column} {name!r} in {other} and in {role}"
    return None


def _record(table: pa.Table, file: bytes) -> RoleRecord:
    strata = table["stratum"].value_counts().to_pylist()
    return RoleRecord(
        rows=table.num_rows,
        groups=pc.count_distinct(table["group"]).as_py(),
        contents=pc.count_distinct(table["sha256"]).as_py(),
        strata={row["values"]: row["counts"] for row in strata},
        members=_members_digest(table),
        sha256=sha256(file),
        size_bytes=len(file),
    )


def _members_digest(table: pa.Table) -> str:
    columns = (table[name].to_pylist() for name in MEMBER_COLUMNS.names)
    return sha256(canonical(list(zip(*columns, strict=True))))


def overlaps(members: Mapping[Role, pa.Table]) -> tuple[Overlap, ...]:
    """What each pair of roles has in common."""
    contents = {role: Counter(table["sha256"].to_pylist()) for role, table in members.items()}
    return tuple(_overlap((a, b), contents[a], contents[b]) for a, b in combinations(contents, 2))


def _overlap(roles: tuple[Role, Role], first: Counter[str], second: Counter[str]) -> Overlap:
    shared = first.keys() & second.keys()
    rows = (sum(first[content] for content in shared), sum(second[content] for content in shared))
    return Overlap(roles=roles, contents=len(shared), rows=rows)


def _parquet(table: pa.Table) -> bytes:
    """The same bytes for the same rows and the same pyarrow: no time, no host in them.

    The footer holds no values (statistics) and no Arrow schema, which `refuse_arrow_schema` relies on.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", version="2.6", store_schema=False, write_statistics=False)
    return bytes(sink.getvalue())


def _read(store: ObjectStore, experiment: str, digest: str, role: Role, record: RoleRecord) -> pa.Table:
    key = layout.membership(experiment, digest, f"{role}.parquet")
    try:
        data = store.get(key, max_bytes=record.size_bytes)
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing, and the manifest names it", field=role) from error
    if sha256(data) != record.sha256:
        raise CorruptError(f"{key} is not the file that the manifest names", field=role, rule=record.sha256)
    table = _parsed(data, key)
    ids = table["id"].to_pylist()
    if ids != sorted(ids) or not table.num_rows or _record(table, data) != record:
        raise CorruptError(f"{key} does not hold the members that the manifest counts", field=role)
    return table


def _parsed(data: bytes, key: str) -> pa.Table:
    refuse_arrow_schema(data, key)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if file.metadata.metadata or not file.schema_arrow.equals(MEMBER_COLUMNS, check_metadata=True):
            raise CorruptError(f"{key} has more or less than the columns {', '.join(MEMBER_COLUMNS.names)}")
        table = file.read(use_threads=False).combine_chunks()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{key} is not a Parquet file: {str(error)[:200]}") from error
    return table
