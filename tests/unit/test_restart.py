"""Training from scratch beside weights for the same decision: what is asked, and what lets it pass.

covers APPR-01 to APPR-15, APPR-19, BUD-10, GOLD-18
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nursery import Nursery
from plainrun import Launches, write_job

from raykit.budget.amounts import micros
from raykit.cli.main import main
from raykit.errors import ApprovalError, CorruptError
from raykit.fleet.claim import Claimed, claim
from raykit.fleet.restarts import require_no_restart, restarts
from raykit.fleet.site import Site, make_ready, site_of
from raykit.fleet.spending import Approving, draft_of
from raykit.ids import sha256
from raykit.records import Released
from raykit.review.restart import Earlier, Restart, request, require_approved, triggers
from raykit.store.accounts import open_ledger
from raykit.store.people import People, read_acts

ADA = "ada"
ITEMS = ("discards", "changed", "repeats", "costs", "instead", "because")
REFIT = Restart(
    experiment="refit",
    earlier=Earlier(
        experiment="first",
        update=12_000,
        updates=12_000,
        manifest=sha256(b"weights"),
        accelerator_s=8 * 3600.0,
    ),
    rows_before=59_022,
    rows_added=0,
    rows_removed=0,
    rows_changed=2_953,
    changed=(),
    repeats=12_000,
    updates=12_000,
    time="1.00 h expected",
    cost="24.00 expected, 31.50 at worst",
    below_autonomous=False,
    preserved=True,
)


def facts(restart: Restart) -> dict[str, str]:
    return dict(request(restart))


# --- the request --------------------------------------------------------------------------------------------


def test_it_has_its_six_items_in_order() -> None:
    """covers APPR-08 to APPR-13"""
    assert tuple(facts(REFIT)) == ITEMS
    assert all(facts(REFIT).values())


def test_counts_are_exact_and_percentages_have_one_decimal() -> None:
    """covers GOLD-18"""
    assert facts(REFIT)["changed"].startswith("2,953 of 59,022 (5.0%) rows changed")
    assert "the change is 5.0% of the rows" in facts(REFIT)["because"]
    assert facts(REFIT)["repeats"] == "12,000 of 12,000 (100.0%) updates"
    third = replace(REFIT, repeats=4_000)
    assert facts(third)["repeats"] == "4,000 of 12,000 (33.3%) updates"


def test_every_kind_of_change_is_counted() -> None:
    mixed = replace(REFIT, rows_added=10, rows_removed=1_000, rows_changed=59_022)
    assert facts(mixed)["changed"].startswith(
        "10 of 59,022 (0.0%) rows added, 1,000 of 59,022 (1.7%) rows removed, "
        "59,022 of 59,022 (100.0%) rows changed"
    )
    assert facts(replace(REFIT, rows_changed=0))["changed"].startswith("0 of 59,022 (0.0%) rows")
    settings = replace(REFIT, changed=("run.params.lr: 0.001 -> 0.002",))
    assert "run.params.lr: 0.001 -> 0.002" in facts(settings)["changed"]


def test_what_is_discarded_is_named_and_said_to_stay() -> None:
    """covers APPR-08"""
    said = facts(REFIT)["discards"]
    assert "first at update 12,000" in said and sha256(b"weights")[:8] in said
    assert "8.00 accelerator-hours" in said and "kept on disk, not used" in said
    unknown = replace(REFIT, earlier=replace(REFIT.earlier, accelerator_s=None))
    assert "accelerator-hours" not in facts(unknown)["discards"]


def test_it_offers_what_is_cheaper() -> None:
    """covers APPR-06 APPR-12"""
    said = facts(REFIT)["instead"]
    assert "use first as it is" in said and "raykit resume first" in said


def test_what_is_not_declared_counts_as_triggered() -> None:
    """covers APPR-01 APPR-02 APPR-03 APPR-05 APPR-06"""
    same, other = list(triggers(REFIT)), list(triggers(replace(REFIT, changed=("seed: 1 -> 2",))))
    assert len(same) == 5 and len(other) == 4
    assert "a continuation answers the same question" in same


@pytest.mark.parametrize(("below", "preserved"), [(True, True), (True, False), (False, True), (False, False)])
def test_only_both_together_exempt(below: bool, preserved: bool) -> None:
    """covers APPR-07"""
    restart = replace(REFIT, below_autonomous=below, preserved=preserved)
    if below and preserved:
        require_approved(restart, "0" * 64, [])
        return
    with pytest.raises(ApprovalError) as refused:
        require_approved(restart, "0" * 64, ["1" * 64])
    assert tuple(name for name, _ in refused.value.facts) == ITEMS
    assert "raykit approve restart" in (refused.value.remedy or "")
    require_approved(restart, "0" * 64, ["1" * 64, "0" * 64])


# --- beside a run that was trained --------------------------------------------------------------------------


@dataclass(frozen=True)
class Root:
    """A root with a trained experiment `tiny` in it, and other plans for its decision."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def site(self, name: str = "tiny", *, rate: float | None, ceiling: float, **edits: str) -> Site:
        plan = write_job(self.folder / name, {"wall_h": "0.1", "name": f'"{name}"', **edits})
        text = plan.read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}")
        if rate is not None:
            price = f'usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}'
            text += f"\n[pools.train]\ngpus = 0\n{price}\n"
        plan.write_text(text)
        return site_of(plan, str(self.root))

    def refit(self, *, rate: float | None = 40.0, ceiling: float = 60.0, **edits: str) -> Site:
        return self.site("refit", rate=rate, ceiling=ceiling, **edits)

    def raykit(self, *arguments: str) -> int:
        return main([*arguments, "--root", str(self.root)])

    def approve_restart(self) -> int:
        plan = str(self.folder / "refit" / "plan.toml")
        return self.raykit("approve", "restart", plan, "--reason", "the labels were wrong", "--by", ADA)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


