"""Plans of a team, each spoilt in one place: hundreds of them, always the same ones.

A plan is read into a tree, one thing in it is changed, and the tree is written as TOML again; what only a text can have
(a key twice, bytes that are no text) is done to the text. Free tables, which only a recipe can judge, are left alone.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
PLANS = {
    "digits": TESTS.parent / "jobs/digits/plan.toml",
    "first": TESTS / "corpus/good_plan.toml",
    "refresh": TESTS / "users/refresh.toml",
    "search": TESTS / "users/search.toml",
}
SHARED = (TESTS / "users/raykit.toml").read_bytes()

FREE = frozenset({"params", "decode", "nodes", "choice"})
"""Tables and lists that may hold anything."""
MAY_BE_0 = frozenset(
    {"seed", "min_delta", "rate", "scratch_usd", "storage", "low", "gpus", "nonfinite", "duplicates"}
) | {"empty", "truncated"}

Path_ = tuple[str, ...]
Tree = dict[str, Any]


class Mutated(NamedTuple):
    """One spoilt plan."""

    kind: str
    what: str
    data: bytes
    names: str
    """What the refusal has to name: the field, the line, or the file as a whole."""
    shared: bytes = SHARED
    """What lies beside it as raykit.toml."""


def mutated_plans(name: str) -> list[Mutated]:
    """Every spoilt version of one plan."""
    data = PLANS[name].read_bytes()
    text, tree = data.decode(), tomllib.loads(data.decode())
    found = [
        *_types(tree),
        *_units(tree),
        *_numbers(tree),
        *_unknown(tree),
        *_enums(tree),
        *_removed(tree),
        *_twice(text),
    ]
    if name in ("refresh", "search"):
        found += [*_bytes(text), *_nested(tree)]
    if name == "search":
        found += _shared(text, tree)
    return found


# --- trees --------------------------------------------------------------------------------------------------


def leaves(tree: Tree, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value that is no table, outside of free tables."""
    for key, value in tree.items():
        if key in FREE:
            continue
        if isinstance(value, dict):
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def tables(tree: Tree, at: Path_ = ()) -> Iterator[Path_]:
    """Every table but the free ones, the plan itself first."""
    yield at
    for key, value in tree.items():
        if isinstance(value, dict) and key not in FREE:
            yield from tables(value, (*at, key))


def changed(tree: Tree, path: Path_, value: Any) -> Tree:
    """The tree with another value at `path`."""
    found = copy.deepcopy(tree)
    here = found
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    return found


def without(tree: Tree, path: Path_) -> Tree:
    found = copy.deepcopy(tree)
    here = found
    for part in path[:-1]:
        here = here[part]
    del here[path[-1]]
    return found


