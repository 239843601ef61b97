"""Recipes that keep something to themselves, gated in this process by the very code that a launch runs.

covers FAULT-A04 FAULT-A05 FAULT-A06 FAULT-A07 FAULT-A08 FAULT-A12
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from plainrun import freeze_job, state_of, take, write_job

from raykit.errors import GateError
from raykit.reconcile import RunState
from raykit.records import Harmless
from raykit.store import open_store
from raykit.store.people import say_harmless
from raykit.train.directive import Directive
from raykit.train.gang import alone
from raykit.train.inputs import SAMPLED, Task
from raykit.train.worker import work

EDITS = {
    "updates": "4",
    "checkpoint_every": "2",
    "evaluate_every": "4",
    "curves": '{ every = 2, smooth = "ema 0.9" }',
}
BY_CALLS = """
class Variant(Tiny):
    calls = 0

    def losses(self, model, batch):
        self.calls += model.training
        terms = super().losses(model, batch)
        scale = 1.0 if self.calls <= 6 else 2.0
        return {**terms, "fit": replace(terms["fit"], value=terms["fit"].value * scale)}
"""


def frozen(folder: Path, code: str, **edits: str) -> Task:
    head = "import collections, copy, functools, io, itertools, logging, mmap, threading\n\n"
    return freeze_job(folder / "store", write_job(folder / "job", {**EDITS, **edits}, variant=head + code))


def train(task: Task) -> RunState:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        work(take(task), alone(), Directive())
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
    return state_of(task)


LOST = {
    "statistics of the first batch in a dict of the module (A04)": (
        """
STATS = {}

class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        STATS.setdefault("mean", x.mean(0))
        return super().losses(model, (x - STATS["mean"], y))
""",
        "training changes module recipe: STATS, which",
    ),
    "statistics of the first batch in a dict of __init__ (A04)": (
        """
class Variant(Tiny):
    def __init__(self):
        super().__init__()
        self.stats = {}

    def losses(self, model, batch):
        x, y = batch
        self.stats.setdefault("mean", x.mean(0))
        return super().losses(model, (x - self.stats["mean"], y))
""",
        "training changes recipe.stats, which",
    ),
    "a weight by calls, from update 7 on (A05)": (
        BY_CALLS,
        "order-exact: training changes recipe.calls, which",
    ),
    "an average of the weights that scores (A06)": (
        """
class Variant(Tiny):
    ema = None  # made with the first batch; one that is made with the model is refused before that (FAULT-B03)

    def losses(self, model, batch):
        if model.training:
            self.ema = self.ema or copy.deepcopy(model).requires_grad_(False)
            with torch.no_grad():
                for slow, fast in zip(self.ema.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
        return super().losses(model, batch)

    def evaluate(self, model, batch):
        return super().evaluate(model if self.ema is None else self.ema.train(model.training), batch)
""",
        "the resumed one differs in development error; training changes recipe.ema.",
    ),
    "slow weights in a list of the optimizer (A07)": (
        """
class Lookahead(torch.optim.AdamW):
    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
        self.slow = [p.detach().clone() for p in self.param_groups[0]["params"]]
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        self.steps += 1
        if self.steps % 6 == 0:
            for slow, p in zip(self.slow, self.param_groups[0]["params"]):
                p.copy_(slow.lerp_(p, 0.5))

class Variant(Tiny):
    def optimizer(self, model, params):
        return Lookahead(model.parameters(), params.lr)
""",
        "training changes optimizer.steps, which",
    ),
    "a list behind a hook of the optimizer (A07)": (
        """
class Variant(Tiny):
    def optimizer(self, model, params):
        made, steps = super().optimizer(model, params), []

        @torch.no_grad()
        def shrink(optimizer, args, kwargs):
            steps.append(1)
            if len(steps) > 6:
                model.scale.mul_(0.9)

        made.register_step_post_hook(shrink)
        return made
""",
        "training changes optimizer.hooks[*].shrink.(steps), which",
    ),
    "a scheduler that steps another now and then (A08)": (
        """
class Every:
    def __init__(self, inner):
        self.inner, self.calls = inner, 0

    def step(self):
        self.calls += 1
        if self.calls % 4 == 0:
            self.inner.step()

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)

class Variant(Tiny):
    def scheduler(self, optimizer, params):
        return Every(super().scheduler(optimizer, params))
""",
        "training changes scheduler.calls, which",
    ),
    "a dataset that counts its reads (A12)": (
        """
class Counting(Points):
    reads = 0

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        self.reads += 1
        return (x if self.reads < 250 else 2 * x), y