def begin(site: Site, approved: float | None = None) -> Claimed:
    said = (
        None
        if approved is None
        else Approving(amount=micros(approved, field="test"), person=ADA, scripted=False)
    )
    return claim(site, site.run_log("test"), People(site.store, site.name), said)


def found(site: Site) -> list[Restart]:
    ready = make_ready(site)
    return list(restarts(site, ready, draft_of(site, ready, site.run_log("test"))))


@pytest.fixture(scope="module")
def trained(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = Root(tmp_path_factory.mktemp("trained"))
    site = made.site(rate=1.0, ceiling=4.0)
    claimed = begin(site)
    ((code, out),) = [rank.wait() for rank in Launches(nursery, claimed.task).ranks(claimed.task)]
    assert code == 0, out
    site.run_log("test").append(
        lambda entries: [Released(launch=claimed.task.launch, reason="completed")], at=1.8e9
    )
    return made


@pytest.fixture
def root(trained: Root, tmp_path: Path) -> Root:
    shutil.copytree(trained.folder, tmp_path / "root")
    return Root(tmp_path / "root")


def test_it_is_refused_and_the_request_comes_with_it(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """covers APPR-01 APPR-14: a standalone request, and nothing is written"""
    before = root.files()
    with pytest.raises(ApprovalError) as refused:
        begin(root.refit(), approved=60)
    said = dict(refused.value.facts)
    assert tuple(said) == ITEMS
    assert said["repeats"] == "20 of 20 (100.0%) updates" and said["changed"].startswith(
        "0 of 60 (0.0%) rows"
    )
    assert "tiny at update 20" in said["discards"] and "at worst" in said["costs"]
    assert root.raykit("launch", str(root.folder / "refit" / "plan.toml")) == 3
    shown = capsys.readouterr().err
    assert all(item in shown for item in ITEMS) and "raykit approve restart" in shown
    assert root.files() == before


@pytest.mark.parametrize(
    "members",
    ["changed", "removed", "added"],
)
def test_rows_that_differ_are_counted(root: Root, monkeypatch: pytest.MonkeyPatch, members: str) -> None:
    """covers APPR-09"""
    site = root.refit()
    monkeypatch.setenv("TINY_MEMBERS", members)
    (restart,) = found(site)
    differing = restart.rows_added + restart.rows_removed + restart.rows_changed
    assert (restart.rows_before, differing) == (60, 1)
    assert facts(restart)["changed"].startswith(f"1 of 60 (1.7%) rows {members}")


def test_settings_that_differ_are_named(root: Root) -> None:
    (restart,) = found(root.refit(params="{ width = 17 }", updates="30"))
    said = facts(restart)
    assert "run.params.width: 16 -> 17" in said["changed"] and "run.updates: 20 -> 30" in said["changed"]
    assert said["repeats"] == "20 of 30 (66.7%) updates"


def test_below_five_dollars_with_weights_that_verify_it_is_exempt(root: Root) -> None:
    """covers APPR-07"""
    (restart,) = found(root.refit(rate=1.0, ceiling=4.0))
    assert restart.exempt
    before = root.files()
    begin(root.refit(rate=1.0, ceiling=4.0))
    after = root.files()
    assert all(after.get(name) == data for name, data in before.items() if "snapshot" not in name)


def test_it_is_what_the_whole_account_comes_to_that_exempts(root: Root) -> None:
    """covers APPR-07: cumulative. A low ceiling of its own implies nothing."""
    charge = ("budget", "charge", "tiny", "recovery", "3.4", "--how", "storage", "--by", ADA)
    assert root.raykit(*charge) == 0
    cheap = root.refit(rate=8.0, ceiling=4.0)
    (restart,) = found(cheap)
    assert not restart.exempt
    with pytest.raises(ApprovalError, match="starts from scratch"):
        begin(cheap, approved=4)


def test_work_that_nobody_pays_for_repeats_nothing_that_was_paid(root: Root) -> None:
    assert found(root.refit(rate=None, ceiling=1.0)) == []


def test_another_decision_is_no_restart(root: Root) -> None:
    assert found(root.refit(decision='"Is another thing so?"')) == []


# --- what approves it, and what does not --------------------------------------------------------------------


def test_an_approval_of_money_is_none(root: Root) -> None:
    """covers APPR-15 APPR-19: nor is the account's, nor the pause that a person ends, nor a scripted launch"""
    plan = str(root.folder / "refit" / "plan.toml")
    root.refit()
    assert root.raykit("approve", "plan", plan, "60", "--by", ADA) == 0
    assert root.raykit("approve", "account", "tiny", "60", "--by", ADA) == 0
    for command in (
        ("launch", plan),
        ("launch", plan, "--approve", "60", "--by", ADA),
        ("launch", plan, "--approve", "60", "--by", ADA, "--scripted"),
    ):
        assert root.raykit(*command) == 3
    assert read_acts(root.refit().store, "refit").restarts == ()


def test_an_approval_of_the_restart_is_none_of_money(root: Root) -> None:
    root.refit()
    assert root.approve_restart() == 0
    require_no_restart(
        site := root.refit(), ready := make_ready(site), draft_of(site, ready, site.run_log("t"))
    )
    with pytest.raises(ApprovalError, match="a person has to approve this very plan"):
        begin(root.refit())
    before = root.files()
    begin(root.refit(), approved=60)
    assert before.keys() <= root.files().keys(), "nothing is deleted"
    (approved,) = read_acts(root.refit().store, "refit").restarts
    assert (approved.person, approved.reason) == (ADA, "the labels were wrong")


CHANGED: dict[str, dict[str, Any]] = {
    "params": {"params": "{ width = 17 }"},
    "updates": {"updates": "21"},
    "select": {"select": '"max development.ratio"'},
    "ceiling": {"ceiling": 61.0},
    "seed": {"seed": "4"},
}


@pytest.mark.parametrize("what", sorted(CHANGED))
def test_an_approval_is_of_one_plan(root: Root, what: str) -> None:
    root.refit()
    assert root.approve_restart() == 0
    with pytest.raises(ApprovalError, match="starts from scratch"):
        begin(root.refit(**CHANGED[what]), approved=60)


@pytest.mark.parametrize(
    "edits", [{"curves": '{ every = 7, smooth = "ema 0.9" }'}, {"checkpoint_every": "4"}], ids=str
)
def test_it_stays_good_where_nothing_of_consequence_changes(root: Root, edits: dict[str, str]) -> None:
    root.refit()
    assert root.approve_restart() == 0
    begin(root.refit(**edits), approved=60)


@pytest.mark.parametrize("missing", ["--by", "--reason"])
def test_a_restart_is_approved_by_a_person_for_a_reason(root: Root, missing: str) -> None:
    """covers APPR-04"""
    site = root.refit()
    words = {"--by": ADA, "--reason": "the labels were wrong"}
    given = [word for option, value in words.items() if option != missing for word in (option, value)]
    before = root.files()
    assert root.raykit("approve", "restart", str(root.folder / "refit" / "plan.toml"), *given) == 2
    assert root.files() == before and read_acts(site.store, "refit").restarts == ()


# --- weights that are damaged -------------------------------------------------------------------------------


def damage(root: Root, choose: Callable[[Path], bool]) -> int:
    hit = [path for path in root.root.rglob("*.safetensors") if choose(path)]
    for path in hit:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
    return len(hit)


def test_only_weights_that_verify_are_named(root: Root) -> None:
    assert damage(root, lambda path: "update-00000020" in str(path)) > 0
    (restart,) = found(root.refit())
    assert restart.earlier.update == 15 and restart.repeats == 15


def test_weights_that_do_not_verify_are_none(root: Root) -> None:
    assert damage(root, lambda path: True) > 4
    assert found(root.refit()) == []


@pytest.mark.parametrize("gone", ["plan.lock", "manifest.json"])
def test_weights_whose_origin_is_gone_are_not_passed_over(root: Root, gone: str) -> None:
    """They verify; what they were trained by cannot be said, and so no restart can be weighed against them."""
    kind = "plans" if gone == "plan.lock" else "data"
    paths = list((root.root / "experiments" / "tiny" / kind).rglob(gone))
    assert paths
    for path in paths:
        path.unlink()
    with pytest.raises(CorruptError):
        found(root.refit())


def test_the_trained_run_is_settled_in_its_account(root: Root) -> None:
    """The refit spends from the account of what it repeats, whatever it is called."""
    begin(root.refit(rate=1.0, ceiling=4.0))
    assert open_ledger(root.refit().store, "refit", by="test").account == "tiny"
