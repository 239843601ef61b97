"""A hundred recipes as people write them, in which nothing is wrong: none may be refused, and each resumes to the bit.

Some keep things that change and that no checkpoint holds: caches, counters for the log, open files, clocks. Nothing
that is trained depends on those. What training does depend on is in the model, the optimizer, the scheduler, the global
generators, or in what the recipe's `state_dict` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """The code of a class `Variant`, after `from base import *`, and what its plan's `[run]` has instead."""

    code: str
    run: Mapping[str, str] = field(default_factory=dict)


# --- what changes, and what nothing depends on --------------------------------------------------------------

CACHES = {
    "an lru_cache of the module": """
@functools.lru_cache
def ramp(width):
    return torch.linspace(0.5, 1.0, width)

class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        return super().losses(model, (x * ramp(x.shape[1]), y))
""",
    "an lru_cache on a method of the recipe": """
class Variant(Regression):
    @functools.lru_cache(maxsize=8)
    def scale(self, rows):
        return torch.linspace(0.5, 1.0, rows)[:, None]

    def losses(self, model, batch):
        x, y = batch
        return super().losses(model, (x * self.scale(len(x)), y))
""",
    "an lru_cache on a method of the model": """
class Net(Mlp):
    @functools.lru_cache(maxsize=None)
    def ramp(self, width):
        return torch.linspace(0.9, 1.0, width)

    def forward(self, x):
        return super().forward(x * self.ramp(x.shape[1]))

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a cached property of the model": """
class Net(Mlp):
    @functools.cached_property
    def places(self):
        return torch.arange(4.0) / 4

    def forward(self, x):
        return super().forward(x + self.places)

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a cache of the class, by shape": """
class Net(Mlp):
    made = {}

    def forward(self, x):
        if x.shape not in Net.made:
            Net.made[x.shape] = torch.linspace(0.5, 1.0, len(x))[:, None]
        return super().forward(x * Net.made[x.shape])

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a cache of the module, by length": """
MASKS = {}

def mask_of(length):
    if length not in MASKS:
        MASKS[length] = torch.full((length, length), float("-inf")).triu(1)
    return MASKS[length]

class Lm(TinyLm):
    def forward(self, words):
        places = torch.arange(words.shape[1])
        x = self.embed(words) + self.place(places)
        return self.head(self.layer(x, src_mask=mask_of(words.shape[1])))

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "rotary angles made at the first pass": """
class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width, self.length, self.cos, self.sin = width, 0, None, None

    def forward(self, x):
        if x.shape[1] > self.length:
            self.length = 2 * x.shape[1]
            rate = 100.0 ** (-torch.arange(0, self.width, 2) / self.width)
            angle = torch.arange(self.length)[:, None] * rate
            self.cos, self.sin = angle.cos(), angle.sin()
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

class Lm(TinyLm):
    def __init__(self, width=8):
        super().__init__(width)
        self.rotary = Rotary(width)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.head(self.layer(self.rotary(self.embed(words)), src_mask=mask) + self.place.weight[0])

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "rotary angles in buffers that are not persistent": """
class Lm(TinyLm):
    def __init__(self, width=8):
        super().__init__(width)
        rate = 100.0 ** (-torch.arange(0, width, 2) / width)
        angle = torch.arange(LENGTH)[:, None] * rate
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, words):
        a, b = self.embed(words).chunk(2, dim=-1)
        x = torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], dim=-1)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.head(self.layer(x, src_mask=mask) + self.place.weight[0])

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "rotary numbers in a complex buffer": """
class Lm(TinyLm):
    def __init__(self, width=8):
        super().__init__(width)
        rate = 100.0 ** (-torch.arange(0, width, 2) / width)
        angle = torch.arange(LENGTH)[:, None] * rate
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def forward(self, words):
        x = self.embed(words)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * self.turn
        x = torch.view_as_real(pairs + 0j).flatten(-2)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.head(self.layer(x, src_mask=mask) + self.place.weight[0])

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "a mask that is not persistent and grows": """
class Lm(TinyLm):
    def __init__(self, width=8):
        super().__init__(width)
        self.register_buffer("mask", torch.empty(0, 0), persistent=False)

    def forward(self, words):
        length = words.shape[1]
        if self.mask.shape[0] < length:
            self.mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.embed(words) + self.place.weight[:length]
        return self.head(self.layer(x, src_mask=self.mask[:length, :length]))

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "a list of tensors that no buffer holds": """
class Net(Mlp):
    def __init__(self):
        super().__init__()
        self.kernels = [torch.tensor([1.0, 0.5, 0.25, 0.125]), torch.ones(4)]

    def forward(self, x):
        return super().forward(x * self.kernels[0] + self.kernels[1])

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a compiled model": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        made.compile(backend="eager")
        return made
""",
    "a compiled function": """
@functools.partial(torch.compile, backend="eager")
def squared(a, b):
    return (a - b).square().mean()

class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        return {"fit": LossTerm(value=squared(model(x), y), target=y)}
""",
    "a tokenizer that remembers words": """
class Tokenizer:
    def __init__(self, words):
        self.number = {word: n for n, word in enumerate(words)}
        self.seen = {}

    def __call__(self, text):
        if text not in self.seen:
            self.seen[text] = [self.number[word] for word in text.split()]
        return self.seen[text]

TALE = "the cat sat on a mat and the dog lay by it".split()

class Texts:
    def __init__(self):
        self.tokenize = Tokenizer(sorted(set(TALE)))

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        words = [TALE[(index + place) % len(TALE)] for place in range(LENGTH + 1)]
        return torch.tensor(self.tokenize(" ".join(words)))

class Variant(Language):
    def dataset(self, source, params):
        return Texts()
""",
    "rows that are remembered": """
class Remembered(Points):
    def __init__(self):
        super().__init__()
        self.rows = {}

    def __getitem__(self, index):
        if index not in self.rows:
            self.rows[index] = super().__getitem__(index)
        return self.rows[index]

class Variant(Regression):
    def dataset(self, source, params):
        return Remembered()
""",
    "rows behind an lru_cache that forgets": """
class Remembered(Points):
    @functools.lru_cache(maxsize=5)
    def row(self, index):
        return super().__getitem__(index)

    def __getitem__(self, index):
        return self.row(int(index))

class Variant(Regression):
    def dataset(self, source, params):
        return Remembered()
""",
    "rows read whole at the first one": """
class Late(Points):
    rows = None

    def __getitem__(self, index):
        if self.rows is None:
            self.rows = [super(Late, self).__getitem__(i) for i in range(ROWS)]
        return self.rows[index]

class Variant(Regression):
    def dataset(self, source, params):
        return Late()
""",
}