def dumped(tree: Tree) -> bytes:
    """A tree as TOML: plain values first, then one table after the other."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for name, table in tree.items():
        if isinstance(table, dict):
            lines += [f"[{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    return ("\n".join(lines) + "\n").encode()


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() else f'"{key}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return repr(value)


def _spoilt(kind: str, tree: Tree, path: Path_, value: Any) -> Mutated:
    shown = _value(value)[:40]
    return Mutated(
        kind, f"{'.'.join(path)} = {shown}", dumped(changed(tree, path, value)), ".".join(path[:2])
    )


# --- what is spoilt -----------------------------------------------------------------------------------------


def _types(tree: Tree) -> Iterator[Mutated]:
    """Each value as another type, and each table as no table."""
    for path, value in leaves(tree):
        if path[-1] != "from" or path == ("qc", "roster", "from"):
            yield _spoilt("type", tree, path, _otherwise(value))
        if isinstance(value, list):
            yield _spoilt("type", tree, path, [{"a": 1}])
    for path in tables(tree):
        if path:
            yield _spoilt("type", tree, path, 7)


def _otherwise(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, str | list):
        return 7
    return [value]


def _units(tree: Tree) -> Iterator[Mutated]:
    """Numbers as people say them, below nothing, and nothing where there has to be something."""
    words = cycle(["10 h", "900 USD", "$5", "8 GPUs", "5 %", "1e3", "two"])
    for path, value in leaves(tree):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        yield _spoilt("unit", tree, path, next(words))
        yield _spoilt("unit", tree, path, -1 if isinstance(value, int) else -0.5)
        if path[-1] not in MAY_BE_0:
            yield _spoilt("unit", tree, path, 0)
        if isinstance(value, int) and path[-1] not in (
            "ceiling_usd",
            "wall_h",
            "loss_window_min",
            "high",
            *MAY_BE_0,
        ):
            yield _spoilt("unit", tree, path, value + 0.5)


def _numbers(tree: Tree) -> Iterator[Mutated]:
    """Numbers that no plan can mean, in free tables too."""
    huge = cycle(["nan", "inf", "-inf", "1e400", "1" + "0" * 40, "-0.0", str(2**63), "1979-05-27"])
    for path, value in _numbers_anywhere(tree):
        number = next(huge)
        text = dumped(changed(tree, path, "@@")).replace(b'"@@"', number.encode())
        assert b"@@" not in text, value
        yield Mutated("number", f"{'.'.join(path)} = {number}", text, ".".join(path[:2]))


def _numbers_anywhere(tree: Tree, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers_anywhere(value, (*at, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*at, key), value


def _unknown(tree: Tree) -> Iterator[Mutated]:
    """A key that nobody knows, at every level."""
    for path in tables(tree):
        yield _spoilt("unknown", tree, (*path, "zzz"), "x")


WRONG = {
    ("category",): "exploration",
    ("research",): "maybe",
    ("base", "start"): "restart",
    ("base", "keep"): ["everything"],
    ("base", "because"): "better",
    ("run", "shard"): "zero3",
    ("run", "resume"): "bit-exact",
    ("run", "device"): "tpu",
    ("run", "select"): "min validation.ratio",
    ("run", "stop"): "sometimes",
    ("run", "dtype"): {"params": "fp8"},
    ("run", "curves"): {"every": 100, "smooth": "mean 5"},
    ("qc", "on_failure"): "ignore",
    ("qc", "roster"): {"stratum": "source", "units": 4, "from": "validation"},
    ("qc", "fail"): {"ratio": "about 0.35"},
    ("budget", "confirm"): "two-runs",
    ("notify", "on"): ["sometimes"],
    ("claim", "label"): "gold",
    ("search", "mode"): "least",
    ("search", "metric"): "report_only.bits_per_byte",
    ("search", "sampler"): {"name": "bayes", "seed": 7},
    ("search", "scheduler"): {"name": "hyperband", "grace_updates": 4, "reduction": 3},
    ("search", "space"): {"lr": {"normal": [0.0, 1.0]}},
    ("pools", "train"): {"gpus": 8, "usd_per_hour": {"rate": 2.99, "source": "x", "billed": "hour"}},
    ("pools", "cpu"): {"gpus": 0},
    ("generate", "Digits"): {"unit_rows": 5, "bounds": {"empty": 0.1}},
    ("name",): "../outside",
    ("recipe",): "recipe.py",
}
"""A word that is none of those that are known."""


def _enums(tree: Tree) -> Iterator[Mutated]:
    for path, value in WRONG.items():
        if len(path) == 1 or path[0] in tree:
            yield _spoilt("enum", tree, path, value)


MAY_BE_ABSENT = frozenset(
    {
        "account", "against_as_is", "against_pilot", "attempts", "autocast", "base", "beta",
        "bits_per_byte", "budget", "ceiling_usd", "choice", "claim", "clip", "data", "decode",
        "development", "digits", "docs-new@2026-11", "docs@v7", "dtype", "duplicates", "empty",
        "evaluate_every", "every", "fields", "fixed_usd", "from", "generate", "group", "if_no", "inputs",
        "keep", "keep_checkpoints", "last", "latent", "loguniform", "loss_window_min", "lr", "margin",
        "metrics", "min_delta", "mix", "mode", "nodes", "nonfinite", "notify", "optimizer", "params",
        "pools", "qc", "ratio", "repeats", "report_only", "resume", "rows", "samples", "scheduler",
        "scratch_usd", "sealed", "search", "select", "shard", "splits", "stop", "storage", "tags",
        "targets", "teacher", "train", "transfer", "truncated", "usd_per_hour", "wall_h", "warmup",
        "width", "workers", "code", "used", "replay", "replay_share", "on_inexact", "harmless",
    }
)  # fmt: skip
"""Keys that a plan, or one of its tables, can do without, or that have a rule of their own elsewhere."""


def _removed(tree: Tree) -> Iterator[Mutated]:
    """Each key that has to be there, gone."""
    for path in [*(path for path, _ in leaves(tree)), *filter(None, tables(tree))]:
        if path[-1] not in MAY_BE_ABSENT:
            names = ".".join(path) if len(path) == 1 else ".".join(path[:2])
            yield Mutated("removed", ".".join(path), dumped(without(tree, path)), names)


def _twice(text: str) -> Iterator[Mutated]:
    """Each key that stands on a line of its own, again on the next; each table, again at the end."""
    lines = text.split("\n")
    for n, line in enumerate(lines, start=1):
        name = line.partition("=")[0].strip()
        if "=" in line and not line.startswith("#"):
            again = [*lines[:n], line, *lines[n:]]
            yield Mutated("twice", name, "\n".join(again).encode(), f"(line {n + 1})")
        elif line.startswith("["):
            again = [*lines, line, ""]
            yield Mutated("twice", line, "\n".join(again).encode(), f"(line {len(lines) + 1})")


# --- what only bytes can be ---------------------------------------------------------------------------------


def _bytes(text: str) -> Iterator[Mutated]:
    data, lines = text.encode(), text.split("\n")
    for n in (1, 4, 11, len(lines) - 2):
        for what, bad in (("utf-8", b"\xff"), ("surrogate", b"\xed\xa0\x80"), ("overlong", b"\xc0\xaf")):
            yield Mutated("bytes", f"{what}, line {n}", _into(lines, n, bad), f"(line {n})")
        for what, bad in (("nul", b"\x00"), ("bell", b"\x07"), ("escape", b"\x1b[31m")):
            yield Mutated("bytes", f"{what}, line {n}", _into(lines, n, bad), "(line ")
    for what, encoding in (("utf-16", "utf-16"), ("utf-16-be", "utf-16-be"), ("utf-32", "utf-32")):
        yield Mutated("bytes", what, text.encode(encoding), "(line ")
    yield Mutated("bytes", "bom", b"\xef\xbb\xbf" + data, "(line 1)")
    yield Mutated("bytes", "bom inside", data.replace(b"[run]", b"\xef\xbb\xbf[run]"), "(line ")
    yield Mutated("bytes", "latin-1", text.replace("one", "\u00fcber").encode("latin-1", "replace"), "(line ")
    yield Mutated("bytes", "cr only", data.replace(b"\n", b"\r"), "(line 1)")
    yield Mutated("bytes", "cut in a string", data[: data.index(b"decision") + 20], "at end of document")
    yield Mutated("bytes", "10 MB comment", data + b"# " + b"x" * 10_000_000, "the file")
    yield Mutated("bytes", "10 MB text", data + b'notes = "' + b"y" * 10_000_000 + b'"\n', "the file")
    yield Mutated("bytes", "10 MB of lines", data + b"\n" * 10_000_000, "the file")
    yield Mutated("bytes", "10 MB of nothing", b"\x00" * 10_000_000, "the file")


def _into(lines: list[str], n: int, bad: bytes) -> bytes:
    """Bytes in the middle of line `n`."""
    parts = [line.encode() for line in lines]
    parts[n - 1] = parts[n - 1][:3] + bad + parts[n - 1][3:]
    return b"\n".join(parts)


def _nested(tree: Tree) -> Iterator[Mutated]:
    for depth in (20, 5_000, 200_000):
        for what, text in (
            ("lists", "[" * depth + "]" * depth),
            ("tables", "{ a = " * depth + "1" + " }" * depth),
        ):
            data = dumped(changed(tree, ("run", "params"), "@@")).replace(b'"@@"', text.encode())
            names = "the file" if len(data) > 1_000_000 else "(line "
            yield Mutated("nested", f"{depth} {what}", data, names)
        data = dumped(tree) + b"[run" + b".a" * depth + b"]\n"
        yield Mutated("nested", f"{depth} parts", data, "(line ")


# --- the shared file ----------------------------------------------------------------------------------------


def _shared(text: str, tree: Tree) -> Iterator[Mutated]:
    """A `from` that leads nowhere, out of the way, or to what cannot be shared."""
    for name in (
        "other.toml", "RAYKIT.TOML", "raykit.yaml", "/etc/passwd", "/etc/hostname.toml", "~/raykit.toml", "",
        "../../../../../../../../../raykit.toml", "a/../raykit.toml", "raykit.toml\n", "jobs", "s3://corp/raykit.toml",
        "http://corp/raykit.toml", ".hidden.toml\u0000",
    ):  # fmt: skip
        data = dumped(changed(tree, ("claim", "from"), "@@")).replace(b'"@@"', _toml(name).encode())
        yield Mutated("from", f"claim.from = {name!r}", data, "claim.from")
    for value in (7, True, ["raykit.toml"], {"file": "raykit.toml"}):
        yield _spoilt("from", tree, ("claim", "from"), value)
    two = changed(tree, ("data", "from"), "other.toml")
    yield Mutated("from", "two files", dumped(two), "from")
    for table in ("run", "pools"):
        spoilt = changed(tree, (table, "from"), "raykit.toml")
        yield Mutated("from", f"{table}.from", dumped(spoilt), f"{table}.from")
    for table in ("data", "budget", "qc", "search"):
        spoilt = changed(tree, (table, "from"), "raykit.toml")
        yield Mutated("from", f"{table}.from, not shared", dumped(spoilt), f"{table}.from")
    data = text.encode()
    for what, shared, names in (
        ("not TOML", b"[claim\n", "claim.from"),
        ("not text", b"[claim]\nunit = \"\xff\"\n", "claim.from"),
        ("byte order mark", b"\xef\xbb\xbf" + SHARED, "claim.from"),
        ("nothing in it", b"", "claim.from"),
        ("no claim", b"[budget]\nceiling_usd = 5\n", "claim.from"),
        ("claim is no table", b"claim = 5\n", "claim.from"),
        ("too large", SHARED + b"#" * 2_000_000, "claim.from"),
        ("nested", SHARED + b"[a" + b".a" * 5_000 + b"]\n", "claim.from"),
        ("unknown table", SHARED + b"[zzz]\na = 1\n", "claim.from"),
        ("what is said for one plan alone", SHARED + b"[run]\nupdates = 5\n", "claim.from"),
        ("unknown key", SHARED + b"zzz = 1\n", "claim.zzz"),
        ("wrong type", SHARED.replace(b'"one document"', b"5"), "claim.unit"),
        ("not finite", SHARED + b"detail = nan\n", "claim.detail"),
        ("a key twice", SHARED + b'unit = "another"\n', "claim.from"),
        ("a control character", SHARED.replace(b"one document", b"one\\u0007document"), "claim.unit"),
        ("a key that is required is not there", b'[claim]\nunit = "one"\n', "claim.target"),
    ):  # fmt: skip
        yield Mutated("from", f"raykit.toml: {what}", data, names, shared)


def _toml(text: str) -> str:
    escaped = text.replace("\n", "\\n").replace("\u0000", "\\u0000")
    return f'"{escaped}"'
