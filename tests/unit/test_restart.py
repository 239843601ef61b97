"""Training from scratch beside weights for the same decision: what is asked, and what lets it pass.

covers APPR-01 to APPR-15, APPR-19, BUD-10
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nursery import Nursery
from plainrun import Launches, write_job

from raykit.budget.amounts import micros
from raykit.cli.main import main
from raykit.errors import ApprovalError, CorruptError, ReviewError
from raykit.fleet.claim import Claimed, claim
from raykit.fleet.evidence import gather
from raykit.fleet.site import Site, site_of
from raykit.fleet.spending import Approving
from raykit.records import Released
from raykit.review import Evidence, require_passed, review
from raykit.review.restart import pending
from raykit.store.accounts import open_ledger
from raykit.store.people import People, read_acts

ADA = "ada"
ITEMS = ("discards", "changed", "repeats", "costs", "instead", "your why")
BASE = """
[base]
candidate       = "tiny"
start           = "fresh"
because         = "base-invalid"
reason          = "3 of its 60 labels were wrong, so that its ratio of 0.2 is one of another task."
invalid_without = "Weights that were fitted to wrong labels would stay in the model."
against_as_is   = "It was fitted to wrong labels."
against_continue = "5 updates of 20 leave what the wrong labels taught."
against_replay  = "The wrong labels would be replayed, too."
against_pilot   = "It costs as much as the run: 20 updates."
"""


# --- beside a run that was trained --------------------------------------------------------------------------


@dataclass(frozen=True)
class Root:
    """A root with a trained experiment `tiny` in it, and other plans for its decision."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def site(
        self, name: str = "tiny", *, rate: float | None, ceiling: float, base: str = "", **edits: str
    ) -> Site:
        plan = write_job(self.folder / name, {"wall_h": "0.1", "name": f'"{name}"', **edits})
        text = plan.read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}")
        if rate is not None:
            price = f'usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}'
            text += f"\n[pools.train]\ngpus = 0\n{price}\n"
        plan.write_text(text + base)
        return site_of(plan, str(self.root))

    def refit(
        self, *, rate: float | None = 80.0, ceiling: float = 60.0, base: str = BASE, **edits: str
    ) -> Site:
        """Another seed than that of `tiny`: what differs in nothing is no restart, but a repetition."""
        return self.site("refit", rate=rate, ceiling=ceiling, base=base, **{"seed": "4", **edits})

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


def evidence(site: Site) -> Evidence:
    return gather(site).evidence


def facts(site: Site) -> dict[str, str]:
    """The request, if one is due."""
    case = gather(site)
    with pytest.raises(ApprovalError) as refused:
        require_passed(case.evidence, review(case.evidence))
    return dict(refused.value.facts)


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
    assert said["repeats"].startswith("20 of 20 updates (100.0%)")
    assert said["changed"].startswith("0 of 60 (0.0%) rows added")
    assert said["discards"].startswith("tiny is kept on disk, but its 20 updates are not used")
    assert "at worst" in said["costs"] and "3 of its 60 labels were wrong" in said["your why"]
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
    change = evidence(site).change
    assert change is not None and (change.before, change.changed) == (60, 1)
    words = {"changed": "relabelled", "removed": "removed", "added": "rows added"}
    assert f"1 of 60 (1.7%) {words[members]}" in facts(site)["changed"]


def test_settings_that_differ_are_named(root: Root) -> None:
    said = facts(root.refit(params="{ width = 17 }", updates="30"))
    assert "run.params.width: 16 -> 17" in said["changed"] and "run.updates: 20 -> 30" in said["changed"]
    assert said["repeats"].startswith("20 of 30 updates (66.7%)")


def test_below_five_dollars_with_weights_that_verify_it_is_exempt(root: Root) -> None:
    """covers APPR-07"""
    assert evidence(root.refit(rate=1.0, ceiling=4.0)).exempt
    before = root.files()
    begin(root.refit(rate=1.0, ceiling=4.0))
    after = root.files()
    assert all(after.get(name) == data for name, data in before.items() if "snapshot" not in name)


