"""Tables that are `from` a shared file: what is taken, what goes first, and what is wrong is named where it is.

covers PLAN-67
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raykit.errors import PlanError
from raykit.ids import sha256
from raykit.plan import Plan, load_plan
from raykit.read.planfile import read_plan_file

USERS = Path(__file__).parents[1] / "users"
SEARCH = (USERS / "search.toml").read_bytes()
TEAM = (USERS / "raykit.toml").read_bytes()


def team(data: bytes, seen: list[str] | None = None) -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        if seen is not None:
            seen.append(name)
        return data

    return read


def load(plan: bytes = SEARCH, shared: bytes = TEAM) -> Plan:
    return load_plan(plan, where="search.toml", shared=team(shared))


def refused(plan: bytes = SEARCH, shared: bytes = TEAM) -> dict[str | None, PlanError]:
    with pytest.raises(PlanError) as caught:
        load(plan, shared)
    return {finding.field: finding for finding in caught.value.findings}


def test_a_table_takes_what_it_does_not_say_itself() -> None:
    plan = load()
    assert plan.claim.unit == "one document" and plan.claim.metric == "bits_per_byte"
    assert plan.shared is not None
    assert (plan.shared.name, plan.shared.tables, plan.shared.sha256) == (
        "raykit.toml",
        ("claim",),
        sha256(TEAM),
    )


def test_what_the_plan_says_goes_first() -> None:
    plan = load(SEARCH.replace(b"[claim]", b'[claim]\nunit = "one paragraph"'))
    assert plan.claim.unit == "one paragraph"


def test_nothing_is_taken_that_no_table_asks_for() -> None:
    plan = load(shared=TEAM + b'\n[notify]\non = ["paused"]\nto_file = "x.yml"\n')
    assert plan.notify is None


def test_a_pool_may_be_shared_by_itself() -> None:
    pools = b'\n[pools.train]\ngpus = 4\nusd_per_hour = { rate = 3.5, source = "invoice", billed = "node" }\n'
    head, _, rest = SEARCH.partition(b"[pools.train]")
    _, _, budget = rest.partition(b"[budget]")
    plan = load(head + b'[pools.train]\nfrom = "raykit.toml"\ngpus = 8\n[budget]' + budget, TEAM + pools)
    pool = plan.pools["train"]
    assert pool.gpus == 8 and pool.usd_per_hour is not None and pool.usd_per_hour.rate == 3.5
    assert plan.shared is not None and plan.shared.tables == ("claim", "pools.train")


def test_a_plan_without_from_reads_no_file() -> None:
    seen: list[str] = []
    load_plan((USERS / "refresh.toml").read_bytes(), where="refresh.toml", shared=team(TEAM, seen))
    assert seen == []


def test_what_is_wrong_in_the_shared_file_is_named_with_its_line() -> None:
    found = refused(shared=TEAM.replace(b'"one document"', b"7"))
    assert found["claim.unit"].message == "is 7, not text (in raykit.toml, line 3)"
    assert found["claim.unit"].line == SEARCH.split(b"\n").index(b"[claim]") + 1


def test_what_is_missing_in_both_is_missing() -> None:
    found = refused(shared=TEAM.replace(b"unit  ", b"# unit"))
    assert found["claim.unit"].message == "missing"


@pytest.mark.parametrize(
    ("plan", "shared", "field", "says"),
    [
        (SEARCH, b"[claim", "claim.from", "raykit.toml is not TOML"),
        (SEARCH, b"\xff\xfe", "claim.from", "raykit.toml is not TOML"),
        (SEARCH, b"[splits]\ntrain = 1.0\n", "claim.from", "raykit.toml has no [claim]"),
        (SEARCH, b'claim = "x"\n', "claim.from", "raykit.toml has no [claim]"),
        (SEARCH, TEAM + b"[run]\nbatch = 1\n", "claim.from", "raykit.toml holds run, which no plan can share"),
        (SEARCH, TEAM + b"[claims]\nunit = 1\n", "claim.from", "raykit.toml holds claims"),
        (SEARCH, b"#" * 1_000_001, "claim.from", "is 1,000,001 bytes long"),
        (SEARCH.replace(b'"raykit.toml"', b'"/etc/raykit.toml"'), TEAM, "claim.from", "is not the name of a shared"),
        (SEARCH.replace(b'"raykit.toml"', b"3"), TEAM, "claim.from", "is not the name of a shared"),
        (SEARCH.replace(b"[qc]", b'[qc]\nfrom = "other.toml"'), TEAM, "qc.from", "is a second file"),
        (SEARCH.replace(b"[run]", b'[run]\nfrom = "raykit.toml"'), TEAM, "run.from", "unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(plan: bytes, shared: bytes, field: str, says: str) -> None:
    assert says in refused(plan, shared)[field].message


def test_a_credential_in_the_shared_file_is_found_and_not_shown() -> None:
    found = refused(shared=TEAM + b"# AKIAIOSFODNN7EXAMPLE\n")
    (finding,) = [each for each in found.values() if "raykit.toml looks like a credential" in each.message]
    assert "AKIA" not in str(finding)


def test_the_file_is_found_in_a_folder_above(tmp_path: Path) -> None:
    (tmp_path / "raykit.toml").write_bytes(TEAM)
    (tmp_path / "team" / "lm").mkdir(parents=True)
    (tmp_path / "team" / "lm" / "plan.toml").write_bytes(SEARCH)
    _, plan = read_plan_file(tmp_path / "team" / "lm" / "plan.toml")
    assert plan.claim.unit == "one document"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(SEARCH.replace(b'"raykit.toml"', b'"nobody-has-this.toml"'))
    with pytest.raises(PlanError) as caught:
        read_plan_file(tmp_path / "plan.toml")
    (finding,) = [each for each in caught.value.findings if each.field == "claim.from"]
    assert finding.message == "nobody-has-this.toml cannot be read: no such file here or in a folder above"