_FILE = """
PATH = os.path.join(tempfile.gettempdir(), f"raykit-corpus-{os.getpid()}.bin")
np.linspace(-1.0, 1.0, 6 * ROWS, dtype=np.float32).tofile(PATH)

def row_of(numbers):
    found = torch.tensor(np.array(numbers, dtype=np.float32))
    return found[:4], found[4:]
"""

FILES = {
    "a file that is opened at the first row": f"""{_FILE}
class Filed(Points):
    file = None

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(PATH, "rb")
        self.file.seek(24 * index)
        return row_of(np.frombuffer(self.file.read(24), dtype=np.float32))

    def __del__(self):
        if self.file is not None:
            self.file.close()

class Variant(Regression):
    def dataset(self, source, params):
        return Filed()
""",
    "a mapped file": f"""{_FILE}
import mmap

class Mapped(Points):
    def __init__(self):
        super().__init__()
        with open(PATH, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getitem__(self, index):
        return row_of(np.frombuffer(self.map[24 * index : 24 * index + 24], dtype=np.float32))

class Variant(Regression):
    def dataset(self, source, params):
        return Mapped()
""",
    "a memory map of NumPy's": f"""{_FILE}
class Mapped(Points):
    def __init__(self):
        super().__init__()
        self.rows = np.memmap(PATH, dtype=np.float32, mode="r", shape=(ROWS, 6))

    def __getitem__(self, index):
        return row_of(self.rows[index])

class Variant(Regression):
    def dataset(self, source, params):
        return Mapped()
""",
    "a lock around reading": """
class Locked(Points):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getitem__(self, index):
        with self.lock:
            return super().__getitem__(index)

class Variant(Regression):
    def dataset(self, source, params):
        return Locked()
""",
    "a database": """
import sqlite3

class Stored(Points):
    def __init__(self):
        super().__init__()
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table rows (number integer primary key, angle real)")
        rows = [(i, 2 * math.pi * i / ROWS) for i in range(ROWS)]
        self.database.executemany("insert into rows values (?, ?)", rows)

    def __getitem__(self, index):
        ((angle,),) = self.database.execute("select angle from rows where number = ?", (int(index),))
        x = torch.tensor([math.cos(angle), math.sin(angle), angle, 1.0])
        return x, torch.tensor([math.sin(3 * angle), 0.5])

class Variant(Regression):
    def dataset(self, source, params):
        return Stored()
""",
    "pictures that are decoded when they are asked for": """
class Encoded(Pictures):
    def __init__(self):
        self.files = []
        for index in range(ROWS):
            out = io.BytesIO()
            np.save(out, super().__getitem__(index)[0].numpy())
            self.files.append(out.getvalue())

    def __getitem__(self, index):
        return torch.from_numpy(np.load(io.BytesIO(self.files[index]))), index % CLASSES

class Variant(Classifier):
    def dataset(self, source, params):
        return Encoded()
""",
    "a log of its own": """
import logging

class Variant(Regression):
    def __init__(self):
        self.log = logging.getLogger("recipe")

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.log.debug("fit %s", terms["fit"].value.item())
        return terms
""",
}

