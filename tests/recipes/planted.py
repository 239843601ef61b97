"""Recipes whose training depends on something that no checkpoint holds: one for every kind of hiding place.

Each is exact for the three updates that a launch gate trains, and another run after a resume. What hides is either
found before the launch and named, or by the first comparison of what was trained twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Found = Literal["before the launch", "by the first overlap or replay"]

BEFORE: Found = "before the launch"
LATER: Found = "by the first overlap or replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The code of a class `Variant`, after `from base import *` and `BEGIN`; when it is to be found, and as what.

    `second` is what the environment of the second attempt has.
    """

    code: str
    found: Found
    named: str = ""
    """What a refusal before the launch has to contain."""
    run: Mapping[str, str] = field(default_factory=dict)
    second: Mapping[str, str] = field(default_factory=dict)


RUN = {"updates": "20", "checkpoint_every": "5", "evaluate_every": "3"}
"""All of them: killed in update 14, gone on with from update 10."""

BEGIN = '''
class Counted(Regression):
    """Knows the update that it is in, and says so to the checkpoint."""

    update = 0

    def losses(self, model, batch):
        self.update += model.training
        return super().losses(model, batch)

    def state_dict(self):
        return {"update": self.update}

    def load_state_dict(self, state):
        self.update = state["update"]


def scaled(terms, by):
    return {name: replace(term, value=term.value * by) for name, term in terms.items()}


'''