class Variant(Tiny):
    def dataset(self, source, params):
        return Counting()
""",
        "training changes dataset.reads, which",
    ),
    "a variable of the environment": (
        """
class Variant(Tiny):
    def losses(self, model, batch):
        n = int(os.environ.get("TINY_CALLS", "0")) + model.training
        os.environ["TINY_CALLS"] = str(n)
        terms = super().losses(model, batch)
        return {**terms, "fit": replace(terms["fit"], value=terms["fit"].value * (1.0 if n < 7 else 2.0))}
""",
        "training changes os.environ['TINY_CALLS'], which",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_what_a_resume_loses_is_refused_by_name_before_the_launch(name: str, tmp_path: Path) -> None:
    code, says = LOST[name]
    task = frozen(tmp_path, code)
    with pytest.raises(GateError) as refused:
        train(task)
    assert says in str(refused.value)
    for way in (
        "state_dict() and load_state_dict()",
        "run.harmless = [",
        "set run.resume to what was measured",
    ):
        assert way in (refused.value.remedy or "")
    gate = state_of(task).gates["resume"]
    assert (gate.passed, state_of(task).commits) == (False, ())
    assert gate.exactness in ("order-exact", "inexact")


CLEAN = {
    "an lru_cache": """
@functools.lru_cache
def ramp(n):
    return torch.linspace(0.5, 1.0, n)

class Variant(Tiny):
    def losses(self, model, batch):
        return super().losses(model, (batch[0] * ramp(4), batch[1]))
""",
    "a progress bar": """
import tqdm

class Variant(Tiny):
    def __init__(self):
        super().__init__()
        self.bar = tqdm.tqdm(total=4, file=io.StringIO())

    def losses(self, model, batch):
        self.bar.update(1)
        return super().losses(model, batch)
""",
    "counters for the log": """
class Meter:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def add(self, value):
        self.sum += value
        self.n += 1

    @property
    def mean(self):
        return self.sum / max(1, self.n)

class Variant(Tiny):
    calls = 0

    def __init__(self):
        super().__init__()
        self.meter, self.history = Meter(), []

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.calls += 1
        self.meter.add(terms["fit"].value.item())
        self.history.append(terms["fit"].value.item())
        if self.calls % 3 == 0:
            print(self.calls, self.meter.mean, sum(self.history[-3:]) / 3)
            self.meter = Meter()
        return terms
""",
    "remembered rows and a tokenizer": """
class Words:
    def __init__(self):
        self.number = {}

    def __call__(self, text):
        if text not in self.number:
            self.number[text] = len(text)
        return self.number[text]

class Remembered(Points):
    deterministic = True

    def __init__(self):
        super().__init__()
        self.rows, self.words = {}, Words()

    def __getitem__(self, index):
        if index not in self.rows:
            angle = 2 * np.pi * index / ROWS
            x = torch.tensor([np.cos(angle), np.sin(angle), float(self.words(str(index))), 1.0])
            self.rows[index] = x.float(), torch.tensor([np.sin(3 * angle), 0.5]).float()
        return self.rows[index]

class Variant(Tiny):
    def dataset(self, source, params):
        return Remembered()
""",
    "files, maps and locks": """
class Filed(Points):
    file = None

    def __init__(self):
        super().__init__()
        self.lock, self.map = threading.Lock(), mmap.mmap(-1, 16)
        self.array = np.memmap(__file__, dtype=np.uint8, mode="r")

    def __getitem__(self, index):
        if self.file is None:
            self.file = io.BytesIO(bytes(200))
        with self.lock:
            self.file.seek(index)
            self.file.read(1)
        return super().__getitem__(index)

class Variant(Tiny):
    def dataset(self, source, params):
        return Filed()
""",
    "a compiled model": """
class Variant(Tiny):
    def model(self, params):
        made = super().model(params)
        made.compile(backend="eager")
        return made
""",
    "angles and masks that are made when they are needed": """
MASKS = {}

class Angled(Net):
    longest, cos = 0, None

    def forward(self, x):
        rows = int(x.abs().sum() * 1e6) % 7 + 1
        if rows > self.longest:
            self.longest, self.cos = rows, torch.arange(rows).float().cos()
        if rows not in MASKS:
            MASKS[rows] = torch.ones(rows, rows).tril()
        return super().forward(x * self.cos[0] * MASKS[rows][0, 0])

class Variant(Tiny):
    def model(self, params):
        self.params = params
        return Angled(params.width, params.dropout)
""",
    "timers": """