FOR_THE_LOG = {
    "a progress bar": """
import tqdm

class Variant(Regression):
    def __init__(self):
        self.bar = tqdm.tqdm(total=6, file=io.StringIO())

    def losses(self, model, batch):
        self.bar.update(model.training)
        return super().losses(model, batch)
""",
    "a counter of calls": """
class Variant(Regression):
    calls = 0

    def losses(self, model, batch):
        self.calls += 1
        if self.calls % 100 == 0:
            print("calls", self.calls)
        return super().losses(model, batch)
""",
    "a counter of calls of the module": """
CALLS = 0

class Variant(Regression):
    def losses(self, model, batch):
        global CALLS
        CALLS += 1
        return super().losses(model, batch)
""",
    "a list of the losses so far": """
class Variant(Regression):
    def __init__(self):
        self.history = []

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.history.append(terms["fit"].value.item())
        return terms
""",
    "the last losses, for a smooth line": """
class Variant(Regression):
    def __init__(self):
        self.last = deque(maxlen=3)

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.last.append(terms["fit"].value.detach())
        return terms
""",
    "a clock": """
class Variant(Regression):
    def __init__(self):
        self.began = time.time()
        self.took = []

    def losses(self, model, batch):
        start = time.perf_counter()
        terms = super().losses(model, batch)
        self.took.append(time.perf_counter() - start)
        return terms
""",
    "timers by name": """
class Variant(Regression):
    def __init__(self):
        self.timers = defaultdict(float)

    def losses(self, model, batch):
        start = time.perf_counter()
        terms = super().losses(model, batch)
        self.timers["train" if model.training else "look"] += time.perf_counter() - start
        return terms
""",
    "counts of the labels that were read": """
class Counting(Pictures):
    def __init__(self):
        self.read = Counter()

    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        self.read[label] += 1
        return picture, label

class Variant(Classifier):
    def dataset(self, source, params):
        return Counting()
""",
    "a warning that is given once": """
class Variant(Regression):
    warned = False

    def losses(self, model, batch):
        if not self.warned:
            print("the targets are not scaled")
            self.warned = True
        return super().losses(model, batch)
""",
    "norms of gradients, noted by hooks": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        self.norms = {}
        for name, p in made.named_parameters():
            p.register_hook(functools.partial(self.note, name))
        return made

    def note(self, name, gradient):
        self.norms[name] = float(gradient.norm())
""",
    "the last activation, kept by a hook": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        made.body.register_forward_hook(self.keep)
        return made

    def keep(self, module, inputs, output):
        self.activation = output.detach()
""",
    "the last batch, to look at": """
class Variant(Regression):
    batch = None

    def losses(self, model, batch):
        self.batch = batch
        return super().losses(model, batch)
""",
    "sections for a profiler": """
class Variant(Regression):
    def losses(self, model, batch):
        with torch.profiler.record_function("losses"):
            return super().losses(model, batch)
""",
    "the model itself, kept on the recipe": """
class Variant(Regression):
    def model(self, params):
        self.net, self.params = Mlp(params.width), params
        return self.net

    def losses(self, model, batch):
        x, y = batch
        fit = (model(x) - y).square().mean()
        decay = sum(p.square().sum() for p in self.net.parameters())
        return {
            "fit": LossTerm(value=fit, target=y),
            "decay": LossTerm(value=decay, weight=1e-4, no_reference="a penalty", elements=1),
        }
""",
    "weights of the loss, from the params": """
class Variant(Regression):
    def model(self, params):
        self.beta, self.terms = 0.5, ("fit", "size")
        return Mlp()

    def losses(self, model, batch):
        x, y = batch
        out = model(x)
        return {
            "fit": LossTerm(value=(out - y).square().mean(), target=y),
            "size": LossTerm(value=out.square().mean(), weight=self.beta, no_reference="why", elements=1),
        }
""",
}

# --- models -------------------------------------------------------------------------------------------------

MODELS = {
    "an average of the weights as a part of the model": """
class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Mlp()
        self.ema = copy.deepcopy(self.net).requires_grad_(False)

    def forward(self, x):
        if not self.training:
            return self.ema(x)
        with torch.no_grad():
            for slow, fast in zip(self.ema.parameters(), self.net.parameters()):
                slow.lerp_(fast, 0.1)
        return self.net(x)

class Variant(Regression):
    def model(self, params):
        return Averaged()

    def optimizer(self, model, params):
        return torch.optim.AdamW(model.net.parameters(), lr=params.lr)
""",
    "torch's averaged model as a part": """
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Mlp()
        self.ema = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(0.9)).requires_grad_(False)

    def forward(self, x):
        if not self.training:
            return self.ema(x)
        self.ema.update_parameters(self.net)
        return self.net(x)

class Variant(Regression):
    def model(self, params):
        return Averaged()

    def optimizer(self, model, params):
        return torch.optim.AdamW(model.net.parameters(), lr=params.lr)
""",
    "tied weights": """
class Lm(TinyLm):
    def __init__(self, width=8):
        super().__init__(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.embed.weight

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "a frozen body": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body.requires_grad_(False)
        return made

    def optimizer(self, model, params):
        return torch.optim.SGD(model.head.parameters(), lr=params.lr, momentum=0.9)
""",
    "a frozen body, and an optimizer of all": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body.requires_grad_(False)
        return made
""",
    "batch statistics that stay as they are": """
class Net(ConvNet):
    def train(self, mode=True):
        super().train(mode)
        self.body[1].eval()
        return self

class Variant(Classifier):
    def model(self, params):
        return Net()
""",
    "batch statistics over all batches": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body[1].momentum = None
        return made
""",
    "batch statistics that are not kept": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body[1] = nn.BatchNorm2d(4, track_running_stats=False)
        return made
""",
    "group norms": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body[1] = nn.GroupNorm(2, 4)
        return made
""",
    "instance norms with statistics": """
class Variant(Classifier):
    def model(self, params):
        made = ConvNet()
        made.body[1] = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        return made
""",
    "a spectral norm": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        nn.utils.parametrizations.spectral_norm(made.head)
        return made
""",
    "a weight norm": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        nn.utils.parametrizations.weight_norm(made.head)
        return made
""",
    "a parametrization of one's own": """
class Positive(nn.Module):
    def forward(self, raw):
        return F.softplus(raw)

class Variant(Regression):
    def model(self, params):
        made = Mlp()
        nn.utils.parametrize.register_parametrization(made.head, "weight", Positive())
        return made
""",
    "an LSTM": """
class Lm(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(WORDS, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        return self.head(self.rnn(self.embed(words))[0])

class Variant(Language):
    def model(self, params):
        return Lm()
""",
    "a GRU in both directions": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 4, 2, bidirectional=True, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x.squeeze(1))[0].mean(1))

