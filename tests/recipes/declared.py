"""Recipes with state of every kind that can be declared: each is killed at any moment, and goes on to the same bits."""

from __future__ import annotations

from recipes.clean import DECLARED as OF_THE_RECIPE
from recipes.clean import GROUPS, MODELS

UPDATES = 40

_ORDERED = """
class Variant(Regression):
    def __init__(self):
        self.order = OrderedDict([("warm", 0.5), ("main", 1.0), ("cool", 0.9)])

    def losses(self, model, batch):
        x, y = batch
        name, scale = next(iter(self.order.items()))
        if model.training:
            self.order.move_to_end(name)
        return super().losses(model, (x * scale, y))

    def state_dict(self):
        return {"order": self.order}

    def load_state_dict(self, state):
        self.order = OrderedDict(state["order"])
"""

_COUNTER = """
class Variant(Classifier):
    def __init__(self):
        self.seen = Counter()

    def losses(self, model, batch):
        x, label = batch
        if model.training:
            self.seen.update(f"label {n}" for n in label.tolist())
        weight = torch.ones(CLASSES)
        for place, (name, _) in enumerate(self.seen.items()):
            weight[int(name[-1])] = 1 / (1 + place)
        value = F.cross_entropy(model(x), label, weight=weight)
        return {"label": LossTerm(value=value, reference=math.log(CLASSES), elements=len(label))}

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = Counter(state["seen"])
"""

_TENSORS = """
class Variant(Regression):
    def __init__(self):
        self.past = deque(maxlen=3)
        self.counts = torch.zeros(4, dtype=torch.int64)
        self.sums = {"x": torch.zeros((), dtype=torch.float64), "half": torch.zeros(2, dtype=torch.bfloat16)}

    def losses(self, model, batch):
        x, y = batch
        if model.training:
            self.past.append(x.mean(0))
            self.counts += (x > 0).sum(0)
            self.sums["x"] += x.double().sum() + 1e-9
            self.sums["half"] += 0.1
        shift = torch.stack([*self.past]).mean(0) if self.past else 0.0
        drift = 1 + 1e-3 * float(self.sums["x"]) + 0.01 * float(self.sums["half"][0])
        return super().losses(model, ((x - shift) * drift / (1 + 1e-3 * self.counts), y))

    def state_dict(self):
        return {"past": [*self.past], "counts": self.counts, "sums": self.sums, "names": ("a", None, True, 1.5)}

    def load_state_dict(self, state):
        self.past = deque(state["past"], maxlen=3)
        self.counts, self.sums = state["counts"], state["sums"]
        assert state["names"] == ("a", None, True, 1.5)
"""

_NUMPY = """
class Variant(Regression):
    def __init__(self):
        self.draws = np.random.default_rng(5)

    def losses(self, model, batch):
        x, y = batch
        noise = torch.from_numpy(self.draws.normal(size=x.shape)).float() if model.training else 0.0
        return super().losses(model, (x + 0.1 * noise, y))

    def state_dict(self):
        return {"draws": str(self.draws.bit_generator.state)}

    def load_state_dict(self, state):
        import ast

        self.draws.bit_generator.state = ast.literal_eval(state["draws"])
"""

_SCHEDULES = """
class Variant(Classifier):
    def optimizer(self, model, params):
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def scheduler(self, optimizer, params):
        warm = lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 7)
        cycle = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5, 2)
        return lr_scheduler.SequentialLR(optimizer, [warm, cycle], [7])
"""

_CYCLE = """
class Variant(Language):
    def scheduler(self, optimizer, params):
        return lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=41)
"""

KINDS: dict[str, str] = {
    "a counter": OF_THE_RECIPE["a counter"],
    "an average of the weights in the state": OF_THE_RECIPE["an average of the weights in the state"],
    "a generator of one's own": OF_THE_RECIPE["a generator of one's own"],
    "a generator of torch": OF_THE_RECIPE["a generator of torch"],
    "a generator of NumPy": _NUMPY,
    "running means, nested": OF_THE_RECIPE["running means, nested"],
    "tensors of many types": _TENSORS,
    "a dict whose order matters": _ORDERED,
    "a counter whose order matters": _COUNTER,
    "buffers that count": MODELS["counts in a buffer"],
    "a codebook that is averaged": MODELS["a codebook that is averaged"],
    "torch's averaged model": MODELS["torch's averaged model as a part"],
    "state of the model in a tensor of its own": MODELS["state of the model in a tensor of its own"],
    "schedulers in a row": _SCHEDULES,
    "a cycle with its momentum": _CYCLE,
    "a scheduler of one's own": GROUPS["a scheduler of one's own"],
}
