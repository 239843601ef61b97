"""Weights to start from: found by name, pinned by bytes, and what is known of them; the registry of candidates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from makerun import RunMaker, make_run

from raykit.cli.dossier_weights import weights_lines
from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import sha256
from raykit.plan import LockedBase
from raykit.read.bases import base_facts, known_candidate, resolve_base, trained_from
from raykit.read.root import Root
from raykit.records import Adopted, AdoptedFile, Commit, ExperimentEntry, Locked, Registered
from raykit.store import LocalStore, layout
from raykit.store.candidates import (
    adopted_digest,
    adopted_key,
    find_candidate,
    keep_adopted,
    read_candidates,
    read_statements,
    register,
    verify_adopted,
)
from raykit.store.check import check
from raykit.store.log import Log
from raykit.store.plans import newest_stored_lock

AT = 1_800_000_500.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def adopted(store: LocalStore, name: str = "prod", *, body: bytes = b"weights", **said: Any) -> Registered:
    """Register weights that were made elsewhere, without going through the command line."""
    file = AdoptedFile(name="model.safetensors", sha256=sha256(body), size_bytes=len(body), holds="model")
    manifest = Adopted(files=(file,), tensors=1, elements=7)
    keep_adopted(store, manifest, lambda name: [body])
    event = Registered(
        candidate=name,
        role=said.pop("role", "base"),
        origin="adopted",
        manifest=adopted_digest(manifest),
        key=adopted_key(manifest),
        history="absent",
        person="mira",
        **said,
    )
    register(store, event, at=AT)
    return event


def of_run(store: LocalStore, name: str, experiment: str, commit: Commit) -> Registered:
    event = Registered(
        candidate=name,
        role="production-candidate",
        origin="run",
        manifest=commit.sha256,
        key=commit.key,
        experiment=experiment,
        update=commit.update,
        person="mira",
    )
    register(store, event, at=AT)
    return event


def commits(store: LocalStore, name: str = "digits") -> dict[int, Commit]:
    return {
        item.commit.update: item.commit for item in Root(store, lambda: AT).run(name).commits if item.counts
    }


def damage(store: LocalStore, key: str) -> None:
    path = Path(store.url) / key
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    os.chmod(path, 0o600)
    path.write_bytes(data)


def relock(store: LocalStore, name: str, base: LockedBase, start: str) -> None:
    """Lock another plan of an experiment, which names a base."""
    maker = RunMaker(store, experiment=name)
    maker.freeze()
    was = newest_stored_lock(store, name)
    assert was is not None
    named = {"candidate": base.candidate, "start": start, "keep": ["weights"]}
    lock = was.model_copy(update={"base": base, "settings": {**was.settings, "base": named}})
    store.put_new(layout.plan(name, lock.digest, "plan.lock"), lock.to_bytes())
    locked = Locked(**{**maker.locked.model_dump(exclude={"event"}), "plan": lock.digest})
    Log(store, layout.experiment_log(name), ExperimentEntry, by="maker").append(
        lambda entries: [locked], at=AT
    )


# --- the registry -------------------------------------------------------------------------------------------


def test_said_twice_is_said_once(store: LocalStore) -> None:
    # covers CAND-29
    first = adopted(store, rows=100)
    assert register(store, first.model_copy(update={"person": "ada", "source": None}), at=AT) is False
    assert read_candidates(store) == (first,)
    assert find_candidate(store, "prod") == first
    assert find_candidate(store, "other") is None


def test_one_name_stands_for_one_set_of_weights(store: LocalStore) -> None:
    adopted(store)
    with pytest.raises(InvalidInput, match="prod stands for other weights"):
        adopted(store, body=b"other!!")
    assert len(read_candidates(store)) == 1


def test_what_was_said_of_weights_is_not_changed_silently(store: LocalStore) -> None:
    # covers CAND-29
    adopted(store, rows=100)
    with pytest.raises(InvalidInput, match="registered by mira with rows 100, not 200") as caught:
        adopted(store, rows=200)
    assert caught.value.field == "rows"
    assert "--correct" in (caught.value.remedy or "")
    with pytest.raises(InvalidInput, match="with role base, not release-model"):
        adopted(store, rows=100, role="release-model")
    with pytest.raises(InvalidInput, match="with source note left out, not hf:x/y"):
        adopted(store, rows=100, source="hf:x/y")


def test_a_correction_counts_and_both_statements_stay(store: LocalStore) -> None:
    # covers CAND-29
    first = adopted(store, rows=100, update=5)
    right = first.model_copy(update={"rows": 200, "update": 0, "person": "ada", "corrects": True})
    assert register(store, right, at=AT + 1) is True
    assert register(store, right, at=AT + 2) is False, "said twice"
    assert read_candidates(store) == (right,)
    assert read_statements(store) == ((AT, first), (AT + 1, right))
    facts = base_facts(store, resolve_base(store, "prod"))
    assert (facts.rows, facts.updates, facts.said_by, facts.names) == (200, None, "ada", ("prod",))
    assert check(store, read_data=True).findings == ()
    assert register(store, first.model_copy(update={"corrects": True}), at=AT + 3), "and it may be taken back"
    assert find_candidate(store, "prod") == first.model_copy(update={"corrects": True})


def test_only_what_was_said_of_these_weights_can_be_corrected(store: LocalStore) -> None:
    first = adopted(store)
    with pytest.raises(InvalidInput, match="stands for other weights"):
        register(store, first.model_copy(update={"manifest": "0" * 64, "corrects": True}), at=AT)
    with pytest.raises(InvalidInput, match="nothing was said of a candidate nobody"):
        other = {"candidate": "nobody", "manifest": "0" * 64, "corrects": True}
        register(store, first.model_copy(update=other), at=AT)
    assert read_statements(store) == ((AT, first),)


def test_adopted_bytes_have_one_name(store: LocalStore) -> None:
    adopted(store)
    with pytest.raises(InvalidInput, match="registered already, as prod"):
        adopted(store, "prod2")


def test_a_file_that_changes_while_it_is_read_is_never_kept(store: LocalStore) -> None:
    body = b"as it was looked at"
    file = AdoptedFile(name="model.safetensors", sha256=sha256(body), size_bytes=len(body), holds="model")
    manifest = Adopted(files=(file,), tensors=1, elements=7)
    with pytest.raises(InvalidInput, match="has changed while it was read"):
        keep_adopted(store, manifest, lambda name: [b"as it was ", b"written since"])
    assert list(store.list("candidates")) == []
    keep_adopted(store, manifest, lambda name: [body])
    assert verify_adopted(store, adopted_digest(manifest)) == manifest


# --- which weights ------------------------------------------------------------------------------------------


def test_a_registered_candidate_is_its_bytes(store: LocalStore) -> None:
    event = adopted(store, update=95_000)
    found = resolve_base(store, "prod")
    assert found == LockedBase(
        candidate="prod",
        origin="adopted",
        experiment="prod",
        update=95_000,
        attempt=0,
        manifest=event.manifest,
        key=event.key,
    )


def test_a_candidate_of_a_run(store: LocalStore) -> None:
    make_run(store)
    commit = commits(store)[20]
    of_run(store, "best", "digits", commit)
    found = resolve_base(store, "best")
    assert (found.origin, found.experiment, found.update, found.attempt) == ("run", "digits", 20, 1)
    assert (found.manifest, found.key) == (commit.sha256, commit.key)


def test_an_experiment_stands_for_its_selected_checkpoint(store: LocalStore) -> None:
    make_run(store)  # its ratio falls to the end
    found, last = resolve_base(store, "digits"), commits(store)[40]
    assert (found.update, found.manifest, found.candidate) == (40, last.sha256, "digits")
    assert resolve_base(store, "digits@20").update == 20


def test_a_selected_checkpoint_that_is_damaged_is_not_passed_over(store: LocalStore) -> None:
    make_run(store)
    damage(store, commits(store)[40].key.replace("manifest.json", "model.safetensors"))
    with pytest.raises(CorruptError, match="does not match its sha256"):
        resolve_base(store, "digits")
    assert resolve_base(store, "digits", read_data=False).update == 40  # the size is right


def test_without_a_rule_it_is_the_newest_that_verifies(store: LocalStore) -> None:
    class NoRule(RunMaker):
        def settings(self) -> dict[str, Any]:
            return {"run": {"updates": 40}}

    maker = NoRule(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    for _ in range(2):
        maker.rows(10)
        maker.commit()
    damage(store, commits(store)[20].key.replace("manifest.json", "model.safetensors"))
    assert resolve_base(store, "digits").update == 10


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("digitz", "close: digits"),
        ("nothing-like-it", "there is: prod, digits"),
        ("No Name!", "there is: prod, digits"),
    ],
)
def test_what_is_not_there_says_what_is(text: str, rule: str, store: LocalStore) -> None:
    make_run(store)
    adopted(store)
    with pytest.raises(NotFoundError) as caught:
        resolve_base(store, text)
    assert rule in (caught.value.rule or "")
    assert caught.value.field == "base.candidate"


@pytest.mark.parametrize("update", ["15", "", "x", "-1", "20@20"])
def test_an_update_without_a_checkpoint_says_which_there_are(update: str, store: LocalStore) -> None:
    make_run(store)
    with pytest.raises(NotFoundError) as caught:
        resolve_base(store, f"digits@{update}")
    assert caught.value.rule == "one of 0, 10, 20, 30, 40"


def test_a_run_without_a_checkpoint_is_no_base(store: LocalStore) -> None:
    maker = RunMaker(store)
    maker.freeze()
    maker.launch()
    with pytest.raises(NotFoundError, match="no checkpoint yet"):
        resolve_base(store, "digits")


@pytest.mark.parametrize("what", ["changed", "missing", "extra", "manifest"])
def test_a_damaged_candidate_is_refused(what: str, store: LocalStore) -> None:
    event = adopted(store)
    model = event.key.replace("manifest.json", "model.safetensors")
    if what == "changed":
        damage(store, model)
    elif what == "missing":
        store.delete(model)
    elif what == "extra":
        store.put_new(event.key.replace("manifest.json", "optimizer.safetensors"), b"?")
    else:
        damage(store, event.key)
    with pytest.raises(CorruptError):
        resolve_base(store, "prod")


def test_a_candidate_whose_run_has_lost_it_is_refused(store: LocalStore) -> None:
    make_run(store)
    commit = commits(store)[20]
    of_run(store, "best", "digits", commit.model_copy(update={"sha256": sha256(b"other")}))
    with pytest.raises(CorruptError, match="none with these bytes"):
        resolve_base(store, "best")


# --- what is known ------------------------------------------------------------------------------------------


def test_facts_of_a_checkpoint(store: LocalStore) -> None:
    make_run(store)
    facts = base_facts(store, resolve_base(store, "digits"))
    assert (facts.updates, facts.rows, facts.history, facts.verifies) == (40, 1258, "kept", True)
    assert (facts.role, facts.registered, facts.said_by) == ("search-checkpoint", False, None)
    assert facts.has_optimizer
    assert facts.size_bytes == commits(store)[40].size_bytes
    assert (facts.accelerator_ms, facts.cost) == (None, None)  # nobody has measured that


def test_facts_of_adopted_weights_are_somebodys_word(store: LocalStore) -> None:
    adopted(store, update=95_000, rows=59_022_310, accelerator_ms=57_700_000, source="hf:org/lm1b@91c2")
    facts = base_facts(store, resolve_base(store, "prod"))
    assert (facts.history, facts.said_by, facts.source) == ("absent", "mira", "hf:org/lm1b@91c2")
    assert (facts.updates, facts.rows, facts.accelerator_ms) == (95_000, 59_022_310, 57_700_000)
    assert (facts.registered, facts.names, facts.has_optimizer) == (True, ("prod",), False)


def test_what_nobody_said_is_not_known(store: LocalStore) -> None:
    adopted(store)
    facts = base_facts(store, resolve_base(store, "prod"))
    assert (facts.updates, facts.rows, facts.accelerator_ms, facts.cost) == (None, None, None, None)


def test_a_registered_checkpoint_has_its_role(store: LocalStore) -> None:
    make_run(store)
    of_run(store, "best", "digits", commits(store)[40])
    for text in ("best", "digits"):
        facts = base_facts(store, resolve_base(store, text))
        assert (facts.role, facts.names, facts.history) == ("production-candidate", ("best",), "kept")


def test_a_candidate_of_a_run_is_known_with_its_files(store: LocalStore) -> None:
    make_run(store)
    of_run(store, "best", "digits", commits(store)[40])
    found = known_candidate(store, "best")
    assert found is not None and found.files is not None
    assert (found.facts.history, found.facts.verifies, found.said.experiment) == ("kept", True, "digits")
    assert {file.holds for file in found.files} >= {"model"}
    assert "kept: raykit show digits" in "\n".join(weights_lines(found))
    assert known_candidate(store, "nobody") is None


def test_dependents_are_found_by_digest(store: LocalStore) -> None:
    make_run(store)
    base, other = resolve_base(store, "digits"), resolve_base(store, "digits@20")
    relock(store, "goes-on", base, "continue")
    relock(store, "replays", base.model_copy(update={"candidate": "under-another-name"}), "replay")
    relock(store, "of-another", other, "continue")
    relock(store, "only-weighed-it", base, "fresh")
    facts = base_facts(store, base)
    assert (facts.dependents, facts.unread) == (("goes-on", "replays"), ())
    lock = newest_stored_lock(store, "goes-on")
    assert lock is not None
    assert trained_from(lock) == base


def test_a_plan_that_cannot_be_read_may_depend_on_it(store: LocalStore) -> None:
    make_run(store)
    base = resolve_base(store, "digits")
    relock(store, "goes-on", base, "continue")
    lock = newest_stored_lock(store, "goes-on")
    assert lock is not None
    store.delete(layout.plan("goes-on", lock.digest, "plan.lock"))
    facts = base_facts(store, base)
    assert (facts.dependents, facts.unread) == ((), ("goes-on",))


def test_facts_of_weights_that_do_not_verify_say_so(store: LocalStore) -> None:
    make_run(store)
    base = resolve_base(store, "digits")
    damage(store, commits(store)[40].key.replace("manifest.json", "model.safetensors"))
    assert base_facts(store, base).verifies  # found, not read
    facts = base_facts(store, base, read_data=True)
    assert not facts.verifies
    assert "does not match its sha256" in (facts.broken or "")