class Variant(Classifier):
    def model(self, params):
        return Net()
""",
    "bags of words": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 8, mode="mean")
        self.head = nn.Linear(8, WORDS)

    def forward(self, words):
        return self.head(self.bag(words))[:, None].expand(-1, words.shape[1], -1)

class Variant(Language):
    def model(self, params):
        return Net()
""",
    "attention by the dot product": """
class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(WORDS, width), nn.Linear(width, 3 * width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, words):
        q, k, v = self.qkv(self.embed(words)).chunk(3, dim=-1)
        return self.head(self.norm(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

class Variant(Language):
    def model(self, params):
        return Attention()
""",
    "attention by einsum, with dropout": """
class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(WORDS, width), nn.Linear(width, 3 * width)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, WORDS)

    def forward(self, words):
        q, k, v = self.qkv(self.embed(words)).chunk(3, dim=-1)
        weights = torch.einsum("btd,bsd->bts", q, k) / 8**0.5
        weights = weights.masked_fill(torch.ones_like(weights).triu(1).bool(), float("-inf"))
        return self.head(torch.einsum("bts,bsd->btd", self.drop(weights.softmax(-1)), v))

class Variant(Language):
    def model(self, params):
        return Attention()
""",
    "activations that are computed twice": """
from torch.utils.checkpoint import checkpoint

class Net(Mlp):
    def forward(self, x):
        hidden = checkpoint(self.body, x, use_reentrant=False)
        return self.head(F.dropout(hidden, 0.1, self.training))

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a function of the weights": """
from torch.func import functional_call, vmap

class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        weights = dict(model.named_parameters())
        out = vmap(lambda row: functional_call(model, weights, (row,)))(x)
        return {"fit": LossTerm(value=(out - y).square().mean(), target=y)}
""",
    "a penalty on the gradient": """
class Variant(Regression):
    def losses(self, model, batch):
        x, y = batch
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            out = model(x)
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return {
            "fit": LossTerm(value=(out - y).square().mean(), target=y),
            "slope": LossTerm(value=slope.square().mean(), weight=0.01, no_reference="why", elements=1),
        }
""",
    "counts in a buffer": """
class Net(Mlp):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("used", torch.zeros(4, dtype=torch.bool))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
            self.used |= (x > 0).any(0)
        return super().forward(x) * (1 - 1 / (2 + self.seen))

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a codebook that is averaged": """
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 3), nn.Linear(3, 2)
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("sizes", torch.ones(5))

    def forward(self, x):
        z = self.inner(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(nearest, 5).float()
                self.sizes.lerp_(chosen.sum(0), 0.1)
                self.codes.lerp_(chosen.T @ z / self.sizes[:, None].clamp_min(0.1), 0.1)
        return self.outer(z + (self.codes[nearest] - z).detach())

class Variant(Regression):
    def model(self, params):
        return Codes()
""",
    "experts and their balance": """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 2) for _ in range(3))
        self.register_buffer("bias", torch.zeros(3))

    def forward(self, x):
        weights, chosen = (self.gate(x) + self.bias).softmax(1).topk(2, dim=1)
        if self.training:
            load = F.one_hot(chosen, 3).float().mean((0, 1))
            self.bias += 0.01 * (load.mean() - load).sign()
        out = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (weights[..., None] * out.gather(1, chosen[..., None].expand(-1, -1, 2))).sum(1)

class Variant(Regression):
    def model(self, params):
        return Experts()
""",
    "a variational encoder": """
class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 4), nn.Linear(2, 64)

    def forward(self, x):
        mean, log_variance = self.inner(x.flatten(1)).chunk(2, dim=1)
        noise = torch.randn_like(mean) if self.training else 0.0
        return self.outer(mean + noise * (log_variance / 2).exp()).view_as(x), mean, log_variance

class Variant(Classifier):
    def model(self, params):
        return Vae()

    def losses(self, model, batch):
        x, _ = batch
        out, mean, log_variance = model(x)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        return {
            "recon": LossTerm(value=(out - x).square().mean(), target=x),
            "kl": LossTerm(value=kl, weight=0.01, no_reference="a divergence", elements=mean.numel()),
        }

    def evaluate(self, model, batch):
        x, _ = batch
        return {"error": (model(x)[0] - x).square().flatten(1).mean(1)}

    def fields(self, model, batch):
        return {"latent": Field(value=model(batch[0])[1])}
""",
    "a diffusion": """
