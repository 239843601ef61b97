"""Split membership: divided by whole groups, written once, read back verified, compared member by member."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raykit.data.members import (
    ROLES,
    SplitManifest,
    check_role,
    compare,
    describe,
    families,
    load,
    policy,
    split,
    write,
)
from raykit.errors import (
    ConflictError,
    CorruptError,
    GateError,
    NotFoundError,
    PlanError,
    StoreUnavailableError,
)
from raykit.ids import canonical, digest_of, parse_json, sha256
from raykit.store import layout
from raykit.store.local import LocalStore

MEMBER_COLUMNS = ("id", "group", "stratum", "sha256")
FRACTIONS = {"train": 0.7, "development": 0.15, "report_only": 0.15}
fixed = settings(deadline=None, derandomize=True, max_examples=60)


def named(text):
    return sha256(str(text).encode())


def source_of(rows, *, groups=None, strata=None, content=named, ids=None):
    """A dataset whose row i has id "r<i>" and content i, unless told otherwise."""
    ids = [f"r{index}" for index in range(rows)] if ids is None else ids
    return describe(rows, ids, groups, strata, content)


def reordered(source, seed):
    """The same dataset with its rows in another order."""
    order = random.Random(seed).sample(range(source.rows), source.rows)
    table = source.table.take(order)
    return describe(
        source.rows,
        table["id"],
        None if table["group"].null_count else table["group"],
        table["stratum"],
        lambda index: table["sha256"][index].as_py(),
    )


def changed(source, row, **values):
    """`source` with other values in one row."""
    table = source.table
    for column, value in values.items():
        cells = table[column].to_pylist()
        cells[row] = value
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), [cells])
    return type(source)(table)


def ids_of(tables):
    return {role: table["id"].to_pylist() for role, table in tables.items()}


def stored(store, source, fractions=FRACTIONS, group="none", seed=1):
    tables = split(source, fractions, group, seed)
    digest = write(store, "digits", tables, policy(fractions, group, seed))
    return load(store, "digits", digest)


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "root")


# --- describing a dataset -----------------------------------------------------------------------------------


def test_a_dataset_without_columns_is_described_by_index():
    table = describe(3, None, None, None, named).table
    assert table["index"].to_pylist() == [0, 1, 2]
    assert table["id"].to_pylist() == ["0", "1", "2"]
    assert table["group"].to_pylist() == [None] * 3
    assert table["stratum"].to_pylist() == ["all"] * 3
    assert table["sha256"].to_pylist() == [named(0), named(1), named(2)]


@pytest.mark.parametrize(
    "column",
    [
        [3, 1, 2],
        (3, 1, 2),
        np.array([3, 1, 2]),
        pa.array([3, 1, 2]),
        pa.chunked_array([[3], [1, 2]]),
        map(int, "312"),
    ],
)
def test_columns_come_in_any_shape(column):
    assert describe(3, column, None, None, named).table["id"].to_pylist() == ["3", "1", "2"]


def test_identity_grouping_and_content_stay_three_keys():
    # covers DATA-13
    table = describe(2, ["a", "b"], ["g", "g"], None, lambda _: named("same")).table
    assert table["id"].to_pylist() == ["a", "b"]
    assert table["group"].to_pylist() == ["g", "g"]
    assert table["sha256"].to_pylist() == [named("same")] * 2


def test_an_id_that_is_there_twice_is_named_with_its_rows():
    with pytest.raises(PlanError) as caught:
        source_of(5, ids=["a", "b", "a", "c", "b"])
    assert str(caught.value) == ("2 ids are there more than once: 'a' at rows 0 and 2; 'b' at rows 1 and 4")
    assert caught.value.field == "dataset.ids"


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("ids", ["a", "b"], "3 rows but 2 ids"),
        ("groups", ["a", None, "b"], "row 1 has None in groups"),
        ("groups", ["a", "b", ""], "row 2 has '' in groups"),
        ("strata", [0, float("nan"), 1], "row 1 has nan in strata"),
        ("ids", ["a", "b", "c\udce9"], "row 2 has"),
        ("ids", [b"a", "b", "c"], "row 0 has b'a' in ids"),
    ],
)
def test_a_value_that_names_nothing_is_refused_by_row(column, values, says):
    columns = {"ids": None, "groups": None, "strata": None} | {column: values}
    with pytest.raises(PlanError, match=says) as caught:
        describe(3, content=named, **columns)
    assert caught.value.field == f"dataset.{column}"


def test_an_empty_dataset_is_refused():
    with pytest.raises(PlanError, match="the dataset is empty"):
        describe(0, None, None, None, named)


@pytest.mark.parametrize("content", ["", "ABC", None, named(1).upper(), named(1)[:-1]])
def test_content_that_is_no_digest_is_refused(content):
    with pytest.raises(PlanError, match="the content of row 0 is"):
        describe(1, None, None, None, lambda _: content)


def test_rows_that_share_an_entity_are_one_family():
    # covers GOLD-32, DATA-15
    links = [["case1", "thread1"], ["thread1", "case2"], ["case3"], ["case2", "thread2"]]
    assert families(links) == ["case1", "case1", "case3", "case1"]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=3), max_size=12), st.randoms())
@fixed
def test_families_do_not_depend_on_the_order_of_rows(links, shuffler):
    order = list(range(len(links)))
    shuffler.shuffle(order)
    found, again = families(links), families([links[row] for row in order])
    assert [found[row] for row in order] == again
    for row, other in zip(range(len(links)), range(1, len(links)), strict=False):
        assert found[row] == found[other] or not set(links[row]) & set(links[other])


def test_a_row_of_no_entity_is_refused():
    with pytest.raises(PlanError, match="row 1 has None in groups"):
        families([["a"], []])


# --- roles and policy ---------------------------------------------------------------------------------------


def test_each_role_is_a_role():
    # covers SPLIT-01, SPLIT-14
    assert ROLES == ("train", "development", "calibration", "report_only", "benchmark", "sealed")
    assert [check_role(role) for role in ROLES] == list(ROLES)


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_validation_is_refused_with_the_two_roles_that_it_mixes(name):
    # covers SPLIT-06, GOLD-19
    with pytest.raises(PlanError) as caught:
        policy({"train": 0.9, name: 0.1}, "none", 1)
    error = caught.value
    why = 'elsewhere "validation" both selects and reports, and those must be two sets'
    assert str(error) == f"{name} is not a role here: {why}"
    assert error.field == f"splits.{name}"
    assert error.remedy == "development = ... (selects), or report_only = ... (never selects)"


@pytest.mark.parametrize(
    ("name", "says"), [("test", "sealed"), ("dev", "development"), ("holdout", "what it may")]
)
def test_other_names_are_told_what_to_say_instead(name, says):
    with pytest.raises(PlanError) as caught:
        check_role(name)
    assert says in caught.value.remedy


@pytest.mark.parametrize(
    ("fractions", "field"),
    [
        ({"train": 0.7, "development": 0.2}, "splits"),
        ({"train": 0.7, "development": 0.3 + 2e-9}, "splits"),
        ({"train": 1.0, "development": 0.0}, "splits.development"),
        ({"train": 1.5, "development": -0.5}, "splits.train"),
        ({"train": float("nan")}, "splits.train"),
        ({}, "splits"),
    ],
)
def test_fractions_that_are_not_a_division_are_refused(fractions, field):
    with pytest.raises(PlanError) as caught:
        policy(fractions, "none", 1)
    assert caught.value.field == field


def test_fractions_may_sum_to_one_as_floats_do():
    assert policy(dict.fromkeys(ROLES[1:], 0.1) | {"train": 0.5}, "none", 1).fractions["train"] == 0.5


@pytest.mark.parametrize("group", [None, "contents", "label"])
def test_what_stays_together_has_to_be_stated(group):
    with pytest.raises(PlanError) as caught:
        policy({"train": 1.0}, group, 1)
    assert caught.value.field == "splits.group"


def test_groups_that_the_data_does_not_name_are_refused():
    with pytest.raises(PlanError) as caught:
        split(source_of(10), FRACTIONS, "group", 1)
    assert caught.value.field == "splits.group"


# --- dividing -----------------------------------------------------------------------------------------------


@st.composite
def sources(draw):
    rows = draw(st.integers(12, 120))
    seed = draw(st.integers(0, 999))
    rng = random.Random(seed)
    return source_of(
        rows,
        groups=[f"g{rng.randrange(rows // 2)}" for _ in range(rows)],
        strata=[rng.randrange(3) for _ in range(rows)],
        content=lambda index: named(index // 2),
    )


def split_or_none(source, group, seed):
    try:
        return split(source, FRACTIONS, group, seed)
    except PlanError as error:
        assert "would be empty" in str(error)
        return None


@given(sources(), st.sampled_from(["content", "group", "none"]), st.integers(0, 50))
@fixed
def test_whole_groups_go_to_one_role_and_every_row_to_one(source, group, seed):
    # covers SPLIT-22, DATA-33: nothing lost, nothing doubled, no group across roles.
    tables = split_or_none(source, group, seed)
    if tables is None:
        return
    ids = [name for names in ids_of(tables).values() for name in names]
    assert sorted(ids) == sorted(source.table["id"].to_pylist())
    column = {"content": "sha256", "group": "group", "none": "id"}[group]
    groups = [set(table[column].to_pylist()) for table in tables.values()]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert all(table["group"].equals(table[column]) for table in tables.values())


@given(sources(), st.sampled_from(["content", "group", "none"]), st.integers(0, 50), st.integers(0, 50))
@fixed
def test_the_members_do_not_depend_on_the_order_of_rows(source, group, seed, order):
    tables = split_or_none(source, group, seed)
    again = split_or_none(reordered(source, order), group, seed)
    assert (tables is None) == (again is None)
    if tables is not None:
        assert ids_of(again) == ids_of(tables)


@given(st.integers(40, 400), st.integers(0, 10**6))
@fixed
def test_sizes_are_within_one_group_of_the_fractions(rows, seed):
    rng = random.Random(seed)
    groups = [rng.randrange(rows // 3) for _ in range(rows)]
    largest = max(groups.count(group) for group in set(groups))
    for role, table in split(source_of(rows, groups=groups), FRACTIONS, "group", seed).items():
        assert abs(table.num_rows - FRACTIONS[role] * rows) < largest + 1e-9


def test_single_rows_fill_the_fractions_exactly():
    tables = split(source_of(1000), FRACTIONS, "none", 1)
    assert {role: table.num_rows for role, table in tables.items()} == {
        "train": 700,
        "development": 150,
        "report_only": 150,
    }


def test_strata_are_filled_in_proportion():
    strata = ["rare"] * 40 + ["common"] * 960
    tables = split(source_of(1000, strata=strata), FRACTIONS, "none", 1)
    rare = {role: table["stratum"].to_pylist().count("rare") for role, table in tables.items()}
    assert rare == {"train": 28, "development": 6, "report_only": 6}


def test_strata_of_one_row_each_still_fill_the_fractions():
    tables = split(source_of(1000, strata=range(1000)), FRACTIONS, "none", 1)
    assert [table.num_rows for table in tables.values()] == [700, 150, 150]
    other = split(source_of(1000, strata=range(1000)), FRACTIONS, "none", 2)
    assert ids_of(other) != ids_of(tables)


def test_another_seed_divides_otherwise():
    source = source_of(200)
    first, second = (set(ids_of(split(source, FRACTIONS, "none", seed))["train"]) for seed in (1, 2))
    # Two independent draws of 140 from 200 share 98 on average, with a deviation of about 3.
    assert 80 < len(first & second) < 116


def test_the_order_in_which_a_plan_names_roles_does_not_matter():
    source = source_of(101)
    backwards = dict(reversed(FRACTIONS.items()))
    assert ids_of(split(source, backwards, "none", 1)) == ids_of(split(source, FRACTIONS, "none", 1))


def test_equal_content_stays_together():
    # covers SPLIT-23
    source = source_of(300, content=lambda index: named(index % 100))
    tables = split(source, FRACTIONS, "content", 1)
    contents = [set(table["sha256"].to_pylist()) for table in tables.values()]
    assert sum(map(len, contents)) == 100
    assert [table.num_rows for table in tables.values()] == [210, 45, 45]


def test_a_role_that_no_group_can_fill_is_refused_by_name():
    with pytest.raises(PlanError) as caught:
        split(source_of(100, groups=[0] * 50 + [1] * 50), FRACTIONS, "group", 1)
    assert caught.value.field == "splits.development"
    assert str(caught.value) == "development would be empty: 0.15 of 100 rows, in 2 groups of up to 50 rows"


def test_the_division_never_changes_between_releases():
    # covers SPLIT-29: a newer raykit that divided otherwise would refuse every stored run.
    tables = split(source_of(30, groups=[index // 2 for index in range(30)]), FRACTIONS, "group", 7)
    assert digest_of(ids_of(tables)) == "7e03fb927c2215f7f92ec2c3a2d4b8985b868e11ff8b06b06a78043883bbf676"


# --- the store ----------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(store):
    # covers SPLIT-28: the policy is part of the record.
    source = source_of(
        100, strata=[index % 2 for index in range(100)], content=lambda index: named(index // 2)
    )
    tables = split(source, FRACTIONS, "content", 3)
    membership = stored(store, source, group="content", seed=3)
    assert ids_of(membership.tables) == ids_of(tables)
    assert membership.manifest.policy == policy(FRACTIONS, "content", 3)
    assert membership.manifest.rows == 100
    assert [membership.rows(role) for role in tables] == [70, 16, 14]
    train = membership.manifest.roles["train"]
    assert (train.rows, train.groups, train.contents) == (70, 35, 35)
    assert sum(train.strata.values()) == 70
    assert compare(membership, source) is None


def test_the_digest_names_the_manifest_and_the_files(store):
    membership = stored(store, source_of(20))
    folder = f"experiments/digits/data/{membership.digest}"
    keys = [entry.key for entry in store.list("experiments/digits")]
    assert keys == [
        f"{folder}/{name}" for name in sorted(["manifest.json", *(f"{r}.parquet" for r in FRACTIONS)])
    ]
    assert sha256(store.get(f"{folder}/manifest.json")) == membership.digest


def test_a_members_digest_can_be_computed_with_nothing_but_json(store):
    membership = stored(store, source_of(20))
    for role, record in membership.manifest.roles.items():
        rows = [[row[c] for c in MEMBER_COLUMNS] for row in membership.tables[role].to_pylist()]
        assert record.members == sha256(canonical(sorted(rows)))


def test_the_same_members_have_the_same_digest_in_any_order_of_rows(store):
    # covers I2
    source = source_of(60)
    first, second = stored(store, source), stored(store, reordered(source, 5))
    assert first.digest == second.digest


def test_writing_again_changes_nothing(store):
    # covers I11
    source = source_of(40)
    membership = stored(store, source)
    before = {entry.key: store.get(entry.key) for entry in store.list("")}
    assert stored(store, source).digest == membership.digest
    assert {entry.key: store.get(entry.key) for entry in store.list("")} == before


def test_a_split_is_never_overwritten(store, tmp_path):
    # covers SPLIT-30, I2
    source = source_of(40)
    membership = stored(store, source)
    path = tmp_path / "root" / layout.membership("digits", membership.digest, "train.parquet")
    path.write_bytes(b"other bytes")
    with pytest.raises(ConflictError):
        stored(store, source)
    assert path.read_bytes() == b"other bytes"


class FullAfter(LocalStore):
    """A store that has room for `room` more objects."""

    def __init__(self, path, room):
        super().__init__(path)
        self.room = room

    def put_new(self, key, data):
        if not self.room:
            raise StoreUnavailableError("no space left")
        self.room -= 1
        return super().put_new(key, data)


@pytest.mark.parametrize("room", range(4))
def test_a_split_exists_only_when_all_of_it_does(tmp_path, room):
    # covers I1: the manifest decides, and is written last.
    source, chosen = source_of(40), policy(FRACTIONS, "none", 1)
    tables = split(source, FRACTIONS, "none", 1)
    with pytest.raises(StoreUnavailableError):
        write(FullAfter(tmp_path / "full", room), "digits", tables, chosen)
    store = LocalStore(tmp_path / "full")
    digest = write(LocalStore(tmp_path / "whole"), "digits", tables, chosen)
    assert len(list(store.list(""))) == room
    with pytest.raises(NotFoundError):
        load(store, "digits", digest)
    assert write(store, "digits", tables, chosen) == digest
    assert load(store, "digits", digest).rows("train") == 28


def test_a_row_or_a_group_in_two_roles_is_refused(store):
    # covers SPLIT-20, SPLIT-22, GOLD-32: what is checked is the members, not the intention.
    links = [["case1", "thread1"], ["thread1", "case2"], ["case2", "thread2"], ["case9"]]
    table = source_of(4, groups=families(links)).table
    chosen = policy({"train": 0.5, "sealed": 0.5}, "group", 1)
    with pytest.raises(PlanError, match="the group 'case1' in train and in sealed"):
        write(store, "digits", {"train": table.slice(0, 2), "sealed": table.slice(2, 2)}, chosen)
    with pytest.raises(PlanError, match="the id 'r2' in train and in sealed"):
        write(store, "digits", {"train": table.slice(0, 3), "sealed": table.slice(2, 2)}, chosen)
    with pytest.raises(PlanError, match="an id twice in sealed"):
        doubled = pa.concat_tables([table.slice(3, 1)] * 2)
        write(store, "digits", {"train": table.slice(0, 3), "sealed": doubled}, chosen)
    assert list(store.list("")) == []


def test_tables_of_other_roles_than_the_policy_are_refused(store):
    table = source_of(4).table.set_column(2, "group", [["a", "b", "c", "d"]])
    chosen = policy({"train": 0.5, "sealed": 0.5}, "group", 1)
    for tables in ({"train": table}, {"train": table, "sealed": table.slice(0, 0)}):
        with pytest.raises(PlanError) as caught:
            write(store, "digits", tables, chosen)
        assert caught.value.field == "splits"


def test_exact_overlap_is_counted_and_never_called_independence(store):
    # covers SPLIT-22, SPLIT-23, SPLIT-27, SPLIT-19
    source = source_of(200, content=lambda index: named(index % 150))
    membership = stored(store, source, group="none")
    contents = {role: table["sha256"].to_pylist() for role, table in membership.tables.items()}
    assert [shared.roles for shared in membership.manifest.overlaps] == [
        ("train", "development"),
        ("train", "report_only"),
        ("development", "report_only"),
    ]
    for shared in membership.manifest.overlaps:
        first, second = (contents[role] for role in shared.roles)
        assert shared.contents == len(set(first) & set(second))
        assert shared.rows == (sum(c in second for c in first), sum(c in first for c in second))
        assert shared.groups == 0
    between = membership.manifest.overlaps[0].rows
    assert between[0] > 0
    text = membership.overlap()
    assert f"train {between[0]} rows and development {between[1]} rows" in text
    none = stored(store, source, group="content").overlap()
    assert none.startswith(
        "Exact content in two roles: none. Groups in two roles: none; kept together: rows of equal"
    )
    for limits in (text, none):
        assert "does not show that the roles are independent" in limits
        assert "near duplicates" in limits
        assert "strata do not remove dependence" in limits


# --- broken and hostile bytes -------------------------------------------------------------------------------


def places(size, seed):
    rng = random.Random(seed)
    return [0, size - 1, *(rng.randrange(size) for _ in range(48))]


@pytest.mark.parametrize(
    "name", ["manifest.json", "train.parquet", "development.parquet", "report_only.parquet"]
)
def test_every_changed_byte_is_found(store, tmp_path, name):
    # covers F9, S8
    membership = stored(store, source_of(40))
    path = tmp_path / "root" / layout.membership("digits", membership.digest, name)
    good = path.read_bytes()
    for place in places(len(good), seed=1):
        flipped = bytearray(good)
        flipped[place] ^= 1
        for bad in (bytes(flipped), good[:place], good + b"\0"):
            path.write_bytes(bad)
            with pytest.raises(CorruptError):
                load(store, "digits", membership.digest)
    path.write_bytes(good)
    assert load(store, "digits", membership.digest).manifest == membership.manifest


def test_no_parser_sees_a_byte_before_its_digest_holds(store, tmp_path, monkeypatch):
    # covers S8
    membership = stored(store, source_of(40))
    path = tmp_path / "root" / layout.membership("digits", membership.digest, "train.parquet")
    path.write_bytes(path.read_bytes().replace(b"PAR1", b"PAR2", 1))
    opened = []
    monkeypatch.setattr(pq, "ParquetFile", opened.append)
    with pytest.raises(CorruptError, match="is not the file that the manifest names"):
        load(store, "digits", membership.digest)
    assert opened == []


def test_a_missing_file_is_corrupt_and_a_missing_split_is_not_found(store, tmp_path):
    membership = stored(store, source_of(40))
    (tmp_path / "root" / layout.membership("digits", membership.digest, "train.parquet")).unlink()
    with pytest.raises(CorruptError, match=r"train\.parquet is missing"):
        load(store, "digits", membership.digest)
    with pytest.raises(NotFoundError):
        load(store, "digits", named("no such split"))


def test_files_of_two_roles_cannot_be_swapped(store, tmp_path):
    membership = stored(store, source_of(40))
    one, two = (
        tmp_path / "root" / layout.membership("digits", membership.digest, f"{role}.parquet")
        for role in ("development", "report_only")
    )
    one_bytes, two_bytes = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_bytes)
    two.write_bytes(one_bytes)
    with pytest.raises(CorruptError):
        load(store, "digits", membership.digest)


def forged(store, membership, change, files=None):
    """The digest of a split that was put together by hand: every sha256 in it holds."""
    plain = parse_json(canonical(membership.manifest.plain()), "manifest")
    for role, data in (files or {}).items():
        plain["roles"][role] |= {"sha256": sha256(data), "size_bytes": len(data)}
    change(plain)
    manifest = canonical(plain)
    digest = sha256(manifest)
    for role in membership.manifest.roles:
        key = layout.membership("digits", membership.digest, f"{role}.parquet")
        data = (files or {}).get(role, store.get(key))
        store.put_new(layout.membership("digits", digest, f"{role}.parquet"), data)
    store.put_new(layout.membership("digits", digest, "manifest.json"), manifest)
    return digest


def as_it_is(manifest):
    pass


def set_to(*path, value):
    def change(manifest):
        for part in path[:-1]:
            manifest = manifest[part]
        manifest[path[-1]] = value

    return change


def without(*path):
    def change(manifest):
        for part in path[:-1]:
            manifest = manifest[part]
        del manifest[path[-1]]

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_to("schema", value=2),
        set_to("extra", value=1),
        without("policy"),
        without("roles", "train"),
        without("overlaps"),
        set_to("policy", "group", value="label"),
        set_to("policy", "seed", value="1"),
        set_to("policy", "fractions", "train", value=2.0),
        set_to("policy", "fractions", value={"train": 1.0}),
        set_to("roles", "train", "rows", value=29),
        set_to("roles", "train", "groups", value=3),
        set_to("roles", "train", "contents", value=3),
        set_to("roles", "train", "strata", value={"all": 27, "x": 1}),
        set_to("roles", "train", "members", value=named(1)),
        set_to("roles", "train", "sha256", value="A" * 64),
        set_to("roles", "validation", value={}),
        set_to("overlaps", 0, "contents", value=1),
        set_to("overlaps", 0, "groups", value=1),
        set_to("rows", value=41),
    ],
)
def test_a_manifest_that_does_not_fit_its_members_is_refused(store, change):
    # covers SPLIT-20: counts are verified from the rows when they are read.
    membership = stored(store, source_of(40))
    assert load(store, "digits", forged(store, membership, as_it_is)).digest == membership.digest
    with pytest.raises(CorruptError):
        load(store, "digits", forged(store, membership, change))


def parquet(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **({"store_schema": False} | options))
    return sink.getvalue().to_pybytes()


class Canary(pa.ExtensionType):
    """An extension type as an attacker would use one: reading a schema that names it runs this class."""

    ran = 0

    def __init__(self):
        super().__init__(pa.string(), "raykit.test.canary")

    def __arrow_ext_serialize__(self):
        return b"payload"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        Canary.ran += 1
        return cls()


@pytest.fixture
def canary():
    pa.register_extension_type(Canary())
    Canary.ran = 0
    yield Canary
    pa.unregister_extension_type("raykit.test.canary")


def test_a_schema_that_would_run_code_is_refused_before_it_is_read(store, canary):
    # covers S13, S8: CVE-2026-41486, with a digest that holds.
    membership = stored(store, source_of(40))
    good = membership.tables["train"]
    ids = canary().wrap_array(good["id"].combine_chunks())
    evil = parquet(good.set_column(0, "id", ids), store_schema=True)
    canary.ran = 0
    digest = forged(store, membership, as_it_is, files={"train": evil})
    with pytest.raises(CorruptError, match="carries an Arrow schema"):
        load(store, "digits", digest)
    assert canary.ran == 0
    pq.ParquetFile(pa.BufferReader(evil))
    assert canary.ran > 0, "the file must be one that runs code when it is opened"


def bad_tables(good):
    """Tables that are not a list of members, each with what is wrong with it."""
    rows = good.num_rows
    yield "a column more", good.append_column("index", [list(range(rows))])
    yield "a column less", good.drop_columns(["stratum"])
    yield "columns in another order", good.select(["group", "id", "stratum", "sha256"])
    yield "another type", good.set_column(0, "id", [list(range(rows))])
    yield "bytes for text", good.set_column(0, "id", good["id"].cast(pa.binary()))
    yield "nulls", good.set_column(2, "stratum", pa.array(["all"] * (rows - 1) + [None]))
    yield "another order of rows", good.take(list(reversed(range(rows))))
    yield "a row less", good.slice(1)
    yield "a row twice", pa.concat_tables([good.slice(0, 1), good])
    yield "no rows", good.slice(0, 0)


def test_a_file_that_is_no_list_of_members_is_refused(store):
    membership = stored(store, source_of(40))
    for what, table in bad_tables(membership.tables["train"]):
        digest = forged(store, membership, as_it_is, files={"train": parquet(table)})
        with pytest.raises(CorruptError):
            pytest.fail(f"{what} was accepted: {load(store, 'digits', digest)}")


def test_a_file_with_metadata_of_its_own_is_refused(store):
    # covers S13
    membership = stored(store, source_of(40))
    good, sink = membership.tables["train"], pa.BufferOutputStream()
    with pq.ParquetWriter(sink, good.schema, store_schema=False) as writer:
        writer.write_table(good)
        writer.add_key_value_metadata({"pandas": "{}"})
    digest = forged(store, membership, as_it_is, files={"train": sink.getvalue().to_pybytes()})
    with pytest.raises(CorruptError, match="more or less than the columns"):
        load(store, "digits", digest)


def test_bytes_that_are_no_parquet_are_refused(store):
    membership = stored(store, source_of(40))
    good = parquet(membership.tables["train"])
    for bad in (
        b"PAR1",
        b"not parquet at all",
        good[:-8] + b"\xff\xff\xff\x7fPAR1",
        good[:-4] + b"PARE",
        b"\0" * 99,
    ):
        digest = forged(store, membership, as_it_is, files={"train": bad})
        with pytest.raises(CorruptError):
            load(store, "digits", digest)


def test_members_that_are_not_in_the_order_of_ids_are_refused(store):
    # Positions of the sample order are positions in this list: there is one order for one set of members.
    membership = stored(store, source_of(40))
    backwards = membership.tables["train"].take(list(reversed(range(28))))
    digest_backwards = digest_of([[row[c] for c in MEMBER_COLUMNS] for row in backwards.to_pylist()])
    change = set_to("roles", "train", "members", value=digest_backwards)
    with pytest.raises(CorruptError):
        load(store, "digits", forged(store, membership, change, files={"train": parquet(backwards)}))


def test_roles_that_overlap_in_the_store_are_refused(store):
    source = source_of(40)
    membership = stored(store, source)
    train = membership.tables["train"]
    moved = parquet(pa.concat_tables([train.slice(0, 1), membership.tables["development"]]).sort_by("id"))

    def counts(manifest):
        manifest["rows"] = 41
        record = manifest["roles"]["development"]
        table = pq.read_table(pa.BufferReader(moved))
        rows = [[row[c] for c in MEMBER_COLUMNS] for row in table.to_pylist()]
        record |= {"rows": 7, "groups": 7, "contents": 7, "strata": {"all": 7}, "members": digest_of(rows)}

    with pytest.raises(CorruptError, match="in train and in development"):
        load(store, "digits", forged(store, membership, counts, files={"development": moved}))


# --- readers of a split -------------------------------------------------------------------------------------


def test_members_are_found_by_id_wherever_the_dataset_lists_them(store):
    # covers I14, SPLIT-29
    source = source_of(50)
    membership = stored(store, source)
    moved = reordered(source, 9)
    assert compare(membership, moved) is None
    for role in FRACTIONS:
        for current in (source, moved):
            found = current.table["id"].take(membership.indices(role, current)).to_pylist()
            assert found == membership.tables[role]["id"].to_pylist()
    assert membership.indices("train", source).dtype == np.int64
    assert not np.array_equal(membership.indices("train", source), membership.indices("train", moved))


def test_a_member_that_is_gone_is_refused_by_name(store):
    membership = stored(store, source_of(50))
    gone = membership.tables["train"]["id"].to_pylist()[:2]
    kept = [f"r{index}" for index in range(50) if f"r{index}" not in gone]
    smaller = source_of(48, ids=kept)
    with pytest.raises(GateError) as caught:
        membership.indices("train", smaller)
    assert str(caught.value) == f"2 of 35 members of train are not in the data: {gone[0]!r}, {gone[1]!r}"


def test_a_role_that_was_not_split_off_is_not_found(store):
    membership = stored(store, source_of(50))
    for ask in (membership.rows, membership.describe, lambda role: membership.indices(role, source_of(50))):
        with pytest.raises(NotFoundError, match="this split has no sealed"):
            ask("sealed")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sha256": named("new")}, f"1 with other content; first: 'r3' has content {named('new')[:12]}.."),
        ({"group": "g9"}, "1 in another group; first: 'r3' has group g9, stored g1"),
        ({"stratum": "rare"}, "1 in another stratum; first: 'r3' has stratum rare, stored all"),
        ({"id": "x3"}, "1 missing, 1 added; first: 'r3' is missing; 'x3' is added"),
    ],
)
def test_one_changed_member_is_named(store, change, says):
    # covers SPLIT-29, I14, F30
    source = source_of(60, groups=[f"g{index // 2}" for index in range(60)])
    membership = stored(store, source, group="group")
    difference = compare(membership, changed(source, 3, **change))
    assert str(difference).startswith(f"60 members stored, 60 rows now: {says}")
    assert sum(difference.counts.values()) == len(difference.examples) == len(change) + ("id" in change)


def test_new_rows_are_counted_and_the_first_are_named(store):
    membership = stored(store, source_of(60))
    difference = compare(membership, source_of(1000))
    assert difference.counts == {"added": 940}
    assert [str(change) for change in difference.examples] == [
        f"'r{index}' is added" for index in (100, 101, 102, 103, 104)
    ]
    assert str(difference).startswith("60 members stored, 1,000 rows now: 940 added; first: 'r100' is added")


def test_a_split_code_that_would_divide_otherwise_is_a_difference(store):
    # covers SPLIT-29: the rows are the same, the regenerated membership is not.
    source = source_of(60)
    tables = split(source, FRACTIONS, "none", seed=2)
    digest = write(store, "digits", tables, policy(FRACTIONS, "none", 1))
    difference = compare(load(store, "digits", digest), source)
    assert set(difference.counts) == {"role"}
    assert "that this version of the split code would give another role" in str(difference)
    change = difference.examples[0]
    assert change.was != change.now
    assert {change.was, change.now} < set(FRACTIONS)


def test_a_held_out_set_is_described_exactly(store):
    # covers SPLIT-06, GOLD-19
    rows = 59_022
    membership = stored(store, source_of(rows), {"train": 1 - 2_953 / rows, "development": 2_953 / rows})
    assert membership.describe("development") == (
        "2,953 rows held out from training gradients and used to select"
    )
    assert membership.describe(
        "development", rows="approved human training rows", gradients="search gradients", selects="duration"
    ) == ("2,953 approved human training rows held out from search gradients and used to select duration")
    assert membership.describe("train") == "56,069 rows used for training gradients only"


def test_no_description_says_validation_or_lets_another_role_select(store):
    # covers SPLIT-06, SPLIT-15, SPLIT-03
    fractions = {"train": 0.5} | dict.fromkeys(ROLES[1:], 0.1)
    membership = stored(store, source_of(100), fractions)
    texts = {role: membership.describe(role) for role in ROLES}
    assert not any("validation" in text for text in texts.values())
    assert texts["calibration"].endswith("used to fit temperatures and thresholds, never to select")
    assert texts["report_only"].endswith("used to report on frozen choices, never to select")
    with pytest.raises(PlanError, match="says validation"):
        membership.describe("development", rows="Validation rows")
    with pytest.raises(PlanError, match="report_only never selects"):
        membership.describe("report_only", selects="duration")


def test_a_manifest_reads_back_as_it_was_written(store):
    membership = stored(store, source_of(30))
    data = store.get(layout.membership("digits", membership.digest, "manifest.json"))
    assert SplitManifest.from_bytes(data, "manifest").to_bytes() == data