def test_it_is_what_the_whole_account_comes_to_that_exempts(root: Root) -> None:
    """covers APPR-07: cumulative. A low ceiling of its own implies nothing."""
    charge = ("budget", "charge", "tiny", "recovery", "3.4", "--how", "storage", "--by", ADA)
    assert root.raykit(*charge) == 0
    cheap = root.refit(rate=16.0, ceiling=4.0)
    assert not evidence(cheap).exempt
    with pytest.raises(ApprovalError, match="a fresh start needs its own approval"):
        begin(cheap, approved=4)


def test_work_that_nobody_pays_for_repeats_nothing_that_was_paid(root: Root) -> None:
    """What is there is weighed all the same; only what is asked, and what is refused, hangs on money."""
    begin(root.refit(rate=None, ceiling=1.0))
    found = evidence(root.site("again", rate=None, ceiling=1.0))
    assert found.base is not None and found.base.locked.experiment == "tiny" and not found.base.declared
    assert not found.strict and not pending(found) and found.incumbent is None
    begin(root.site("again", rate=None, ceiling=1.0))


def test_what_is_there_is_said_though_nobody_pays(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """covers PLAN-09 PLAN-42 PLAN-44: the alternatives and the statement are true at any price"""
    root.site("again", rate=None, ceiling=1.0)
    plan = str(root.folder / "again" / "plan.toml")
    assert root.raykit("plan", "check", plan) == 0
    assert root.raykit("plan", "show", plan) == 0
    text = " ".join(capsys.readouterr().out.split())
    for wrong in ("no weights for this decision", "no previous run", "no cheaper alternative"):
        assert wrong not in text
    assert "use tiny as it is" in text and "> fresh, all rows" in text
    assert "20 updates of tiny" in text and "20 of 20 updates" in text


def test_the_weights_are_found_in_whatever_account(root: Root) -> None:
    """covers REVIEW-09: another account has paid for them, and they answer to the same decision"""
    root.refit(base="")
    path = root.folder / "refit" / "plan.toml"
    path.write_text(path.read_text().replace("[budget]", '[budget]\naccount = "another"'))
    parted = ("budget", "part", "refit", "--from", "tiny", "--to", "another")
    assert root.raykit(*parted, "--reason", "another team pays", "--by", ADA) == 0
    found = evidence(site_of(path, str(root.root)))
    assert found.money.account == "another"
    assert found.base is not None and found.base.locked.experiment == "tiny"


def test_a_repetition_of_what_is_there_is_refused(root: Root) -> None:
    """covers PLAN-37: the same rows, settings, seed and code would end with the weights that are there"""
    same = root.refit(seed="3")
    with pytest.raises(ReviewError) as refused:
        begin(same, approved=60)
    (finding,) = [each for each in refused.value.findings if "PLAN-37" in each.message]
    assert finding.field == "base.start" and "nothing differs" in finding.message
    assert finding.remedy == 'start = "use"'
    assert not evidence(root.refit()).same_bits, "another seed"
    assert not evidence(root.refit(seed="3", base=BASE.replace('"tiny"', '"tiny@15"'))).same_bits, (
        "its middle"
    )
    code = next((root.folder / "refit").glob("*.py"))
    code.write_text(code.read_text() + "\nANOTHER = 1\n")
    assert not evidence(site_of(root.folder / "refit" / "plan.toml", str(root.root))).same_bits, "other code"


def test_nobody_stops_a_repetition_that_is_free(root: Root) -> None:
    begin(root.refit(rate=None, ceiling=1.0, seed="3"))


def test_an_edited_ceiling_is_refused_by_the_check_as_by_the_launch(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers BUD-10: it moves no money by itself, and no lock says that it has"""
    root.site("tiny", rate=1.0, ceiling=4.5)
    plan = root.folder / "tiny" / "plan.toml"
    assert root.raykit("plan", "check", str(plan)) == 3
    said = capsys.readouterr().err
    assert "an edited ceiling moves no money by itself" in said and "budget.ceiling_usd" in said
    assert "raykit budget replan" in said and not plan.with_suffix(".lock").exists()
    assert root.raykit("plan", "show", str(plan)) == 0
    assert "an edited ceiling moves no money by itself" in capsys.readouterr().out
    root.site("tiny", rate=1.0, ceiling=4.0)
    assert root.raykit("plan", "check", str(plan)) == 0


def test_another_decision_is_no_restart(root: Root) -> None:
    assert evidence(root.refit(decision='"Is another thing so?"', base="")).base is None


def test_weights_that_the_plan_passes_over_are_found(root: Root) -> None:
    """covers REVIEW-09 PLAN-44: reuse is considered first, whether or not the plan thinks of it"""
    with pytest.raises(ReviewError) as refused:
        begin(root.refit(base=""), approved=60)
    (finding,) = [each for each in refused.value.findings if "REVIEW-09" in each.message]
    assert "tiny" in finding.message and "raykit plan new --from tiny" in (finding.remedy or "")


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
    case = gather(root.refit())
    require_passed(case.evidence, review(case.evidence))
    with pytest.raises(ApprovalError, match="a person has to approve this very plan"):
        begin(root.refit())
    before = root.files()
    begin(root.refit(), approved=60)
    assert before.keys() <= root.files().keys(), "nothing is deleted"
    (approved,) = read_acts(root.refit().store, "refit").restarts
    assert (approved.person, approved.reason) == (ADA, "the labels were wrong")


def test_who_approves_it_is_shown_what_it_throws_away(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """covers APPR-08 to APPR-14, APPR-21: and it covers nothing else"""
    root.refit()
    assert root.approve_restart() == 0
    shown = capsys.readouterr().out
    assert all(f"  {item}" in shown for item in ITEMS), shown
    assert "its 20 updates are not used" in shown and f"approved by {ADA}" in shown
    assert "not      any money" in shown and "a promotion" in shown
    assert root.approve_restart() == 0
    assert f"approved already by {ADA}" in capsys.readouterr().out
    assert len(read_acts(root.refit().store, "refit").restarts) == 1


@pytest.mark.parametrize("what", ["goes on", "not paid for", "complete", "no weights"])
def test_what_is_no_restart_cannot_be_approved_as_one(
    root: Root, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = BASE.replace('"fresh"', '"continue"\nkeep            = ["weights"]')
    if what == "goes on":
        root.refit(base=start)
    elif what == "not paid for":
        root.refit(rate=None, ceiling=1.0)
    elif what == "no weights":
        root.refit(base="", decision='"Is another thing so?"')
    else:
        root.refit()
    before = root.files()
    plan = str(root.folder / ("tiny" if what == "complete" else "refit") / "plan.toml")
    assert root.raykit("approve", "restart", plan, "--reason", "5 of 9 were wrong", "--by", ADA) == 2
    said = capsys.readouterr().err
    assert "nothing of it starts" in said if what == "complete" else "there is nothing to approve" in said
    assert root.files() == before


CHANGED: dict[str, dict[str, Any]] = {
    "params": {"params": "{ width = 17 }"},
    "updates": {"updates": "21"},
    "select": {"select": '"max development.ratio"'},
    "ceiling": {"ceiling": 61.0},
    "seed": {"seed": "5"},
}


@pytest.mark.parametrize("what", sorted(CHANGED))
def test_an_approval_is_of_one_plan(root: Root, what: str) -> None:
    root.refit()
    assert root.approve_restart() == 0
    with pytest.raises(ApprovalError, match="a fresh start needs its own approval"):
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
    base = evidence(root.refit(base="")).base
    assert base is not None and base.updates == 15


def test_weights_that_do_not_verify_are_none(root: Root) -> None:
    assert damage(root, lambda path: True) > 4
    assert evidence(root.refit(base="")).base is None
    with pytest.raises(CorruptError):
        root.refit()


@pytest.mark.parametrize("gone", ["plan.lock", "manifest.json"])
def test_weights_whose_origin_is_gone_are_not_passed_over(root: Root, gone: str) -> None:
    """They verify; what they were trained by cannot be said, and so no restart can be weighed against them."""
    kind = "plans" if gone == "plan.lock" else "data"
    paths = list((root.root / "experiments" / "tiny" / kind).rglob(gone))
    assert paths
    for path in paths:
        path.unlink()
    with pytest.raises(CorruptError):
        evidence(root.refit(base=""))


def test_the_trained_run_is_settled_in_its_account(root: Root) -> None:
    """The refit spends from the account of what it repeats, whatever it is called."""
    begin(root.refit(rate=1.0, ceiling=4.0))
    assert open_ledger(root.refit().store, "refit", by="test").account == "tiny"