class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2))
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.2, 20), 0)
        self.register_buffer("signal", kept.sqrt())
        self.register_buffer("noise", (1 - kept).sqrt())

    def forward(self, y):
        t = torch.randint(0, 20, (len(y), 1))
        noise = torch.randn_like(y)
        mixed = self.signal[t] * y + self.noise[t] * noise
        return self.net(torch.cat([mixed, t / 20], dim=1)), noise

class Variant(Regression):
    def model(self, params):
        return Denoiser()

    def losses(self, model, batch):
        out, noise = model(batch[1])
        return {"noise": LossTerm(value=(out - noise).square().mean(), target=noise)}

    def evaluate(self, model, batch):
        out, noise = model(batch[1])
        return {"error": (out - noise).square().mean(1)}
""",
    "a teacher that is a part of the model": """
class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.teacher = Mlp(4), Mlp(16).requires_grad_(False)

    def forward(self, x):
        return self.net(x), self.teacher(x)

class Variant(Regression):
    def model(self, params):
        return Student()

    def optimizer(self, model, params):
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=params.lr)

    def losses(self, model, batch):
        out, wanted = model(batch[0])
        return {"fit": LossTerm(value=(out - wanted).square().mean(), target=wanted)}

    def evaluate(self, model, batch):
        out, wanted = model(batch[0])
        return {"error": (out - wanted).square().mean(1)}
""",
    "low ranks beside frozen weights": """
class Adapted(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, inner.in_features) / 4)
        self.b = nn.Parameter(torch.zeros(inner.out_features, 2))

    def forward(self, x):
        return self.inner(x) + x @ self.a.T @ self.b.T

class Variant(Regression):
    def model(self, params):
        made = Mlp()
        for i in (0, 2):
            made.body[i] = Adapted(made.body[i])
        return made
""",
    "blocks that are left out at random": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.norm = nn.Linear(4, 4), nn.RMSNorm(4)

    def forward(self, x):
        if self.training and torch.rand(()) < 0.3:
            return x
        return x + self.net(self.norm(x))

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(Block(), Block(), Block(), nn.Linear(4, 2))

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "parameters in lists and dicts": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(4) * s for s in (0.5, 1.0))
        self.heads = nn.ParameterDict({"a": torch.randn(4, 2) / 2, "b": torch.zeros(2)})
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        x = torch.tanh(x * self.scales[0]) * self.scales[1]
        return (x @ self.heads["a"] + self.heads["b"]) * self.log_temperature.clamp(-1, 1).exp()

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "a gradient of one's own": """
class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)

class Net(Mlp):
    def forward(self, x):
        return self.head(Straight.apply(self.body[:2](x)))

class Variant(Regression):
    def model(self, params):
        made = Net()
        made.body = made.body[:2]
        return made
""",
    "hooks that hold nothing": """
def halved(module, gradient_in, gradient_out):
    return tuple(None if g is None else g / 2 for g in gradient_in)

def finite(module, inputs, output):
    assert torch.isfinite(output).all()

class Variant(Regression):
    def model(self, params):
        made = Mlp()
        made.head.register_full_backward_hook(halved)
        made.body.register_forward_hook(finite)
        return made
""",
    "state of the model in a tensor of its own": """
class Net(Mlp):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def get_extra_state(self):
        return torch.tensor(self.steps)

    def set_extra_state(self, state):
        self.steps = int(state)

    def forward(self, x):
        self.steps += self.training
        return super().forward(x) * (1 + 0.01 * self.steps)

class Variant(Regression):
    def model(self, params):
        return Net()
""",
    "first weights from a generator of their own": """
class Variant(Regression):
    def model(self, params):
        made, draws = Mlp(), torch.Generator().manual_seed(7)
        with torch.no_grad():
            for p in made.parameters():
                p.copy_(torch.randn(p.shape, generator=draws) / 4)
        return made
""",
    "channels last": """
class Variant(Classifier):
    def model(self, params):
        return ConvNet().to(memory_format=torch.channels_last)
""",
}

# --- optimizers and schedulers ------------------------------------------------------------------------------

GROUPS = {
    "weights that decay and weights that do not": """
class Variant(Classifier):
    def optimizer(self, model, params):
        decay = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=params.lr)
""",
    "a rate for each layer": """
class Variant(Regression):
    def optimizer(self, model, params):
        layers = [model.body[0], model.body[2], model.head]
        groups = [{"params": [*m.parameters()], "lr": params.lr * 0.8**n} for n, m in enumerate(layers)]
        return torch.optim.Adam(groups)

    def scheduler(self, optimizer, params):
        return lr_scheduler.LambdaLR(optimizer, [lambda n: 1.0, lambda n: 0.9**n, lambda n: 1 / (1 + n)])
""",
    "groups with names": """
class Variant(Regression):
    def optimizer(self, model, params):
        return torch.optim.AdamW(model.named_parameters(), lr=params.lr)
""",
    "an optimizer of one's own": """
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            one, two = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.sub_(torch.sign(mean * one + p.grad * (1 - one)), alpha=group["lr"])
                mean.lerp_(p.grad, 1 - two)

class Variant(Regression):
    def optimizer(self, model, params):
        return Lion(model.parameters(), lr=1e-3)
