"""Bad plans, made from one good plan; `python tests/corpus/bad_plans.py FOLDER` writes them out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

GOOD = Path(__file__).with_name("good_plan.toml").read_text("utf-8")


class Bad(NamedTuple):
    name: str
    data: bytes
    field: str | None
    """The field that the finding names; None where it is about the file."""
    says: str
    """A part of what the finding says, its rule or its remedy."""


def edit(*changes: tuple[str, str]) -> bytes:
    """The good plan with each text replaced; a text that is not there exactly once is a mistake here."""
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text.encode()


def without(line: str) -> bytes:
    """The good plan without the one line that starts with `line`."""
    kept = [text for text in GOOD.split("\n") if not text.startswith(line)]
    assert len(kept) == len(GOOD.split("\n")) - 1, line
    return "\n".join(kept).encode()


def bad_plans() -> list[Bad]:
    """Every bad plan: one mistake each."""
    return [*_files(), *_keys(), *_numbers(), *_splits(), *_decisions(), *_sets(), *_names(), *_secrets()]


def _files() -> list[Bad]:
    good = GOOD.encode()
    return [
        Bad("empty", b"", "schema", "missing"),
        Bad("not-toml", b"schema = 1\nname = \n", None, "not TOML"),
        Bad("yaml", b"schema: 1\nname: x\n", None, "not TOML"),
        Bad("binary", bytes(range(256)), None, "not UTF-8"),
        Bad("bad-utf-8", edit(('"ada"', '"ada?"')).replace(b"ada?", b"ada\xff"), None, "not UTF-8"),
        Bad("utf-8-bom", b"\xef\xbb\xbf" + good, None, "byte order mark"),
        Bad("utf-16", GOOD.encode("utf-16"), None, "byte order mark"),
        Bad("nul", good + b"\x00", None, "not TOML"),
        Bad("ten-megabytes", good + b"# " + b"x" * 10_000_000, None, "bytes long"),
        Bad("deep-array", b"a = " + b"[" * 400_000, None, "levels deep"),
        Bad("deep-inline", b"a = " + b"{a=" * 300_000, None, "levels deep"),
        Bad("deep-dotted-key", b"a." * 400_000 + b"a = 1", None, "levels deep"),
        Bad("deep-header", b"[" + b"a." * 400_000 + b"a]", None, "levels deep"),
        Bad("many-keys", b"".join(b"k%d=1\n" % i for i in range(100_000)), None, "more than a plan"),
        Bad("many-quotes", b'"' * 900_000, None, "more than a plan"),
        Bad("many-unknown", b"".join(b"k%d=1\n" % i for i in range(2_400)), "k7", "unknown key"),
        Bad("huge-integer", b"schema = " + b"9" * 900_000, None, "of 900,000 characters"),
        Bad("twice", edit(("seed     ", "seed = 2\nseed     ")), None, "not TOML"),
    ]


def _keys() -> list[Bad]:
    return [
        Bad("schema-2", edit(("schema   = 1", "schema   = 2")), "schema", "is 2"),
        Bad("schema-true", edit(("schema   = 1", "schema   = true")), "schema", "not a whole number"),
        Bad("schema-float", edit(("schema   = 1", "schema   = 1.0")), "schema", "not a whole number"),
        Bad("unknown-table", edit(("[budget]", "[bugdet]")), "bugdet", "did you mean budget?"),
        Bad("unknown-key", edit(("updates  ", "updtes  ")), "run.updtes", "did you mean updates?"),
        Bad("key-of-another-tool", edit(("batch   ", "batch_size")), "run.batch_size", "did you mean batch?"),
        Bad(
            "key-of-another-table", edit(("[qc]\n", "[qc]\nseed = 1\n")), "qc.seed", "did you mean run.seed?"
        ),
        Bad("key-elsewhere", edit(("[qc]\n", "[qc]\nzzz = 1\n")), "qc.zzz", "known here: owner"),
        Bad(
            "missing-unit", edit(("seed     ", "flush = 5\nseed     ")), "run.flush", "did you mean flush_s?"
        ),
        Bad("ceiling-without-currency", edit(("ceiling_usd", "ceiling")), "budget.ceiling", "ceiling_usd"),
        Bad("no-decision", without("decision"), "decision", "missing"),
        Bad(
            "blank-decision",
            edit(('"Which checkpoint of this VAE makes the synthetic digit set?"', '"  "')),
            "decision",
            "empty",
        ),
        Bad("no-category", without("category"), "category", "missing"),
        Bad("wrong-category", edit(('"model-selection"', '"fun"')), "category", 'is "fun"'),
        Bad("no-worthwhile", edit(("worthwhile = 0.01", 'worthwhile = ""')), "claim.worthwhile", "empty"),
        Bad("no-unit", without("unit  "), "claim.unit", "missing"),
        Bad("nothing-compared", edit(('["mean-image", "pca-8"]', "[]")), "claim.compare", "empty"),
        Bad("no-plotting-cadence", without("curves"), "run.curves", "missing"),
        Bad("half-a-plotting-cadence", edit(("every = 100, ", "")), "run.curves.every", "missing"),
        Bad("no-smoothing", edit((', smooth = "ema 0.98"', "")), "run.curves.smooth", "missing"),
        Bad("no-select", without("select"), "run.select", "missing"),
        Bad("no-stop", without("stop"), "run.stop", "missing"),
        Bad("no-on-failure", without("on_failure"), "qc.on_failure", "missing"),
        Bad("table-for-value", edit(("seed             = 1", "seed = {a = 1}")), "run.seed", "is a table"),
        Bad("value-for-table", edit(("[budget]", "[[budget]]")), "budget", "is a list, not a table"),
        Bad("text-for-list", edit(('["mean-image", "pca-8"]', '"pca-8"')), "claim.compare", "not a list"),
        Bad("date", edit(("lr = 1e-3", "lr = 1979-05-27T07:32:00Z")), "run.params.lr", "date"),
    ]


def _numbers() -> list[Bad]:
    def run(old: str, new: str) -> bytes:
        return edit((old, new))

    updates, seed, every = "updates          = 2000", "seed             = 1", "checkpoint_every = 200"
    return [
        Bad("nan", run("lr = 1e-3", "lr = nan"), "run.params.lr", "finite"),
        Bad("inf", run("worthwhile = 0.01", "worthwhile = inf"), "claim.worthwhile", "finite"),
        Bad("too-great-for-a-float", run("lr = 1e-3", "lr = 1e400"), "run.params.lr", "finite"),
        Bad(
            "minus-zero",
            run("nonfinite = 0.0", "nonfinite = -0.0"),
            "generate.digits.bounds.nonfinite",
            "-0.0",
        ),
        Bad("negative", run(seed, "seed = -1"), "run.seed", "is -1"),
        Bad("bool-for-int", run(seed, "seed = true"), "run.seed", "is true, not a whole number"),
        Bad(
            "bool-for-float",
            run("worthwhile = 0.01", "worthwhile = true"),
            "claim.worthwhile",
            "not a number",
        ),
        Bad("float-for-int", run(updates, "updates = 2000.5"), "run.updates", "not a whole number"),
        Bad("text-for-int", run(updates, 'updates = "2000"'), "run.updates", "not a whole number"),
        Bad("beyond-64-bits", run(seed, "seed = 99999999999999999999"), "run.seed", "20 digits"),
        Bad("no-updates", run(updates, "updates = 0"), "run.updates", "is 0"),
        Bad("cadence-0", run(every, "checkpoint_every = 0"), "run.checkpoint_every", "is 0"),
        Bad("curves-cadence-0", run("every = 100", "every = 0"), "run.curves.every", "is 0"),
        Bad(
            "curves-after-the-end",
            run("every = 100", "every = 2001"),
            "run.curves.every",
            "at most run.updates",
        ),
        Bad("smooth-all", run("ema 0.98", "ema 1.0"), "run.curves.smooth", "factor between 0 and 1"),
        Bad("smooth-nothing", run("ema 0.98", "ema 0.00"), "run.curves.smooth", "factor between 0 and 1"),
        Bad("flush-0", run(seed, "seed = 1\nflush_s = 0"), "run.flush_s", "is 0"),
        Bad("clip-0", run(seed, "seed = 1\nclip = 0.0"), "run.clip", "is 0.0"),
        Bad("batch-not-shared", run(seed, "seed = 1\nworkers = 3"), "run.batch", "a multiple of 3"),
        Bad("batch-not-accumulated", run(seed, "seed = 1\naccumulate = 7"), "run.batch", "a multiple of 7"),
        Bad("dtype", run(seed, 'seed = 1\ndtype = {params = "float64"}'), "run.dtype.params", 'is "float64"'),
        Bad("empty-roster", run("units = 20", "units = 0"), "qc.roster.units", "is 0"),
        Bad("qc-between-checkpoints", run("every      = 200", "every = 300"), "qc.every", "a multiple of"),
        Bad("low-above-high", run("low = 5", "low = 99"), "qc.fields.latent.low", "below high"),
        Bad("no-threshold", run('"> 0.35"', '"bad"'), "qc.fail.ratio", 'is "bad"'),
        Bad("ceiling-0", run("ceiling_usd = 1.0", "ceiling_usd = 0.0"), "budget.ceiling_usd", "is 0.0"),
    ]


def _splits() -> list[Bad]:
    splits = GOOD[GOOD.index("[splits]") : GOOD.index("[run]")]
    development = "development = 0.15                          # selects\n"
    two_sources = '[data]\ntrain = "s3://b/a"\ndevelopment = "s3://b/a"\n\n'
    return [
        Bad(
            "validation",
            edit(("report_only = 0.15", "validation = 0.15")),
            "splits.validation",
            "not a role here",
        ),
        Bad(
            "validation-source",
            edit((splits, '[data]\ntrain = "s3://b/a"\nvalidation = "s3://b/v"\n\n')),
            "data.validation",
            "report_only = ... (never selects)",
        ),
        Bad("no-splits", edit((splits, "")), "splits", "missing"),
        Bad("shares-above-1", edit(("train       = 0.70", "train = 0.9")), "splits", "sum to 1.2"),
        Bad("share-of-1", edit(("train       = 0.70", "train = 1.0")), "splits.train", "is 1.0"),
        Bad(
            "role-twice",
            edit((splits, splits + '[data]\ntrain = "a"\n')),
            "data.train",
            "one of splits.train",
        ),
        Bad("overlapping-sources", edit((splits, two_sources)), "data.development", "overlaps train"),
        Bad(
            "no-development",
            edit((development, ""), ("train       = 0.70", "train = 0.85")),
            "run.select",
            "there is none",
        ),
        Bad(
            "qc-reads-no-split",
            edit(('"label", units', '"label", from = "benchmark", units')),
            "qc.roster.from",
            "no such",
        ),
        Bad(
            "qc-opens-sealed",
            edit(('"label", units', '"label", from = "sealed", units')),
            "qc.roster.from",
            "opens once",
        ),
    ]


def _decisions() -> list[Bad]:
    select = '"min development.ratio"'
    never = '"never"'

    def chosen(text: str) -> bytes:
        return edit((select, text))

    def stop(text: str) -> bytes:
        return edit((never, text))

    return [
        Bad("select-report-only", chosen('"min report_only.ratio"'), "run.select", "may not decide"),
        Bad("select-benchmark", chosen('"min benchmark.ratio"'), "run.select", "may not decide"),
        Bad("select-sealed", chosen('"min sealed.ratio"'), "run.select", "may not decide"),
        Bad("select-train", chosen('"min train.ratio"'), "run.select", "may not decide"),
        Bad("select-validation", chosen('"min validation.ratio"'), "run.select", "reads validation"),
        Bad("select-no-direction", chosen('"development.ratio"'), "run.select", "neither min nor max"),
        Bad("select-no-metric", chosen('"min development."'), "run.select", "not a metric"),
        Bad("stop-sometimes", stop('"sometimes"'), "run.stop", 'is "sometimes"'),
        Bad(
            "stop-reads-sealed",
            stop('{metric = "sealed.ratio", patience = 1, min_delta = 0}'),
            "run.stop.metric",
            "may not decide",
        ),
        Bad(
            "stop-without-patience",
            stop('{metric = "development.ratio", patience = 0, min_delta = 0}'),
            "run.stop.patience",
            "is 0",
        ),
        Bad(
            "stop-without-direction",
            stop('{metric = "development.other", patience = 1, min_delta = 0}'),
            "run.stop.mode",
            "min | max",
        ),
    ]


def _sets() -> list[Bad]:
    def adding(line: str) -> bytes:
        return edit(("unit_rows = 100", f"unit_rows = 100\n{line}"))

    cold = "options = { cold = { temperature = 0.5 } }"
    at = "generate.digits"
    return [
        Bad("samples-of-nothing", adding("samples = 2"), f"{at}.samples", "there are no inputs"),
        Bad("batch-beyond-unit", adding("batch_rows = 101"), f"{at}.batch_rows", "more than the 100 rows"),
        Bad("options-without-quality", adding(cold), f"{at}.quality", "options to compare"),
        Bad(
            "quality-on-report-only",
            adding(f'{cold}\nquality = "min report_only.distance"'),
            f"{at}.quality",
            "may not decide",
        ),
        Bad(
            "quality-without-split",
            adding(f'{cold}\nquality = "min distance"'),
            f"{at}.quality",
            "not a metric of a split",
        ),
        Bad(
            "option-named-decode",
            adding('options = { decode = { temperature = 0.5 } }\nquality = "min development.distance"'),
            f"{at}.options.decode",
            "own decoding",
        ),
        Bad("no-rows", edit(("rows      = 2000\n", "")), at, "neither how many rows"),
        Bad(
            "bound-above-1", edit(("duplicates = 0.01", "duplicates = 1.01")), f"{at}.bounds.duplicates", "1"
        ),
        Bad(
            "no-bounds",
            edit(("bounds    = { duplicates = 0.01, nonfinite = 0.0 }", "bounds = {}")),
            f"{at}.bounds",
            "",
        ),
    ]


def _names() -> list[Bad]:
    name = '"digits-vae"'
    recipe = '"recipe:DigitsVae"'
    unsafe = ["..", "/abs", "a/b", "A", "a b", "-a", "a\\u0000", "a\\n", "\\u0430", "a" * 129, "%2e%2e", ""]
    code = ["os.system('x')", "recipe", "recipe:", "../recipe:X", "recipe:X()", "a..b:C", "recipe:X;y"]
    return [
        *(
            Bad(f"name-{i}", edit((name, f'"{text}"')), "name", "first a letter")
            for i, text in enumerate(unsafe)
        ),
        *(
            Bad(f"recipe-{i}", edit((recipe, f'"{text}"')), "recipe", "module:Class")
            for i, text in enumerate(code)
        ),
        Bad(
            "generated-set",
            edit(("[generate.digits]", '[generate."../digits"]')),
            "generate.../digits",
            "first",
        ),
        Bad("escape-sequence", edit(('"Which', '"\\u001b[31mWhich')), "decision", "control characters"),
    ]


SECRETS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "hugging-face": "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "key-file": "-----BEGIN" + " PRIVATE KEY-----",
    "in-an-address": "https://ada:" + "hunter2@example.org/x",
    "token": "q7WzL0vXe2RkT9mB" + "n4YcA8sHd3UjF6pG1xKw5",
}


def _secrets() -> list[Bad]:
    kinds = [
        Bad(f"secret-{kind}", edit(("width = 32", f'width = "{text}"')), "run.params.width", "credential")
        for kind, text in SECRETS.items()
    ]
    return [
        *kinds,
        Bad(
            "secret-by-name", edit(("width = 32", 'api_key = "hunter2"')), "run.params.api_key", "credential"
        ),
        Bad("secret-in-a-comment", edit(("# (p)\non", f"# {SECRETS['aws']}\non")), None, "credential"),
        Bad("secret-in-no-toml", f"key = {SECRETS['aws']}\n".encode(), None, "credential"),
        Bad(
            "secret-escaped",
            edit(("width = 32", f'width = "\\u0041{SECRETS["aws"][1:]}"')),
            "run.params.width",
            "credential",
        ),
        Bad(
            "notify-address",
            GOOD.encode() + b'\n[notify]\non = ["finished"]\nto_file = "slack://x/y"\n',
            "notify.to_file",
            "is an address",
        ),
    ]


def write(folder: Path) -> None:
    """Write every bad plan, and what each is expected to be."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = []
    for bad in bad_plans():
        (folder / f"{bad.name}.toml").write_bytes(bad.data)
        field = "" if bad.field is None else bad.field
        expected.append(f'[{bad.name}]\nkind = "plan"\nfield = {field!r}\nsays = {bad.says!r}\n')
    (folder / "expect.toml").write_text("\n".join(expected), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
