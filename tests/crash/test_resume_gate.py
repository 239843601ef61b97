"""What a recipe forgets to save is found before the run, and named.

covers CONTRACT-07 CONTRACT-12 CKPT-10, I5
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.records import Commit, GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A recipe that differs from the tiny one, and what the gate says of it."""

    code: str
    finds: str


NOISE = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        noise = int.from_bytes(os.urandom(4), "little") / 2**32
        fit = terms["fit"]
        return {**terms, "fit": replace(fit, value=fit.value * (1 + 0.1 * noise))}
"""

FORGETFUL = {
    "a counter of the model": Variant(
        code="""
class Counting(Net):
    def __init__(self, width, dropout):
        super().__init__(width, dropout)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return super().forward(x) * (1 + 0.01 * self.calls)

class Variant(Tiny):
    def model(self, params):
        self.params = params
        return Counting(params.width, params.dropout)
""",
        finds="undisturbed runs agree, the resumed one differs in model.safetensors, optimizer.safetensors; "
        "training changes model.calls, which a resume does not bring back",
    ),
    "a buffer that is not persistent": Variant(
        code="""
class Averaging(Net):
    def __init__(self, width, dropout):
        super().__init__(width, dropout)
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return super().forward(x - self.mean)

class Variant(Tiny):
    def model(self, params):
        self.params = params
        return Averaging(params.width, params.dropout)
""",
        finds="training changes model.mean, which a resume does not bring back",
    ),
    "a schedule of the recipe": Variant(
        code="""
class Variant(Tiny):
    beta = 0.0

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.beta = min(1.0, self.beta + 0.1 * model.training)
        return {**terms, "decay": replace(terms["decay"], weight=self.beta)}
""",
        finds="training changes recipe.beta, which a resume does not bring back",
    ),
    "a generator of the model's own": Variant(
        code="""
class Variant(Tiny):
    def model(self, params):
        made = super().model(params)
        made.noise = torch.Generator().manual_seed(5)
        return made

    def losses(self, model, batch):
        x, y = batch
        if model.training:  # looking draws from no generator of the model's: that is void
            x = x + 0.1 * torch.randn(x.shape, generator=model.noise)
        return super().losses(model, (x, y))
""",
        finds="training changes model.noise, which a resume does not bring back",
    ),
    "a generator of the dataset's own": Variant(
        code="""
class Drawing(Points):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(5)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.01 * float(self.rng.normal()), y

class Variant(Tiny):
    def dataset(self, source, params):
        return Drawing()
""",
        finds="asked again for the same rows, the dataset gave others",
    ),
    "a clock of the dataset's own": Variant(
        code="""