""",
    "a scheduler of one's own": """
class Warm:
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.01 * min(1.0, self.steps / 4)

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

class Variant(Regression):
    def scheduler(self, optimizer, params):
        return Warm(optimizer)
""",
}

OPTIMIZERS = {
    "AdamW": "torch.optim.AdamW(model.parameters(), lr=0.01)",
    "AdamW with the largest moments": "torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)",
    "fused Adam": "torch.optim.Adam(model.parameters(), lr=0.01, fused=True)",
    "Adam by lists": "torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)",
    "SGD with momentum": "torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)",
    "RMSprop": "torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9, centered=True)",
    "Adagrad": "torch.optim.Adagrad(model.parameters(), lr=0.01)",
    "NAdam": "torch.optim.NAdam(model.parameters(), lr=0.01)",
    "RAdam": "torch.optim.RAdam(model.parameters(), lr=0.01)",
    "Adamax": "torch.optim.Adamax(model.parameters(), lr=0.01)",
    "Adadelta": "torch.optim.Adadelta(model.parameters())",
}
SCHEDULERS = {
    "cosine": "lr_scheduler.CosineAnnealingLR(optimizer, 6)",
    "one cycle": "lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=7)",
    "a line up from zero, then cosine": "lr_scheduler.SequentialLR(optimizer, ["
    "lr_scheduler.LambdaLR(optimizer, lambda n: n / 3), lr_scheduler.CosineAnnealingLR(optimizer, 3)], [3])",
    "steps": "lr_scheduler.StepLR(optimizer, 2, 0.5)",
    "a function": "lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n) ** 0.5)",
    "milestones": "lr_scheduler.MultiStepLR(optimizer, [2, 4])",
    "exponential": "lr_scheduler.ExponentialLR(optimizer, 0.9)",
    "warm restarts": "lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)",
    "two at once": "lr_scheduler.ChainedScheduler("
    "[lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)])",
    "a polynomial": "lr_scheduler.PolynomialLR(optimizer, 6, 2.0)",
}
BASES = ("Regression", "Classifier", "Language")


def _combined() -> dict[str, str]:
    """Every optimizer and every scheduler once, over the three bases in turn."""
    schedulers = list(SCHEDULERS.items())
    found = {}
    for n, (name, optimizer) in enumerate(OPTIMIZERS.items()):
        with_name, scheduler = schedulers[n % len(schedulers)]
        found[f"{name}, {with_name}"] = f"""
class Variant({BASES[n % len(BASES)]}):
    def optimizer(self, model, params):
        return {optimizer}

    def scheduler(self, optimizer, params):
        return {scheduler}
"""
    return found


# --- state that is declared ---------------------------------------------------------------------------------

DECLARED = {
    "a counter": """
class Variant(Regression):
    seen = 0

    def losses(self, model, batch):
        x, y = batch
        self.seen += model.training
        return super().losses(model, (x * (1 - 1 / (2 + self.seen)), y))

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]
""",
    "a curriculum by update": """
class Variant(Regression):
    update = 0

    def losses(self, model, batch):
        x, y = batch
        self.update += model.training
        beta = min(1.0, self.update / 4)
        out = model(x)
        return {
            "fit": LossTerm(value=(out - y).square().mean(), target=y),
            "size": LossTerm(value=out.square().mean(), weight=beta, no_reference="why", elements=1),
        }

    def state_dict(self):
        return {"update": self.update}

    def load_state_dict(self, state):
        self.update = state["update"]
""",
    "an average of the weights in the state": """
class Variant(Regression):
    def model(self, params):
        made = Mlp()
        self.ema = {name: p.detach().clone() for name, p in made.named_parameters()}
        return made

    def losses(self, model, batch):
        if model.training:
            for name, p in model.named_parameters():
                self.ema[name] = self.ema[name].lerp(p.detach(), 0.1)
        return super().losses(model, batch)

    def evaluate(self, model, batch):
        x, y = batch
        return {"error": (torch.func.functional_call(model, self.ema, (x,)) - y).square().mean(1)}

    def state_dict(self):
        return {"ema": self.ema}

    def load_state_dict(self, state):
        self.ema = state["ema"]
""",
    "an order that is kept": """
class Variant(Regression):
    def __init__(self):
        self.phases = OrderedDict([("warm", 2), ("main", 3), ("cool", 1)])

    def state_dict(self):
        return {"phases": [[name, left] for name, left in self.phases.items()]}

    def load_state_dict(self, state):
        self.phases = OrderedDict((name, left) for name, left in state["phases"])

    def losses(self, model, batch):
        x, y = batch
        phase = next((name for name, left in self.phases.items() if left), "cool")
        self.phases[phase] -= model.training
        return super().losses(model, (x * {"warm": 0.5, "main": 1.0, "cool": 0.9}[phase], y))
""",
    "a generator of one's own": """
class Variant(Regression):
    def __init__(self):
        self.draws = random.Random(5)

    def losses(self, model, batch):
        x, y = batch
        scale = 1 + 0.1 * self.draws.random() if model.training else 1.0
        return super().losses(model, (x * scale, y))

    def state_dict(self):
        return {"draws": self.draws.getstate()}

    def load_state_dict(self, state):
        self.draws.setstate(state["draws"])