class Variant(Tiny):
    def __init__(self):
        super().__init__()
        self.began, self.took = time.time(), collections.defaultdict(list)

    def losses(self, model, batch):
        start = time.perf_counter()
        terms = super().losses(model, batch)
        self.took["train" if model.training else "look"].append(time.perf_counter() - start)
        return terms
""",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CLEAN)
def test_what_nobody_has_to_save_is_never_accused(name: str, tmp_path: Path) -> None:
    state = train(frozen(tmp_path, CLEAN[name]))
    gate = state.gates["resume"]
    assert (gate.passed, gate.exactness) == (True, "exact"), gate.found
    assert gate.cleared is not None
    assert state.undeclared == ()
    assert state.completed


def test_state_is_harmless_where_the_plan_says_so(tmp_path: Path) -> None:
    state = train(frozen(tmp_path, BY_CALLS, harmless='["recipe.calls"]'))
    assert state.completed
    assert state.undeclared == ()


def test_state_is_harmless_where_a_person_says_so(tmp_path: Path) -> None:
    task = frozen(tmp_path, BY_CALLS)
    with pytest.raises(GateError, match="order-exact"):
        train(task)
    said = Harmless(names=("recipe.calls",), reason="for this test", person="mira")
    assert say_harmless(open_store(task.root), task.experiment, said, at=time.time()).new
    assert not say_harmless(open_store(task.root), task.experiment, said, at=time.time()).new
    state = train(task)
    assert (state.completed, state.gates["resume"].exactness) == (True, "exact")


def test_a_plan_may_ask_for_less(tmp_path: Path) -> None:
    state = train(frozen(tmp_path, BY_CALLS, resume='"order-exact"'))
    assert (state.completed, state.gates["resume"].exactness) == (True, "order-exact")


LATER = """
class Variant(Tiny):
    phase = 0

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen == 6:
            self.phase = 1
        return {**terms, "fit": replace(terms["fit"], value=terms["fit"].value * (1 + self.phase))}
"""


def test_state_that_changes_later_is_found_at_a_save_and_nothing_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raykit.train.hidden.watch.SHARE", 1e9)
    state = train(frozen(tmp_path, LATER, updates="10"))
    assert state.completed
    (event,) = state.undeclared
    assert (event.names, event.update, event.lowers) == (("recipe.phase",), 6, "order-exact")


def test_the_gates_leave_nothing_behind(tmp_path: Path) -> None:
    """What the run's own recipe, modules, dataset and process have seen when its first update begins."""
    code = """
SEEN = []

class Counting(Points):
    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)

class Variant(Tiny):
    calls = 0

    def dataset(self, source, params):
        self.data = Counting()
        return self.data

    def losses(self, model, batch):
        if model.training:
            SEEN.append(1)
            self.calls += 1
            os.environ["TINY_LEFT"] = str(len(SEEN))
            with open(os.environ["TINY_NOTES"], "a") as notes:
                print(len(SEEN), self.calls, self.data.reads, file=notes)
        return super().losses(model, batch)
"""
    os.environ["TINY_NOTES"] = str(tmp_path / "notes")
    try:
        train(frozen(tmp_path, code, harmless='["recipe", "dataset", "module recipe: SEEN", "os.environ"]'))
        assert os.environ.pop("TINY_LEFT") == "4"
    finally:
        del os.environ["TINY_NOTES"]
    notes = [tuple(map(int, line.split())) for line in (tmp_path / "notes").read_text().splitlines()]
    assert notes[-4:] == [(n, n, SAMPLED + 12 + 12 * n) for n in (1, 2, 3, 4)], (
        "a sample of rows at the start, 12 rows to evaluate, and 12 an update"
    )
    assert [seen for seen in notes[:-4] if seen[0] == 1] == [(1, 1, 12)] * 3, (
        "and so it was in each world of a gate"
    )


def test_a_world_that_leaks_into_the_run_is_refused(tmp_path: Path) -> None:
    """State of another package is nobody's own: what it does to the live objects is proved, not hoped."""
    code = """
class Variant(Tiny):
    def model(self, params):
        made = super().model(params)
        signal.made = getattr(signal, "made", []) + [made]
        return made

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        with torch.no_grad():
            for other in signal.made[:1]:
                if other is not model:
                    other.scale.add_(1.0)
        return terms
"""
    import signal

    try:
        with pytest.raises(GateError, match=r"the gates have changed model\.safetensors of the run"):
            train(frozen(tmp_path, code))
    finally:
        vars(signal).pop("made", None)
