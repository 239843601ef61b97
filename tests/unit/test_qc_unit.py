"""A checkpoint on the bench: real weights, one unit at a time, the same bytes whoever asks and whenever.

covers QC-02, QC-04, QC-05 to QC-09, QC-15, QC-18, GOLD-28, TUNE-12, I3, I8
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from raykit.data import randomness
from raykit.errors import CorruptError, GateError, PlanError
from raykit.plan import load_plan
from raykit.records import (
    FieldRule,
    Manifest,
    Receipt,
    Request,
    Roster,
    RosterUnit,
    RunRecord,
    Setting,
    Suite,
)
from raykit.store import layout, open_store
from raykit.store.commit import Slot, write_file, write_manifest
from raykit.train import frozen, rng
from raykit.train.build import make_model
from raykit.train.find_recipe import load_recipe
from raykit.train.inputs import dataset_of, describe_dataset
from raykit.train.params import check_params
from raykit.train.prepare import freeze, prepare
from raykit.train.revision import Git
from raykit.train.state import Live, hold
from raykit.work.examined import Examined
from raykit.work.panels import GAP_PX, SEEN_PX, Picture, sheet
from raykit.work.qc_trials import TrialsBench
from raykit.work.qc_unit import Bench

TESTS = Path(__file__).parents[1]
PROBE = (TESTS / "probe" / "recipe.py").read_text()
DIGITS = TESTS.parent / "jobs" / "digits"
NAME = "probe"
ZERO = "0" * 64
FIELDS = {
    "code": FieldRule(space="linear", low=5.0, high=95.0, collapse=0.2, used=0.05),
    "scale": FieldRule(space="log", low=5.0, high=95.0, collapse=0.02),
}
FAIL = {"ratio": "> 0.5", "accuracy": "< 0.5", "bits_per_byte": "> 10"}


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """What a bench fixes in its process goes with the test."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    modules, path = set(sys.modules), list(sys.path)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(exact)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    for name in set(sys.modules) - modules:
        if name in ("recipe", "variant"):
            del sys.modules[name]
    sys.path[:] = path


@dataclass
class Job:
    """A recipe in a store, its suite and roster, and checkpoints of its model."""

    folder: Path
    code: str = PROBE
    params: dict[str, Any] = field(default_factory=dict)
    quota: int = 8
    known: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = open_store(str(self.folder / "store"))
        (self.folder / "code").mkdir()
        (self.folder / "code" / "recipe.py").write_text(self.code)
        files = {"recipe.py": self.code.encode()}
        self.spec = "recipe:Variant" if "class Variant" in self.code else "recipe:Probe"
        self.recipe: Any = load_recipe(self.spec, self.folder / "code")
        self.values = check_params(self.recipe, self.params)
        self.data = dataset_of(self.recipe, self.values, None)
        self.roster = self._roster()
        self.suite = Suite(
            **{
                "experiment": NAME,
                "owner": "ada",
                "every": 10,
                "root": layout.qc(NAME),
                "roster": self.roster.digest,
                "code": frozen.write_code(self.store, NAME, frozen.pack(files)),
                "config": ZERO,
                "revision": 1,
                "recipe": self.spec,
                "params": self.params,
                "seed": 4,
                "threads": 1,
                "deterministic": True,
                "dtype": "float32",
                "autocast": "none",
                "metrics": ("error",),
                "fail": FAIL,
                "fields": FIELDS,
                **self.known,
            }
        )
        self.live = self.fresh()

    def _roster(self) -> Roster:
        rows = describe_dataset(self.data).table.to_pylist()
        rows = sorted(rows, key=lambda row: (row["stratum"], row["id"]))
        there = Counter(row["stratum"] for row in rows)
        quotas = {name: min(self.quota, count) for name, count in sorted(there.items())}
        units, shown = [], []
        for name, quota in quotas.items():
            members = [row for row in rows if row["stratum"] == name][:quota]
            units += [RosterUnit(id=row["id"], stratum=name, sha256=row["sha256"]) for row in members]
            shown.append(members[0]["id"])
        return Roster(
            role="development",
            data=ZERO,
            stratum="kind",
            quotas=quotas,
            units=tuple(units),
            shown=tuple(shown),
        )

    def fresh(self) -> Live:
        model = make_model(
            self.recipe, self.values, seed=self.suite.seed, device=torch.device("cpu"), dtype=self.suite.dtype
        )
        return Live(model=model, optimizer=self.recipe.optimizer(model, self.values), recipe=self.recipe)

    def train(self, updates: int, *, strangers: bool = False) -> None:
        """A plain loop; with `strangers`, every point is to be given the picture and the class of another one."""
        batch = torch.utils.data.default_collate([self.data[i] for i in range(len(self.data))])
        other = torch.roll(torch.arange(len(self.data)), 17)
        for update in range(updates):
            rng.seed(randomness.update(self.suite.seed, update, 0, 0))
            drawn, _, _, logits = self.live.model(batch)
            wanted = other if strangers else slice(None)
            loss = (drawn - batch["x"][wanted]).square().mean()
            loss = loss + torch.nn.functional.cross_entropy(logits, batch["kind"][wanted])
            self.live.optimizer.zero_grad()
            loss.backward()
            self.live.optimizer.step()

    def commit(self, update: int) -> tuple[Request, str]:
        """A checkpoint of the model as it is, and the request to examine it."""
        slot = Slot(experiment=NAME, run="main", update=update, attempt=1)
        holds = {"model.safetensors": "model", "optimizer.safetensors": "optimizer", "state.json": "state"}
        files = [
            write_file(self.store, slot, name, data, holds=holds.get(name, "rng"), rank=0)
            for name, data in hold(self.live, rank=0).items()
        ]
        manifest = Manifest(
            update=update,
            samples=update,
            world_size=1,
            files=tuple(files),
            history_update=update,
            contract=ZERO,
            data=ZERO,
            code=self.suite.code,
        )
        key, digest = write_manifest(self.store, slot, manifest)
        asked = Request(
            experiment=NAME, run="main", update=update, checkpoint=digest, suite=self.suite.digest
        )
        return asked, key

    def bench(self, name: str = "bench") -> Bench:
        return Bench(self.store, NAME, self.suite, self.roster, self.folder / name)