""",
    "a generator of torch": """
class Variant(Regression):
    def __init__(self):
        self.draws = torch.Generator().manual_seed(5)

    def losses(self, model, batch):
        x, y = batch
        noise = torch.randn(x.shape, generator=self.draws) if model.training else 0.0
        return super().losses(model, (x + 0.1 * noise, y))

    def state_dict(self):
        return {"draws": self.draws.get_state()}

    def load_state_dict(self, state):
        self.draws.set_state(state["draws"])
""",
    "running means, nested": """
class Variant(Regression):
    def __init__(self):
        self.stats = {"x": {"mean": torch.zeros(4), "rows": 0}, "names": ["x"], "best": None}

    def losses(self, model, batch):
        x, y = batch
        if model.training:
            self.stats["x"]["mean"] = 0.9 * self.stats["x"]["mean"] + 0.1 * x.mean(0)
            self.stats["x"]["rows"] += len(x)
        return super().losses(model, (x - self.stats["x"]["mean"], y))

    def state_dict(self):
        return {"stats": self.stats}

    def load_state_dict(self, state):
        self.stats = state["stats"]
""",
    "weights of the losses that balance": """
class Variant(Regression):
    weights = (0.5, 0.5)

    def losses(self, model, batch):
        x, y = batch
        errors = (model(x) - y).square().mean(0)
        if model.training:
            shares = errors.detach().softmax(0)
            self.weights = tuple(0.9 * w + 0.1 * float(s) for w, s in zip(self.weights, shares))
        return {
            name: LossTerm(value=errors[n], weight=self.weights[n], target=y[:, n])
            for n, name in enumerate(("first", "second"))
        }

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, state):
        self.weights = tuple(state["weights"])
""",
}

# --- data ---------------------------------------------------------------------------------------------------

DATA = {
    "names, groups and strata": """
class Named(Points):
    def __init__(self):
        super().__init__()
        self.groups = [f"g{i // 2}" for i in range(ROWS)]
        self.sources = [i % 3 for i in range(ROWS)]

class Variant(Regression):
    def dataset(self, source, params):
        return Named()
""",
    "rows that draw nothing, and say so": """
class Fixed(Points):
    deterministic = True

class Variant(Regression):
    def dataset(self, source, params):
        return Fixed()
""",
    "what identifies a row, said by the dataset": """
class Identified(Pictures):
    def content(self, index):
        return f"picture {index}"

class Variant(Classifier):
    def dataset(self, source, params):
        return Identified()
""",
    "batches as dicts": """
class Dicts(Pictures):
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return {"picture": picture, "label": label, "name": f"n{index}"}

class Variant(Classifier):
    def dataset(self, source, params):
        return Dicts()

    def losses(self, model, batch):
        return super().losses(model, (batch["picture"], batch["label"]))

    def evaluate(self, model, batch):
        return super().evaluate(model, (batch["picture"], batch["label"]))
""",
    "batches as named tuples": """
Row = namedtuple("Row", "x y")

class Tuples(Points):
    def __getitem__(self, index):
        return Row(*super().__getitem__(index))

class Variant(Regression):
    def dataset(self, source, params):
        return Tuples()

    def losses(self, model, batch):
        return super().losses(model, (batch.x, batch.y))

    def evaluate(self, model, batch):
        return super().evaluate(model, (batch.x, batch.y))
""",
    "rows of other lengths, padded": """
class Ragged(Tokens):
    def __getitem__(self, index):
        return super().__getitem__(index)[: 4 + index % (LENGTH - 2)]

class Variant(Language):
    def dataset(self, source, params):
        return Ragged()

    def collate(self, rows):
        padded = torch.full((len(rows), LENGTH + 1), -1)
        for n, row in enumerate(rows):
            padded[n, : len(row)] = row
        return padded

    def losses(self, model, words):
        given, wanted = words[:, :-1].clamp_min(0), words[:, 1:]
        logits = model(given).flatten(0, 1)
        value = F.cross_entropy(logits, wanted.flatten(), ignore_index=-1, reduction="sum") / wanted.numel()
        return {"next": LossTerm(value=value, reference=math.log(WORDS), elements=wanted.numel())}

    def evaluate(self, model, words):
        given, wanted = words[:, :-1].clamp_min(0), words[:, 1:]
        hits = (model(given).argmax(2) == wanted) & (wanted >= 0)
        return {"hit": hits.float().sum(1) / (wanted >= 0).sum(1)}
""",
    "noise from all three generators": """
class Noisy(Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.1 * torch.randn(4) + 0.1 * random.random() + 0.1 * float(np.random.rand()), y

class Variant(Regression):
    def dataset(self, source, params):
        return Noisy()
""",
    "pictures that are cut and turned": """
def shifted(most, picture):
    return torch.roll(picture, random.randint(-most, most), dims=2)

def turned(picture):
    return picture.flip(1) if np.random.rand() < 0.5 else picture

class Augmented(Pictures):
    steps = (functools.partial(shifted, 1), turned)

    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        for step in self.steps:
            picture = step(picture)
        return picture, label

class Variant(Classifier):
    def dataset(self, source, params):
        return Augmented()
""",
    "torch's own datasets": """
from torch.utils.data import ConcatDataset, Subset, TensorDataset

class Variant(Regression):
    def dataset(self, source, params):
        rows = [Points()[i] for i in range(ROWS)]
        tensors = TensorDataset(torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows]))
        return ConcatDataset([Subset(tensors, range(0, 30)), Subset(tensors, range(20, ROWS))])
