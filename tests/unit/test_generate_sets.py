"""What is refused of a set before anything is started: units that cannot count as they are, and which files differ.

covers GEN-16, I14
FAULT-C06
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from makegen import drive, toy_set
from makeset import make_set
from plainrun import write_job

from raykit.data.inputs import cut_inputs, read_inputs
from raykit.errors import GateError, InvalidInput
from raykit.fleet.generate.ahead import inputs_ahead
from raykit.fleet.generate.sets import Changed, _inputs, _other_files, _require_reusable, rules_of
from raykit.fleet.site import site_of
from raykit.ids import sha256
from raykit.records import GenerationContract
from raykit.shards.bounds import RULES
from raykit.shards.contract import Draft, changes, require_same
from raykit.store import open_store
from raykit.store.inputs import freeze_inputs
from raykit.train import frozen


def draft_like(contract: GenerationContract) -> Draft:
    """What a plan would say that has not changed."""
    return Draft(**{each.name: getattr(contract, each.name) for each in fields(Draft)})


def test_units_that_cannot_be_reused_are_known_before_anything_starts(tmp_path: Path) -> None:
    maker = toy_set(open_store(str(tmp_path / "store")), rows_asked=40)
    contract = maker.generation_contract
    draft = draft_like(contract)
    with pytest.raises(InvalidInput, match="there is no unit 99"):
        _require_reusable(maker.store, contract, draft, "0-99")
    with pytest.raises(GateError, match=r"units 0-3 of contract .* came to no receipt"):
        _require_reusable(maker.store, contract, draft, "0-3")
    _require_reusable(maker.store, contract, draft, "all")
    drive(maker)
    _require_reusable(maker.store, contract, draft, "0-3,9")
    with pytest.raises(GateError, match="unit_rows"):
        _require_reusable(maker.store, contract, replace(draft, unit_rows=5), "0-3")
    with pytest.raises(GateError, match="unit 9 would have other rows"):
        _require_reusable(maker.store, contract, replace(draft, rows=38), "0-3,9")


def test_a_refusal_names_the_files_of_the_code_that_differ(tmp_path: Path) -> None:
    maker = toy_set(open_store(str(tmp_path / "store")))
    was = {"recipe.py": b"a = 1\n", "old.py": b"", "kept.py": b"b = 2\n"}
    code = frozen.write_code(maker.store, maker.experiment, frozen.pack(was))
    contract = maker.generation_contract.model_copy(update={"code": code})
    now = {"recipe.py": b"a = 2\n", "kept.py": b"b = 2\n", "weird.csv": b"1,2\n"}
    draft = replace(draft_like(contract), code=sha256(frozen.pack(now)))
    files = _other_files(maker.store, contract, now, draft.code)
    assert files == "old.py gone, recipe.py changed, weird.csv new"
    with pytest.raises(GateError, match=rf"code was {code[:12]}, is {draft.code[:12]} \(old.py gone, recipe"):
        require_same(contract, draft, files=files)
    assert _other_files(maker.store, contract, was, code) == ""
    many = was | {f"extra{n}.txt": b"" for n in range(12)}
    assert _other_files(maker.store, contract, many, draft.code).endswith("extra5.txt new and 4 more")


CSV = b"id,length\n1,007\n2,8\n"

SET = """
[generate.digits]
inputs    = "questions.csv"
unit_rows = 4
bounds    = { failed = 0.0 }
"""


def test_a_set_under_way_reads_its_inputs_as_it_began_and_another_one_as_they_stand(tmp_path: Path) -> None:
    """What lies at the source is the same; its digest is that of the contract only as it was read then."""
    plan = write_job(tmp_path / "job", {"name": '"digits"'})
    plan.write_text(plan.read_text() + SET)
    plan.with_name("questions.csv").write_bytes(CSV)
    site = site_of(plan, str(tmp_path / "store"))
    assert inputs_ahead(site)["digits"].types == {"id": "string", "length": "string"}
    was = cut_inputs(
        read_inputs(CSV, "questions.csv", at="x", guess=True), "questions.csv", input_bytes=16_000_000, at="x"
    )
    maker = make_set(site.store, contract=False, inputs="text")
    freeze_inputs(site.store, "digits", *was)
    maker.contract_now(inputs=was.manifest.digest)
    contract = maker.generation_contract
    assert contract.rules is None and rules_of(contract) is None, "as the version before has frozen it"
    manifest, cut = _inputs(site_of(plan, str(tmp_path / "store")), "digits", contract, rules_of(contract))
    assert manifest == was.manifest and cut == was
    assert changes(contract, draft_like(contract)) == ()
    site = replace(site, plan_path=plan)
    assert inputs_ahead(site)["digits"].types == {"id": "string", "length": "int64"}
    anew = Changed(why="text stays text", person="ada")
    assert rules_of(contract, anew) == RULES == rules_of(None)
    manifest, _ = _inputs(site, "digits", None, rules_of(contract, anew))
    assert manifest is not None and manifest.digest != contract.inputs