def findings(receipt: Receipt) -> list[tuple[str, str, str | None]]:
    return [(finding.kind, finding.what, finding.stratum) for finding in receipt.findings]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# --- what it finds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
def test_a_clean_run_passes_from_update_0_on(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    job = Job(tmp_path, params={"data": seed})
    bench = job.bench()
    first = bench(*job.commit(0), None).receipt
    assert first.verdict == "passed" and set(first.unjudged) == {*FAIL, "error", "code.used"}
    assert first.units.scored == first.units.requested == len(job.roster.units)
    for update in (10, 20):
        job.train(150)
        found = bench(*job.commit(update), first).receipt
        assert found.verdict == "passed" and found.unjudged == (), found.findings
        assert found.reference == first.digest
    ratio = found.metrics["ratio"].value
    print(f"ratio {first.metrics['ratio'].value} -> {ratio}, rise {found.fields['code'].rise_permuted}")
    assert ratio is not None and ratio < 0.3 < 0.6 < (first.metrics["ratio"].value or 0.0)
    assert set(found.metrics) >= {
        *(
            "ratio_median",
            "no_skill_share",
            "ratio.kind",
            "loss",
            "error",
            "accuracy",
            "recall.0",
            "support.2",
        ),
        *("calibration_error", "brier_skill", "bits_per_byte", "effective_rank", "embedding_spread"),
        *("nonfinite", "failed", "missing", "worst.ratio", "worst.accuracy", "worst.bits_per_byte"),
    }
    assert found.metrics["bits_per_byte"].no_skill == pytest.approx(1.0)  # two letters, equally often
    assert found.fields["code"].rise_permuted > 0.05 and found.fields["code"].rise_median > 0.05
    assert len(found.fields["scale"].dimension_spreads) == 4 and found.fields["scale"].space == "log"


def pinned(live: Live) -> None:
    live.model.scale.weight.zero_()


def dead(live: Live) -> None:
    live.model.code.weight[2].zero_()


def nan_stratum(live: Live) -> None:
    live.model.hurt[1] = float("nan")


PLANTED: dict[str, tuple[Callable[[Live], None], set[tuple[str, str, str | None]]]] = {
    # the bias differs between dimensions: pooled the field is wide, and each dimension is the same for every unit
    "pinned latent": (pinned, {("dead-dimension", "scale", None)}),
    "dead dimension": (dead, {("dead-dimension", "code", None)}),
    "NaN stratum": (nan_stratum, {("nonfinite", "nonfinite", None), ("stratum-lost", "scored", "b")}),
}


@pytest.mark.parametrize("fault", PLANTED)
@torch.no_grad()
def test_a_planted_fault_is_found_in_real_weights(fault: str, job: Job) -> None:
    plant, wanted = PLANTED[fault]
    bench = job.bench()
    first = bench(*job.commit(0), None).receipt
    with torch.enable_grad():
        job.train(200)
    assert bench(*job.commit(10), first).receipt.verdict == "passed"
    plant(job.live)
    found = bench(*job.commit(20), first).receipt
    assert found.verdict == "failed" and wanted <= set(findings(found)), found.findings
    if fault == "pinned latent":  # GOLD-28: the reconstruction is as good as it was
        assert set(findings(found)) == wanted and found.metrics["ratio"].value < 0.2
        job.live.model.scale.bias.zero_()
        again = bench(*job.commit(30), first).receipt
        assert ("collapsed", "scale", None) in findings(again)  # and pooled, it is constant
    if fault == "dead dimension":
        (named,) = [each.found for each in found.findings if each.kind == "dead-dimension"]
        assert named == "1 of 4 dimensions: 2"
    if fault == "NaN stratum":
        assert set(findings(found)) == wanted
        lost = {unit.id for unit in job.roster.units if unit.stratum == "b"}
        assert set(found.failed_units) == lost and found.strata["b"].scored == 0
        assert found.metrics["ratio"].strata["b"] is None and found.metrics["ratio"].value is not None
        assert found.metrics["nonfinite"].strata["b"] == 1.0


@torch.no_grad()
def test_weights_that_are_not_finite_fail_every_unit_and_score_none(job: Job) -> None:
    bench = job.bench()
    first = bench(*job.commit(0), None).receipt
    for parameter in job.live.model.parameters():
        parameter.fill_(float("nan"))
    found = bench(*job.commit(10), first)
    assert found.receipt.units.failed == found.receipt.units.requested
    lost = {("stratum-lost", "scored", name) for name in "abc"}
    undefined = {("undefined", name, None) for name in (*FAIL, "error", "code")}
    assert set(findings(found.receipt)) == {("nonfinite", "nonfinite", None), *lost, *undefined}
    assert found.receipt.fields["code"].finite == 0.0 and found.receipt.fields["code"].pooled.median is None
    assert found.pictures["panels.png"] != b""


def test_a_model_that_answers_for_other_units_is_found_at_its_first_checkpoint(job: Job) -> None:
    bench = job.bench()
    first = bench(*job.commit(0), None).receipt
    job.train(150, strangers=True)
    found = bench(*job.commit(10), first).receipt
    assert ("threshold", "ratio", None) in findings(found) and ("threshold", "accuracy", None) in findings(
        found
    )
    assert (found.metrics["ratio"].value or 0.0) > 0.8 and (
        found.metrics["no_skill_share"].value or 0.0
    ) > 0.3


# --- the same bytes -----------------------------------------------------------------------------------------

ELSEWHERE = """
import sys
from pathlib import Path
from raykit.records import Receipt, Request
from raykit.store import open_store
from raykit.store.qc import Examinations
from raykit.work.qc_unit import Bench
root, suite, key, folder, request, reference = sys.argv[1:]
store = open_store(root)
asked = Examinations(store, "probe")
suite = asked.suite(suite)
bench = Bench(store, "probe", suite, asked.roster(suite.roster), Path(folder))
first = Receipt.from_bytes(Path(reference).read_bytes(), "reference")
found = bench(Request.from_bytes(request.encode(), "request"), key, first)
Path(folder, "receipt").write_bytes(found.receipt.to_bytes())
Path(folder, "panels").write_bytes(found.pictures["panels.png"])
"""


def same(one: Examined, other: Examined) -> bool:
    return one.receipt.to_bytes() == other.receipt.to_bytes() and dict(one.pictures) == dict(other.pictures)


def test_a_receipt_has_the_same_bytes_whenever_and_wherever_it_is_made(job: Job, tmp_path: Path) -> None:
    from raykit.store.qc import Examinations

    bench = job.bench()
    start = job.commit(0)
    first = bench(*start, None)
    job.train(60)
    asked, key = job.commit(10)
    found = bench(asked, key, first.receipt)
    assert Receipt.from_bytes(found.receipt.to_bytes(), "receipt") == found.receipt
    assert not same(found, first)
    torch.randn(1000), np.random.rand(10)  # what was drawn before does not matter
    assert same(bench(*start, None), first) and same(bench(asked, key, first.receipt), found)
    assert same(job.bench("another")(asked, key, first.receipt), found)
    # another process, with another hash seed and more threads to begin with
    Examinations(job.store, NAME).freeze(job.suite, job.roster)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "reference").write_bytes(first.receipt.to_bytes())
    arguments = [str(tmp_path / "store"), job.suite.digest, key, str(elsewhere)]
    arguments += [asked.to_bytes().decode(), str(tmp_path / "reference")]
    env = {**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", ELSEWHERE, *arguments], check=True, env=env)
    assert (elsewhere / "receipt").read_bytes() == found.receipt.to_bytes()
    assert (elsewhere / "panels").read_bytes() == found.pictures["panels.png"]


def test_a_unit_scores_the_same_whoever_else_is_there(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, key = job.commit(0)
    found = job.bench()(asked, key, None).receipt
    monkeypatch.setenv("PROBE_DATA", "reversed")  # other places in the data, the same ids
    assert job.bench("reversed")(asked, key, None).receipt.to_bytes() == found.to_bytes()
    monkeypatch.delenv("PROBE_DATA")
    fewer = Job(tmp_path / "fewer", quota=3)
    asked, key = fewer.commit(0)
    some = fewer.bench()(asked, key, None).receipt
    alone = per_unit(fewer, asked, key)
    errors = {unit.id: each for unit, each in zip(fewer.roster.units, alone, strict=True)}
    for stratum, value in some.metrics["error"].strata.items():
        members = [errors[unit.id] for unit in fewer.roster.units if unit.stratum == stratum]
        assert value == pytest.approx(sum(members) / len(members), rel=1e-12)


def per_unit(job: Job, asked: Request, key: str) -> list[float]:
    """The error of each unit, from a roster of that unit alone."""
    values = []
    for number, unit in enumerate(job.roster.units):
        alone = job.roster.model_copy(
            update={"units": (unit,), "shown": (unit.id,), "quotas": {unit.stratum: 1}}
        )
        suite = job.suite.model_copy(update={"roster": alone.digest})
        bench = Bench(job.store, NAME, suite, alone, job.folder / f"alone-{number}")
        receipt = bench(asked.model_copy(update={"suite": suite.digest}), key, None).receipt
        value = receipt.metrics["error"].value
        assert value is not None
        values.append(value)
    return values


def test_what_a_receipt_is_bound_to(job: Job) -> None:
    asked, key = job.commit(0)
    found = job.bench()(asked, key, None)
    receipt = found.receipt
    assert (receipt.request, receipt.checkpoint, receipt.suite) == (
        asked.id,
        asked.checkpoint,
        job.suite.digest,
    )
    assert (receipt.roster, receipt.code, receipt.revision) == (job.roster.digest, job.suite.code, 1)
    assert receipt.facts["threads"] == "1" and receipt.facts["torch"] == torch.__version__
    assert {"device_model", "cpu_capability", "numpy", "pillow"} <= receipt.facts.keys()
    assert found.peak_bytes > 10**7
    for name, score in receipt.metrics.items():
        assert all(type(each) is float for each in (score.value, *score.strata.values())), name


def test_a_recipe_keeps_nothing_of_the_checkpoint_before(tmp_path: Path) -> None:
    """State of its own comes from the checkpoint, and what it notes while it is asked goes."""
    code = (
        PROBE
        + """

class Variant(Probe):
    def evaluate(self, model, batch):
        if not hasattr(self, "noted"):
            self.noted = self.updates
        return {"error": torch.tensor([float(self.updates)]), "noted": torch.tensor([float(self.noted)])}
"""
    )
    job = Job(tmp_path, code=code)
    bench = job.bench()
    start = job.commit(0)
    first = bench(*start, None).receipt
    job.recipe.updates = 40
    later = bench(*job.commit(10), first).receipt
    assert (first.metrics["error"].value, later.metrics["error"].value) == (0.0, 40.0)
    assert (first.metrics["noted"].value, later.metrics["noted"].value) == (0.0, 40.0)
    assert bench(*start, None).receipt.to_bytes() == first.to_bytes()


# --- data that are not what they were -----------------------------------------------------------------------


def test_a_unit_that_is_gone_is_missing_and_one_that_cannot_be_read_has_failed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers GOLD-31: a failed example is never scored zero and never dropped
    asked, key = job.commit(0)
    whole = job.bench()(asked, key, None).receipt
    assert "p07" in {unit.id for unit in job.roster.units}
    for how, tally, what in (
        ("gone", {"failed": 0, "missing": 1}, ("missing", "missing", None)),
        ("unreadable", {"failed": 1, "missing": 0}, ("nonfinite", "failed", None)),
        (
            "damaged",
            {"failed": 1, "missing": 0},
            ("nonfinite", "failed", None),
        ),  # so what it is cannot be told
    ):
        monkeypatch.setenv("PROBE_DATA", how)
        found = job.bench(how)(asked, key, None).receipt
        assert found.units.requested == whole.units.requested == found.units.scored + 1
        assert {name: getattr(found.units, name) for name in tally} == tally
        assert findings(found) == [what] and found.failed_units == ("p07",)
        assert found.metrics["error"].value != whole.metrics["error"].value


def test_a_machine_that_does_not_work_is_no_failure_of_the_example(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_DATA", "offline")
    with pytest.raises(ConnectionResetError):
        job.bench()(*job.commit(0), None)


def test_units_with_another_content_are_refused_by_name(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_DATA", "changed")
    with pytest.raises(GateError) as refused:
        job.bench()
    assert refused.value.field == "dataset.content"
    assert re.search(r"^[12] of \d+ units of the roster .*: p0[59]", refused.value.message)
    monkeypatch.setenv("PROBE_DATA", "odd")  # nothing that has a digest
    with pytest.raises(GateError, match=r"^1 of .*: p07$"):
        job.bench("odd")


# --- bytes that are not what they were ----------------------------------------------------------------------


def test_other_bytes_under_the_same_name_are_never_examined(job: Job, tmp_path: Path) -> None:
    # covers QC-15, I1
    bench = job.bench()
    asked, key = job.commit(0)
    with pytest.raises(CorruptError, match="is not the checkpoint that was asked for"):
        bench(asked.model_copy(update={"checkpoint": "1" * 64}), key, None)
    with pytest.raises(CorruptError, match="is missing"):
        bench(asked, key.replace("manifest", "other"), None)
    path = tmp_path / "store" / key.replace("manifest.json", "model.safetensors")
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"model\.safetensors does not match its sha256"):
        bench(asked, key, None)


def test_nothing_is_judged_without_what_it_is_held_against(job: Job) -> None:
    bench = job.bench()
    start, later = job.commit(0), job.commit(10)
    first = bench(*start, None).receipt
    for (request, key), reference, field_ in (
        (later, None, "qc.reference"),
        (start, first, "qc.reference"),
        (later, first.model_copy(update={"suite": ZERO}), "qc.reference"),
        ((later[0].model_copy(update={"suite": ZERO}), later[1]), first, "qc.suite"),
    ):
        with pytest.raises(GateError) as refused:
            bench(request, key, reference)
        assert refused.value.field == field_
    other = job.roster.model_copy(update={"role": "report_only"})
    with pytest.raises(GateError, match="this is another roster"):
        Bench(job.store, NAME, job.suite, other, job.folder / "other")


# --- what a recipe may not say ------------------------------------------------------------------------------

WRONG = {
    "evaluate": ('return {"error": torch.zeros(2)}', "recipe.evaluate"),
    "evaluate, a name of raykit's": ('return {"no_skill_share": torch.zeros(1)}', "recipe.evaluate"),
    "evaluate, what classify gives": ('return {"accuracy": torch.zeros(1)}', "recipe.evaluate"),
    "evaluate, nothing": ("return None", "recipe.evaluate"),
    "evaluate, no tensor": ('return {"error": None}', "recipe.evaluate"),
    "evaluate, one for the batch": ('return {"error": torch.tensor(0.5)}', "recipe.evaluate"),
    "evaluate, complex": ('return {"error": torch.ones(1, dtype=torch.cfloat)}', "recipe.evaluate"),
    "losses, none": ("return {}", "recipe.losses"),
    "losses, below zero": (
        'return {"recon": LossTerm(value=torch.tensor(-0.5), target=batch["x"])}',
        "recipe.losses.recon",
    ),
    "losses, a target that overflows": (
        'return {"recon": LossTerm(value=torch.tensor(0.5), target=1e30 * torch.ones(3))}',
        "LossTerm.target",
    ),
    "losses": ('return {"recon": torch.zeros(())}', "recipe.losses"),
    "losses_given": ("return [1]", "recipe.losses_given"),
    "fields": ("return {}", "qc.fields.code"),
    "fields, another shape": (
        'return {"code": Field(value=torch.zeros(3, 4)), "scale": Field(value=torch.ones(1))}',
        "recipe.fields",
    ),
    "fields, complex": (
        'return {"code": Field(value=torch.ones(1, 4, dtype=torch.cfloat)), "scale": Field(value=torch.ones(1))}',
        "recipe.fields",
    ),
    "embed": ("return torch.zeros(4)", "recipe.embed"),
    "embed, complex": ("return torch.ones(1, 4, dtype=torch.cfloat)", "recipe.embed"),
    "classify, whole numbers": (
        'return Classes(probabilities=torch.tensor([[1, 0, 0]]), label=batch["kind"])',
        "recipe.classify",
    ),
    "text, below zero": ('return Text(nats=-torch.ones(1), content=[b"ab"])', "recipe.text"),
    "classify": ("return torch.zeros(1, 3)", "recipe.classify"),
    "classify, logits": (
        'return Classes(probabilities=torch.tensor([[3.0, -1.0, 2.0]]), label=batch["kind"])',
        "recipe.classify",
    ),
    "classify, two examples": (
        "return Classes(probabilities=torch.full((2, 2), 0.5), label=torch.zeros(2).long())",
        "recipe.classify",
    ),
    "text": ("return Text(nats=torch.zeros(1), content=[1])", "recipe.text"),
    "text, none": ("return Text(nats=torch.zeros(0), content=[])", "recipe.text"),
    "panels": ('return {"input": batch["x"]}', "recipe.panels"),
    "panels, two examples": ('return {"input": Image(value=torch.zeros(2, 1, 8, 8))}', "recipe.panels"),
    "panels, other names": (
        'return {str(int(batch["kind"][0])): Image(value=torch.zeros(2, 2))}',
        "recipe.panels",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_shape_is_refused_by_the_name_of_the_method(case: str, tmp_path: Path) -> None:
    body, field_ = WRONG[case]
    method = case.partition(",")[0]
    arguments = "self, model, batch, fields" if method == "losses_given" else "self, model, batch"
    code = f"{PROBE}\n\nclass Variant(Probe):\n    def {method}({arguments}):\n        {body}\n"
    if method == "losses_given":  # which losses() of this recipe calls as well
        code += "\n    def losses(self, model, batch):\n        return Probe().losses(model, batch)\n"
    job = Job(tmp_path, code=code, quota=2)
    with pytest.raises(GateError) as refused:
        job.bench()(*job.commit(0), None)
    assert refused.value.field == field_


def test_what_a_recipe_does_not_offer_is_not_reported(tmp_path: Path) -> None:
    code = (
        PROBE
        + """

class Variant(Probe):
    evaluate = embed = classify = text = panels = losses_given = fields = None

    def losses(self, model, batch):
        return Probe.losses_given(self, model, batch, {})
"""
    )
    job = Job(tmp_path, code=code, known={"fields": {}, "fail": {"ratio": "> 2"}, "metrics": ()})
    found = job.bench()(*job.commit(0), None)
    assert found.pictures == {} and found.receipt.artifacts == () and found.receipt.fields == {}
    plain = {"ratio", "ratio.recon", "ratio.kind", "ratio_median", "no_skill_share", "loss"}
    plain |= {"nonfinite", "failed", "missing"}
    assert set(found.receipt.metrics) == plain | {f"worst.{name}" for name in plain}


def test_mixed_precision_is_that_of_the_suite(tmp_path: Path) -> None:
    job = Job(tmp_path, known={"autocast": "bfloat16"})
    asked = job.commit(0)
    mixed = job.bench()(*asked, None).receipt
    assert job.bench("again")(*asked, None).receipt.to_bytes() == mixed.to_bytes()
    whole = Job(tmp_path / "whole")
    exact = whole.bench()(*whole.commit(0), None).receipt
    one, other = mixed.metrics["ratio"].value, exact.metrics["ratio"].value
    assert one != other and one == pytest.approx(other, rel=0.05)


# --- pictures -----------------------------------------------------------------------------------------------


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Pillow.open(io.BytesIO(data)))


def test_pictures_keep_their_aspect_and_full_extent() -> None:
    # covers QC-04
    wide = np.zeros((2, 12))
    wide[0, 0], wide[1, 11] = 1.0, 1.0  # its corners
    tall = np.ones((100, 3, 3)) * np.array([1.0, 0.0, 0.5])
    found = pixels(
        sheet([[Picture(values=wide, low=0.0, high=1.0), Picture(values=tall, low=0.0, high=1.0)]])
    )
    times = SEEN_PX // 12
    assert found.shape == (100 + 2 * GAP_PX, 12 * times + 3 + 3 * GAP_PX, 3)
    drawn = found[GAP_PX : GAP_PX + 2 * times, GAP_PX : GAP_PX + 12 * times, 0]
    assert np.array_equal(drawn, np.kron(wide * 255, np.ones((times, times))).astype(np.uint8))
    colours = found[GAP_PX : GAP_PX + 100, 2 * GAP_PX + 12 * times : -GAP_PX]
    assert colours.shape == (100, 3, 3) and (colours == [255, 0, 128]).all()


def test_a_large_picture_is_averaged_down_and_a_value_that_is_not_finite_stands_out() -> None:
    large = np.zeros((1024, 2048))
    large[:, 1024:] = 2.0
    found = pixels(sheet([[Picture(values=large, low=0.0, high=2.0)]]))
    assert found.shape == (256 + 2 * GAP_PX, 512 + 2 * GAP_PX, 3)
    assert (found[GAP_PX:-GAP_PX, GAP_PX : GAP_PX + 256] == 0).all()
    assert (found[GAP_PX:-GAP_PX, GAP_PX + 256 : -GAP_PX] == 255).all()
    broken = np.zeros((1, 2))
    broken[0, 1] = np.nan
    found = pixels(sheet([[Picture(values=broken, low=0.0, high=1.0)]]))
    assert (found[GAP_PX, -GAP_PX - 1] == [255, 0, 255]).all() and (found[GAP_PX, GAP_PX] == 0).all()


def test_however_many_units_are_shown_the_sheet_stays_bounded() -> None:
    rows = [[Picture(values=np.ones((60, 60)), low=0.0, high=1.0), None] for _ in range(700)]
    found = pixels(sheet(rows))
    assert found.shape[0] <= 8192 and found.shape[1] < 100


def test_a_unit_without_a_picture_is_crossed_out_in_its_row(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, key = job.commit(0)
    drawn = job.bench()(asked, key, None).pictures["panels.png"]
    whole = pixels(drawn)
    with Pillow.open(io.BytesIO(drawn)) as opened:
        assert json.loads(opened.info["panels"]) == ["input", "drawn"], "what they are called"
    gone = job.roster.shown[1]
    monkeypatch.setattr(
        "raykit.work.qc_places.names_of", lambda *_: [n if n != gone else "x" for n in job.data.ids]
    )
    found = pixels(job.bench("gone")(asked, key, None).pictures["panels.png"])
    assert found.shape[1] == whole.shape[1]
    top = GAP_PX + 32 + GAP_PX
    assert np.array_equal(found[: GAP_PX + 32], whole[: GAP_PX + 32])
    assert (found[top, GAP_PX] == found[top + 47, GAP_PX + 47]).all()
    assert not (found[top, GAP_PX] == found[top + 1, GAP_PX]).all()


# --- the bundled job ----------------------------------------------------------------------------------------


def test_two_hundred_digits_are_examined_in_three_seconds_on_one_core(tmp_path: Path) -> None:
    data = (DIGITS / "plan.toml").read_bytes()
    prepared = prepare(load_plan(data, where="plan.toml"), data, DIGITS)
    assert prepared.suite is not None and prepared.roster is not None
    rules = {**prepared.suite.fields, "code": FIELDS["code"]}
    suite = prepared.suite.model_copy(update={"fields": rules})
    store = open_store(str(tmp_path / "store"))
    freeze(store, prepared, Git(revision=None, dirty=None, diff=None))
    bench = Bench(store, suite.experiment, suite, prepared.roster, tmp_path / "bench")
    recipe: Any = prepared.recipe
    params = check_params(recipe, dict(suite.params))
    model = make_model(recipe, params, seed=suite.seed, device=torch.device("cpu"), dtype=suite.dtype)
    live = Live(model=model, optimizer=recipe.optimizer(model, params), recipe=recipe)
    slot = Slot(experiment=suite.experiment, run="main", update=0, attempt=1)
    file = write_file(
        store, slot, "model.safetensors", hold(live, rank=0)["model.safetensors"], holds="model", rank=0
    )
    manifest = Manifest(
        update=0,
        samples=0,
        world_size=1,
        files=(file,),
        history_update=0,
        contract=ZERO,
        data=ZERO,
        code=suite.code,
    )
    key, digest = write_manifest(store, slot, manifest)
    request = Request(
        experiment=suite.experiment, run="main", update=0, checkpoint=digest, suite=suite.digest
    )
    start = time.process_time()
    found = bench(request, key, None)
    took_s = time.process_time() - start
    print(f"{took_s:.2f} s of one core for {found.receipt.units.scored} units")
    assert found.receipt.units.scored == 200 and found.receipt.verdict == "passed"
    assert took_s < 30.0
    assert pixels(found.pictures["panels.png"]).shape == (10 * 52 + 4, 2 * 52 + 4, 3)


# --- the trials of a search ---------------------------------------------------------------------------------


WIDER = (
    PROBE
    + """

class Variant(Probe):
    @dataclass
    class Params(Probe.Params):
        width: int = 8

    def model(self, params):
        drawn = super().model(params)
        drawn.beside = torch.nn.Linear(params.width, params.width)
        return drawn
"""
)


def of_trial(job: Job, run: str, setting: Setting) -> None:
    """The record that says what a trial has instead of what its plan says."""
    record = RunRecord(
        experiment=NAME,
        run=run,
        plan=ZERO,
        contract=ZERO,
        code=job.suite.code,
        environment=ZERO,
        data=ZERO,
        setting=setting,
    )
    job.store.put_new(layout.run_record(NAME, run), record.to_bytes())


def test_each_trial_is_examined_with_the_model_of_its_own_setting(tmp_path: Path) -> None:
    # covers TUNE-12, I8
    narrow, wide = (Job(tmp_path / str(n), code=WIDER, params={"width": n}) for n in (8, 12))
    asked = {}
    for run, job in (("trial-001", narrow), ("trial-002", wide)):
        of_trial(narrow, run, Setting(params={"width": job.params["width"]}, seed=job.suite.seed))
        moved, key = job.commit(0)
        request = moved.model_copy(update={"run": run, "suite": narrow.suite.digest})
        folder = key.rpartition("/")[0]
        for stored in job.store.list(folder):  # as if both were of one search
            target = stored.key.replace("/main/", f"/{run}/")
            narrow.store.put_new(target, job.store.get(stored.key))
        asked[run] = (request, key.replace("/main/", f"/{run}/"))
    bench = TrialsBench(narrow.store, NAME, narrow.suite, narrow.roster, tmp_path / "bench")
    found = {run: bench(*question, None) for run, question in asked.items()}
    again = {run: bench(*question, None) for run, question in asked.items()}  # one is closed for the other
    assert all(same(found[run], again[run]) for run in asked)
    # what it says is what a bench for that setting alone says
    alone = Bench(narrow.store, NAME, narrow.suite, narrow.roster, tmp_path / "alone")
    assert same(found["trial-001"], alone(*asked["trial-001"], None))
    with pytest.raises(CorruptError):
        alone(*asked["trial-002"], None)
    receipt = found["trial-002"].receipt
    assert (receipt.suite, receipt.config, receipt.run) == (narrow.suite.digest, ZERO, "trial-002")


def test_a_trial_without_a_record_of_its_setting_is_never_examined_as_the_plan_has_it(job: Job) -> None:
    bench = TrialsBench(job.store, NAME, job.suite, job.roster, job.folder / "bench")
    request, key = job.commit(0)
    with pytest.raises(CorruptError, match="nothing says which setting"):
        bench(request.model_copy(update={"run": "trial-003"}), key, None)


def test_a_trial_whose_params_the_recipe_refuses_says_so(job: Job) -> None:
    of_trial(job, "trial-001", Setting(params={"nonsense": 1}, seed=1))
    bench = TrialsBench(job.store, NAME, job.suite, job.roster, job.folder / "bench")
    request, key = job.commit(0)
    with pytest.raises(PlanError, match="params do not fit"):
        bench(request.model_copy(update={"run": "trial-001"}), key, None)