""",
    "labels of several types": """
class Labels(Pictures):
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture, np.int32(label), np.float64(label / CLASSES), label > 1

class Variant(Classifier):
    def dataset(self, source, params):
        return Labels()

    def losses(self, model, batch):
        x, label, share, large = batch
        logits = model(x)
        large_value = F.binary_cross_entropy_with_logits(logits[:, 0], large.float())
        wanted = share.float()
        return {
            "label": LossTerm(
                value=F.cross_entropy(logits, label.long()), reference=math.log(CLASSES), elements=len(x)
            ),
            "large": LossTerm(value=large_value, weight=0.5, reference=math.log(2), elements=len(x)),
            "share": LossTerm(value=(logits[:, 1] - wanted).square().mean(), weight=0.1, target=wanted),
        }

    def evaluate(self, model, batch):
        return super().evaluate(model, batch[:2])
""",
    "smoothed labels and a robust error": """
class Variant(Classifier):
    def losses(self, model, batch):
        x, label = batch
        logits = model(x)
        value = F.cross_entropy(logits, label, label_smoothing=0.1)
        return {
            "label": LossTerm(value=value, reference=math.log(CLASSES), elements=len(label)),
            "size": LossTerm(
                value=F.huber_loss(logits, torch.zeros_like(logits)),
                weight=0.01,
                no_reference="a penalty",
                elements=logits.numel(),
            ),
        }
""",
}

METHODS = {
    "everything that can be examined": """
class Variant(Classifier):
    def classify(self, model, batch):
        x, label = batch
        return Classes(probabilities=model(x).softmax(1), label=label)

    def embed(self, model, batch):
        return model.body(batch[0]).flatten(1)

    def panels(self, model, batch):
        return {"picture": Image(value=batch[0][0, 0], high=2.0)}

    def fields(self, model, batch):
        return {"logits": Field(value=model(batch[0]))}

    proposes = {"run": {"batch": 8}}
""",
    "text and its bytes": """
class Variant(Language):
    def text(self, model, words):
        logits = model(words[:, :-1]).transpose(1, 2)
        nats = F.cross_entropy(logits, words[:, 1:], reduction="none").sum(1)
        return Text(nats=nats, content=[bytes(row.tolist()) for row in words[:, 1:]])
""",
    "rows that it makes": """
import pyarrow as pa

class Variant(Regression):
    def generate(self, model, inputs, rng, temperature=1.0):
        noise = torch.from_numpy(rng.normal(4)).float() * temperature
        return pa.table({"point": pa.array(model(noise).tolist(), pa.list_(pa.float32()))})

    def keep(self, table):
        return [None for _ in range(len(table))]

    def quality(self, table, real):
        return {"rows": float(len(table))}

    def normalization(self, params):
        return {"scale": 1.0}
""",
    "fields that may be given": """
class Variant(Regression):
    def losses(self, model, batch):
        return self.losses_given(model, batch, {})

    def losses_given(self, model, batch, fields):
        x, y = batch
        out = fields.get("out", model(x))
        return {"fit": LossTerm(value=(out - y).square().mean(), target=y)}

    def fields(self, model, batch):
        return {"out": Field(value=model(batch[0]))}
""",
}

PLANS = {
    "bfloat16 in the forward pass": Clean(
        code="class Variant(Classifier): pass\n", run={"dtype": '{ autocast = "bfloat16" }'}
    ),
    "float16 with a scaler": Clean(
        code="class Variant(Regression): pass\n", run={"dtype": '{ autocast = "float16" }'}
    ),
    "bfloat16 all through": Clean(
        code="class Variant(Regression):\n"
        "    def losses(self, model, batch):\n"
        "        return super().losses(model, tuple(t.bfloat16() for t in batch))\n\n"
        "    def evaluate(self, model, batch):\n"
        "        return super().evaluate(model, tuple(t.bfloat16() for t in batch))\n",
        run={"dtype": '{ params = "bfloat16", optimizer = "bfloat16" }'},
    ),
    "four micro-batches and a clip": Clean(
        code="class Variant(Language): pass\n", run={"accumulate": "4", "clip": "0.1"}
    ),
    "a stop rule": Clean(
        code="class Variant(Regression): pass\n",
        run={
            "stop": '{ metric = "development.ratio", patience = 5, min_delta = 0.0 }',
            "evaluate_every": "1",
        },
    ),
    "kernels as they come": Clean(code="class Variant(Classifier): pass\n", run={"deterministic": "false"}),
    "two processes that read": Clean(code=CACHES["rows that are remembered"], run={"loader_workers": "2"}),
}


def _all() -> dict[str, Clean]:
    kinds = (CACHES, FILES, FOR_THE_LOG, MODELS, GROUPS, _combined(), DECLARED, DATA, METHODS)
    found = {name: Clean(code=code) for kind in kinds for name, code in kind.items()}
    assert len(found) == sum(map(len, kinds)), "two recipes of one name"
    return found | PLANS


CLEAN: dict[str, Clean] = _all()