class Timed(Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + time.perf_counter() % 1.0, y

class Variant(Tiny):
    def dataset(self, source, params):
        return Timed()
""",
        finds="asked again for the same rows, the dataset gave others",
    ),
    "an optimizer that keeps its momentum to itself": Variant(
        code="""
class Secret(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                kept = getattr(p, "kept", torch.zeros_like(p))
                p.kept = 0.9 * kept + p.grad
                p.data -= group["lr"] * p.kept

class Variant(Tiny):
    def optimizer(self, model, params):
        return Secret(model.parameters(), lr=0.01)
""",
        finds="undisturbed runs agree, the resumed one differs in model.safetensors",
    ),
}


def launches(nursery: Nursery, folder: Path, code: str, **edits: str) -> Launches:
    """A run of a variant of the tiny recipe."""
    plan = write_job(folder / "job", {"updates": "10", **edits}, variant=code)
    return Launches(nursery, freeze_job(folder / "store", plan))


def gate_of(run: Launches, name: str = "resume") -> GateResult:
    return state_of(run.task).gates[name]


CASES = [(name, "exact") for name in FORGETFUL] + [
    (name, "state-exact") for name in ("a counter of the model", "a generator of the dataset's own")
]


@pytest.mark.parametrize(("name", "needed"), CASES)
def test_what_is_not_saved_is_named(name: str, needed: str, nursery: Nursery, tmp_path: Path) -> None:
    """Forgetting is not noise: it is refused under `state-exact` as well, where a run may merely not repeat."""
    variant = FORGETFUL[name]
    run = launches(nursery, tmp_path, variant.code, resume=f'"{needed}"')
    ((code, out),) = run.run()
    assert code == 3
    assert "gate: the resume gate failed: inexact: " in out
    assert variant.finds in out
    state = state_of(run.task)
    assert not gate_of(run).passed
    assert not state.commits
    assert state.rows == 0
    assert state.ended is not None
    assert state.ended.reason == "failed"
    assert variant.finds in (state.ended.detail or "")


def test_a_state_that_is_not_put_back_is_named(nursery: Nursery, tmp_path: Path) -> None:
    variant = """
class Variant(Tiny):
    def load_state_dict(self, state):
        pass
"""
    run = launches(nursery, tmp_path, variant)
    ((code, out),) = run.run()
    assert code == 3
    assert "inexact: what was restored is not what was saved: state.json; training changes recipe.seen" in out


def test_a_model_with_state_that_is_no_tensor_is_refused_by_name(nursery: Nursery, tmp_path: Path) -> None:
    code = """
class Extra(Net):
    def get_extra_state(self):
        return {"calls": 3}

    def set_extra_state(self, state):
        pass

class Variant(Tiny):
    def model(self, params):
        self.params = params
        return Extra(params.width, params.dropout)
"""
    run = launches(nursery, tmp_path, code)
    assert run.run() == [(3, "gate: _extra_state in the model's state_dict is a dict, not a tensor\n")]


def test_noise_that_does_not_repeat_is_state_exact_and_refused_under_exact(
    nursery: Nursery, tmp_path: Path
) -> None:
    run = launches(nursery, tmp_path, NOISE)
    ((code, out),) = run.run()
    assert code == 3
    assert "state-exact: two undisturbed runs differ here too, in model.safetensors" in out
    assert not gate_of(run).passed


def test_noise_that_does_not_repeat_is_let_in_where_the_plan_says_so(
    nursery: Nursery, tmp_path: Path
) -> None:
    run = launches(nursery, tmp_path, NOISE, resume='"state-exact"')
    ((code, out),) = run.run()
    assert code == 0, out
    gate = gate_of(run)
    assert gate.passed
    assert gate.found.startswith("state-exact: ")


def test_a_recipe_that_saves_its_state_is_exact(nursery: Nursery, tmp_path: Path) -> None:
    """The schedule from above, saved: killed after an update, the run is what it would have been."""
    saved = (
        FORGETFUL["a schedule of the recipe"].code
        + """
    def state_dict(self):
        return {**super().state_dict(), "beta": self.beta}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.beta = state["beta"]
"""
    )
    undisturbed = launches(nursery, tmp_path / "a", saved, checkpoint_every="2")
    assert undisturbed.run()[0][0] == 0
    assert gate_of(undisturbed).found.startswith("exact: ")
    killed = launches(nursery, tmp_path / "b", saved, checkpoint_every="2")
    killed.killed({"put": '"event":"commit"', "when": "after", "nth": 3})
    assert killed.run()[0][0] == 0
    assert final_digest(killed.task) == final_digest(undisturbed.task)
    assert rows_bits(killed.task) == rows_bits(undisturbed.task)


# --- stored precision ---------------------------------------------------------------------------------------

HALF = """
class Half(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                momentum = state.get("momentum", torch.zeros_like(p, dtype=torch.bfloat16))
                state["momentum"] = (0.9 * momentum + p.grad).to(torch.bfloat16)
                p -= group["lr"] * state["momentum"]

class Variant(Tiny):
    def optimizer(self, model, params):
        return Half(model.parameters())
"""


def test_moments_of_another_dtype_than_the_plan_says_are_refused(nursery: Nursery, tmp_path: Path) -> None:
    run = launches(nursery, tmp_path, HALF)
    assert run.run() == [(3, "gate: the optimizer's momentum is torch.bfloat16\n")]


def test_parameters_of_another_dtype_than_the_plan_says_are_refused(nursery: Nursery, tmp_path: Path) -> None:
    code = """
class Variant(Tiny):
    def optimizer(self, model, params):
        model.scale.data = model.scale.data.to(torch.float16)
        return super().optimizer(model, params)
"""
    run = launches(nursery, tmp_path, code)
    wanted = "the dtype of the parameters: requested float32, effective float16 (scale)"
    assert run.run() == [(3, f"gate: the dispatch gate failed: rank 0: {wanted}\n")]


def test_autocast_changes_no_stored_precision(nursery: Nursery, tmp_path: Path) -> None:
    run = launches(nursery, tmp_path, "class Variant(Tiny): pass\n", dtype='{ autocast = "bfloat16" }')
    assert run.run()[0][0] == 0
    assert stored_dtypes(run) == {"F32", "I64"}  # I64 counts the batches of BatchNorm


def test_moments_are_restored_in_their_own_dtype(nursery: Nursery, tmp_path: Path) -> None:
    """torch casts moments to the dtype of their parameters when it loads them; the stored bits have to survive that."""
    declared = {"dtype": '{ optimizer = "bfloat16" }', "checkpoint_every": "2"}
    undisturbed = launches(nursery, tmp_path / "a", HALF, **declared)
    assert undisturbed.run()[0][0] == 0, undisturbed.run()
    assert "BF16" in stored_dtypes(undisturbed)
    killed = launches(nursery, tmp_path / "b", HALF, **declared)
    killed.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    assert killed.run()[0][0] == 0
    assert final_digest(killed.task) == final_digest(undisturbed.task)


def stored_dtypes(run: Launches) -> set[str]:
    """The dtypes in the files of the last checkpoint."""
    import safetensors

    commit: Commit = state_of(run.task).commits[-1]
    folder = Path(run.task.root) / Path(commit.key).parent
    found: set[str] = set()
    for name in ("model.safetensors", "optimizer.safetensors"):
        with safetensors.safe_open(folder / name, "pt") as file:
            found |= {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - it is no mapping
    return found