PLANTED: dict[str, Planted] = {
    "a counter on the recipe": Planted(
        code="""
class Variant(Regression):
    calls = 0

    def losses(self, model, batch):
        self.calls += model.training
        return scaled(super().losses(model, batch), 1.0 if self.calls <= 3 else 1 + 0.05 * self.calls)
""",
        found=BEFORE,
        named="calls",
    ),
    "an iterator on the recipe": Planted(
        code="""
import itertools

class Variant(Regression):
    def __init__(self):
        self.ticks = itertools.count()

    def losses(self, model, batch):
        tick = next(self.ticks) if model.training else 0
        return scaled(super().losses(model, batch), 1.0 if tick <= 3 else 1 + 0.05 * tick)
""",
        found=BEFORE,
        named="ticks",
    ),
    "an average of the weights on the recipe, which scores": Planted(
        code="""
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        self.ema = {name: p.detach().clone() for name, p in made.named_parameters()}
        return made

    def losses(self, model, batch):
        if model.training:
            for name, p in model.named_parameters():
                self.ema[name].lerp_(p.detach(), 0.1)
        return super().losses(model, batch)

    def evaluate(self, model, batch):
        x, y = batch
        return {"error": (torch.func.functional_call(model, self.ema, (x,)) - y).square().mean(1)}
""",
        found=BEFORE,
        named="ema",
        run={"select": '"min development.error"'},
    ),
    "a network on the recipe, which scores": Planted(
        code="""
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        self.ema = copy.deepcopy(made).requires_grad_(False)
        return made

    def losses(self, model, batch):
        if model.training:
            with torch.no_grad():
                for slow, fast in zip(self.ema.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
        return super().losses(model, batch)

    def evaluate(self, model, batch):
        x, y = batch
        return {"error": (self.ema(x) - y).square().mean(1)}
""",
        found=BEFORE,
        named="ema",
        run={"select": '"min development.error"'},
    ),
    "a network on the recipe, which learns": Planted(
        code="""
class Variant(Regression):
    def model(self, params):
        self.critic = nn.Linear(2, 1)
        self.steps = torch.optim.SGD(self.critic.parameters(), lr=0.5)
        return Mlp()

    def losses(self, model, batch):
        x, y = batch
        out = model(x)
        if model.training:
            with torch.enable_grad():
                judged = (self.critic(y).mean() - self.critic(out.detach()).mean() - 1).square()
                self.steps.zero_grad()
                judged.backward()
                self.steps.step()
        terms = super().losses(model, batch)
        weights = self.critic.weight.detach()
        return scaled(terms, 1 + weights.square().sum())
""",
        found=BEFORE,
        named="critic",
    ),
    "statistics of the first batch in a dict of the module": Planted(
        code="""
STATS = {}

class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        STATS.setdefault("mean", x.mean(0))
        return super().losses(model, (x - STATS["mean"], y))
""",
        found=BEFORE,
        named="STATS",
    ),
    "statistics of the first batch in a dict of the recipe": Planted(
        code="""
class Variant(Regression):
    def __init__(self):
        self.stats = {}

    def losses(self, model, batch):
        x, y = batch
        self.stats.setdefault("mean", x.mean(0))
        return super().losses(model, (x - self.stats["mean"], y))
""",
        found=BEFORE,
        named="stats",
    ),
    "statistics of the first batch in a cache": Planted(
        code="""
FIRST = []

@functools.lru_cache
def mean_of_the_data():
    return FIRST[0].mean(0)

class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        if not FIRST:
            FIRST.append(x)
        return super().losses(model, (x - mean_of_the_data(), y))
""",
        found=BEFORE,
        named="FIRST",
    ),
    "a variable of a closure": Planted(
        code="""
def growing():
    calls = 0

    def grow():
        nonlocal calls
        calls += 1
        return 1.0 if calls <= 3 else 1 + 0.05 * calls

    return grow

class Variant(Regression):
    def __init__(self):
        self.scale = growing()

    def losses(self, model, batch):
        return scaled(super().losses(model, batch), self.scale() if model.training else 1.0)
""",
        found=BEFORE,
        named="scale",
    ),
    "a default argument": Planted(
        code="""
class Variant(Regression):
    def losses(self, model, batch, seen=[]):
        if model.training:
            seen.append(len(batch))
        return scaled(super().losses(model, batch), 1.0 if len(seen) <= 3 else 1 + 0.05 * len(seen))
""",
        found=BEFORE,
        named="losses",
    ),
    "an attribute of the class": Planted(
        code="""
class Variant(Regression):
    calls = 0

    def losses(self, model, batch):
        Variant.calls += model.training
        return scaled(super().losses(model, batch), 1.0 if Variant.calls <= 3 else 1 + 0.05 * Variant.calls)
""",
        found=BEFORE,
        named="calls",
    ),
    "a global of the module": Planted(
        code="""
CALLS = 0

class Variant(Regression):
    def losses(self, model, batch):
        global CALLS
        CALLS += model.training
        return scaled(super().losses(model, batch), 1.0 if CALLS <= 3 else 1 + 0.05 * CALLS)
""",
        found=BEFORE,
        named="CALLS",
    ),
    "a generator that is drawn from later": Planted(
        code="""
class Variant(Counted):
    def __init__(self):
        self.draws = np.random.default_rng(5)

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        late = model.training and self.update > 3
        return scaled(terms, 1 + self.draws.random() if late else 1.0)
""",
        found=LATER,
    ),
    "slow weights in a list of the optimizer": Planted(
        code="""
class Lookahead(torch.optim.AdamW):
    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.slow = [p.detach().clone() for p in self.param_groups[0]["params"]]
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        self.steps += 1
        if self.steps % 6 == 0:
            for slow, p in zip(self.slow, self.param_groups[0]["params"]):
                slow.lerp_(p, 0.5)
                p.copy_(slow)

class Variant(Regression):
    def optimizer(self, model, params):
        return Lookahead(model.parameters(), params.lr)
""",
        found=BEFORE,
        named="steps",
    ),
    "slow weights on the parameters themselves": Planted(
        code="""
class Lookahead(torch.optim.AdamW):
    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[0]["params"]:
            p.slow = torch.lerp(getattr(p, "slow", p.detach().clone()), p, 0.5)
            p.lerp_(p.slow, 0.1)

class Variant(Regression):
    def optimizer(self, model, params):
        return Lookahead(model.parameters(), params.lr)
""",
        found=BEFORE,
        named="slow",
    ),
    "a list behind a hook of the optimizer": Planted(
        code="""
class Variant(Regression):
    def optimizer(self, model, params):
        made = torch.optim.AdamW(model.parameters(), lr=params.lr)
        steps, slow = [], [p.detach().clone() for p in model.parameters()]

        @torch.no_grad()
        def average(optimizer, arguments, named):
            steps.append(1)
            if len(steps) % 6 == 0:
                for kept, p in zip(slow, model.parameters()):
                    kept.lerp_(p, 0.5)
                    p.copy_(kept)

        made.register_step_post_hook(average)
        return made
""",
        found=BEFORE,
        named="average",
    ),
    "a scheduler that steps another one now and then": Planted(
        code="""
class Every:
    def __init__(self, inner, every):
        self.inner, self.every, self.steps = inner, every, 0

    def step(self):
        self.steps += 1
        if self.steps % self.every == 0:
            self.inner.step()

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)

class Variant(Regression):
    def scheduler(self, optimizer, params):
        return Every(lr_scheduler.ExponentialLR(optimizer, 0.5), 4)
""",
        found=BEFORE,
        named="steps",
    ),
    "a momentum that is changed": Planted(
        code="""
class Variant(Counted):
    def model(self, params):
        made = Mlp()
        made.body.append(nn.BatchNorm1d(8))
        return made

    def losses(self, model, batch):
        if model.training and self.update == 7:
            model.body[-1].momentum = 0.9
        return super().losses(model, batch)
""",
        found=LATER,
        named="momentum",
    ),
    "a dropout that is turned up": Planted(
        code="""
class Variant(Counted):
    def model(self, params):
        made = Mlp()
        made.body.append(nn.Dropout(0.0))
        return made

    def losses(self, model, batch):
        if model.training and self.update == 7:
            model.body[-1].p = 0.5
        return super().losses(model, batch)
""",
        found=LATER,
        named="p",
    ),
    "a hook of a module that remembers": Planted(
        code="""
class Growing:
    def __init__(self):
        self.calls = 0

    def __call__(self, module, inputs, output):
        self.calls += module.training
        return output if self.calls <= 3 else output * (1 + 0.05 * self.calls)

class Variant(Regression):
    def model(self, params):
        made = Mlp()
        made.body.register_forward_hook(Growing())
        return made
""",
        found=BEFORE,
        named="calls",
    ),
    "a hook of a gradient that remembers": Planted(
        code="""
class Variant(Regression):
    def model(self, params):
        made, past = Mlp(), []

        def smooth(gradient):
            past.append(gradient.clone())
            return gradient if len(past) <= 3 else torch.stack(past[-4:]).mean(0)

        made.head.weight.register_hook(smooth)
        return made
""",
        found=BEFORE,
        named="smooth",
    ),
    "a dataset that counts its reads": Planted(
        code="""
class Counting(Points):
    reads = 0

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        self.reads += 1
        return x * (1.0 if self.reads <= 250 else 1 + self.reads / 500), y

class Variant(Regression):
    def dataset(self, source, params):
        return Counting()
""",
        found=BEFORE,
        named="reads",
    ),
    "a dataset that counts its reads, in processes of its own": Planted(
        code="""
class Counting(Points):
    reads = 0

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        self.reads += 1
        return x * (1.0 if self.reads <= 80 else 1 + self.reads / 500), y

class Variant(Regression):
    def dataset(self, source, params):
        return Counting()
""",
        found=LATER,
        named="dataset",
        run={"loader_workers": "1"},
    ),
    "rows that are remembered and then changed in place": Planted(
        code="""
class Remembered(Points):
    def __init__(self):
        super().__init__()
        self.rows = {}

    def __getitem__(self, index):
        if index not in self.rows:
            self.rows[index] = super().__getitem__(index)
        x, y = self.rows[index]
        x *= 1.01
        return x, y

class Variant(Regression):
    def dataset(self, source, params):
        return Remembered()

    def collate(self, rows):
        return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])
""",
        found=BEFORE,
        named="dataset",
    ),
    "a collation that grows": Planted(
        code="""
class Variant(Regression):
    batches = 0

    def collate(self, rows):
        self.batches += 1
        x, y = (torch.stack(column) for column in zip(*rows))
        return x * (1.0 if self.batches <= 14 else 1 + self.batches / 100), y
""",
        found=LATER,
        named="batches",
    ),
    "a rate by the clock": Planted(
        code="""
class Timed:
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        if self.steps > 3:
            for group in self.optimizer.param_groups:
                group["lr"] = 0.01 * (1 + time.perf_counter() % 1.0)

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

class Variant(Regression):
    def scheduler(self, optimizer, params):
        return Timed(optimizer)
""",
        found=LATER,
    ),
    "a variable of the environment": Planted(
        code="""
class Variant(Counted):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        late = model.training and self.update > 3
        return scaled(terms, float(os.environ.get("CORPUS_SCALE", "1.0")) if late else 1.0)
""",
        found=LATER,
        second={"CORPUS_SCALE": "1.5"},
    ),
    "numbers from the system": Planted(
        code="""
class Variant(Counted):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        late = model.training and self.update > 3
        return scaled(terms, 1 + os.urandom(1)[0] / 256 if late else 1.0)
""",
        found=LATER,
    ),
    "a file beside the run": Planted(
        code="""
class Variant(Counted):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        path = Path(os.environ["CORPUS_FILE"])
        if model.training and self.update > 3:
            path.write_text((path.read_text() if path.exists() else "") + "x")
            return scaled(terms, 1 + 0.05 * len(path.read_text()))
        return terms
""",
        found=LATER,
    ),
}
