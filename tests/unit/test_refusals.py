"""A refusal needs no manual: from every mistake below a newcomer reaches a passing plan by what was printed alone.

Each case is a plan that passes, one mistake in it, and a newcomer who reads what `raykit plan check` prints and knows
nothing else about raykit. What they may bring is what only they can know: a price, a count, a reason in their own
words. Every other word that they write has to stand in the plan or in the print: `unprinted` looks for one that does
not.

docs/REFUSALS.md is what these runs have printed. After a change of a message, write it anew:

    RAYKIT_WRITE_DOCS=1 pytest tests/unit/test_refusals.py

covers REVIEW-01 REVIEW-09 REVIEW-10 REVIEW-12 REVIEW-13 REVIEW-17, PLAN-33 PLAN-36 PLAN-46 PLAN-48, APPR-14
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from maketeam import make_production
from nursery import Nursery
from plainrun import Launches, write_job

from raykit.cli.main import main
from raykit.fleet.claim import claim
from raykit.fleet.site import site_of
from raykit.plan import Lock
from raykit.plan.template import toml_value
from raykit.records import Released
from raykit.store.people import People

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "REFUSALS.md"
WRITES = "RAYKIT_WRITE_DOCS"
MAX_ROUNDS = 3
COLUMNS = 116
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.lock", "store")

MIRA = "mira"
ROWS = {
    "s3://corp/docs@v7": 59_022_310,
    "s3://corp/docs-new@2026-11": 2_953_118,
    "s3://corp/dev@v3": 20_000,
    "s3://corp/val@v3": 20_000,
    "s3://corp/test@v1": 20_000,
}
INDEX = "index.json of 2026-11-20"


# --- what was printed ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding as it was printed."""

    field: str
    says: str
    line: int | None = None
    have: str = ""
    want: str = ""
    """What would pass: the line `want`, or `rule`."""
    passes: str = ""

    @property
    def whole(self) -> str:
        return "\n".join((self.says, self.have, self.want, self.passes))


ALL_OF_IT = "the plan"
"""The field of a refusal that names none."""

_NUMBERED = re.compile(r" ?\d+  (the file|\S+) +(.*?)(?: \(line (\d+)\))?")
_BELOW = re.compile(r" {2,4}(at|have|want|rule|pass) +(.*?)(?: \(line (\d+)\))?")
_SINGLE = re.compile(r"(?:invalid input|refused): (.*)")


def findings(print_: str) -> list[Finding]:
    """The findings of a print on stderr."""
    found: list[Finding] = []
    for line in print_.splitlines():
        if head := _NUMBERED.fullmatch(line):
            at = None if head[3] is None else int(head[3])
            found.append(Finding(field=head[1], says=head[2], line=at))
        elif single := _SINGLE.fullmatch(line):
            found.append(Finding(field=ALL_OF_IT, says=single[1]))
        elif found and (below := _BELOW.fullmatch(line)):
            found[-1] = _with(found[-1], *below.groups())
    if len(found) > 1 and "needs revision" in found[0].says:
        del found[0]  # the line above the findings
    return found


def _with(finding: Finding, label: str, text: str, line: str | None) -> Finding:
    if label == "at":
        name, _, have = text.partition(" = ")
        return replace(finding, field=name, have=have, line=None if line is None else int(line))
    if label == "have":
        return replace(finding, have=text)
    return replace(finding, passes=text) if label == "pass" else replace(finding, want=text)


def test_a_print_is_read_as_it_is_printed() -> None:
    assert findings(
        "plan.toml: 2 findings. Nothing was started, nothing was spent.\n"
        " 1  the file  is not TOML (line 3)\n"
        "    want   TOML\n"
        "12  run.seed  is 0.5, not a whole number\n"
        "    have   0.5\n"
        "    pass   seed = 1\n"
        "exit 2\n"
    ) == [
        Finding(field="the file", says="is not TOML", line=3, want="TOML"),
        Finding(field="run.seed", says="is 0.5, not a whole number", have="0.5", passes="seed = 1"),
    ]
    assert findings(
        "invalid input: no such base\n  at     base.candidate = 7 (line 4)\n  rule   one\nexit 2\n"
    ) == [Finding(field="base.candidate", says="no such base", have="7", line=4, want="one")]


# --- a plan in an editor ------------------------------------------------------------------------------------


def _find(lines: Sequence[str], name: str) -> tuple[int, str] | None:
    """The line of a key, and what of its dotted name lies in the value there; None if it is not in the file."""
    parts = name.split(".")
    for at in range(len(parts) - 1, -1, -1):
        span = _table(lines, ".".join(parts[:at]))
        for number in span or ():
            if re.match(rf"{re.escape(parts[at])}\s*=", lines[number]):
                return number, ".".join(parts[at + 1 :])
    return None


def _table(lines: Sequence[str], name: str) -> range | None:
    """The lines of a table, without its heading; None if it is not in the file."""
    heads = [number for number, line in enumerate(lines) if line.startswith("[")]
    if name == "":
        return range(heads[0] if heads else len(lines))
    for number in heads:
        if lines[number].partition("]")[0] == f"[{name}":
            return range(number + 1, min((each for each in heads if each > number), default=len(lines)))
    return None


def with_value(text: str, name: str, value: str) -> str:
    """The plan with `name` set to a TOML value, in its line, or in a new one at the end of its table."""
    lines = text.splitlines()
    found = _find(lines, name)
    if found is not None:
        number, inner = found
        pattern = rf"(\b{re.escape(inner)}\s*=\s*)[^,}}]+?(\s*[,}}])" if inner else r"(^[\w-]+\s*=\s*).*()"
        lines[number] = re.sub(pattern, lambda m: f"{m[1]}{value}{m[2]}", lines[number], count=1)
        return "\n".join(lines) + "\n"
    table, _, key = name.rpartition(".")
    span = _table(lines, table)
    if span is None:
        return f"{text}\n[{table}]\n{key} = {value}\n"
    end = max((number + 1 for number in span if lines[number].strip()), default=span.start)
    width = lines[end - 1].find(" =")
    lines.insert(end, f"{key:<{max(width, 0)}} = {value}")
    return "\n".join(lines) + "\n"


def renamed(text: str, name: str, to: str) -> str:
    """The plan with another key in place of `name`, and the column of `=` as it was if there is room."""
    lines = text.splitlines()
    found = _find(lines, name)
    assert found is not None, name
    key = name.rpartition(".")[2]
    lines[found[0]] = re.sub(
        rf"\b{re.escape(key)}\s*(?= =)", lambda was: f"{to:<{len(was[0])}}", lines[found[0]], count=1
    )
    return "\n".join(lines) + "\n"


def without(text: str, name: str) -> str:
    """The plan without the line of `name`."""
    lines = text.splitlines()
    found = _find(lines, name)
    assert found is not None, name
    del lines[found[0]]
    return "\n".join(lines) + "\n"


# --- the newcomer -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Newcomer:
    """Somebody who has a plan, what was printed about it, and an editor."""

    plan: str
    """The name of the plan file."""
    files: dict[str, str]
    """The plan, and what lies beside it."""
    prints: list[str] = field(default_factory=list)
    """All that was printed so far, and all that raykit has written into a file of theirs."""
    own: list[str] = field(default_factory=list)
    """What only they can know."""
    commands: list[list[str]] = field(default_factory=list)
    """What they want to be run now."""

    @property
    def text(self) -> str:
        return self.files[self.plan]

    @text.setter
    def text(self, text: str) -> None:
        self.files[self.plan] = text

    def read(self, finding: Finding, pattern: str) -> str:
        """What a finding says; that it does not say it is a finding about raykit."""
        found = re.search(pattern, finding.whole)
        assert found is not None, f"nothing printed says {pattern}:\n{finding.whole}"
        return found[1]

    def know(self, value: object) -> str:
        """A figure, a name or a sentence of their own, as TOML."""
        self.own.append(str(value))
        return toml_value(value)

    def set(self, name: str, value: str) -> None:
        self.text = with_value(self.text, name, value)


def unprinted(her: Newcomer, before: Mapping[str, str]) -> set[str]:
    """Words that she has written and that nobody has printed, and she could not know."""
    written = _words(*her.files.values(), *(word for command in her.commands for word in command))
    return written - _words(*before.values(), *before, *her.prints, *her.own)


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def test_a_word_that_was_not_printed_is_found() -> None:
    her = Newcomer("plan.toml", {"plan.toml": "a = 1\n"}, prints=["want   b, at least 2"])
    before = dict(her.files)
    her.set("b", "2")
    her.set("c", her.know("five"))
    her.commands = [["b", "plan.toml", "--by", "me"]]
    assert unprinted(her, before) == {"c", "by", "me"}


# --- what a newcomer does about a finding -------------------------------------------------------------------

Move = Callable[[Newcomer, Finding], None]


def knows(value: object, *, at: str | None = None) -> Move:
    """Write what only they know: where the finding is, or `at` another key of its table."""
    return lambda her, found: her.set(at or found.field, her.know(value))


def takes(pattern: str, form: str = "{}", *, at: str | None = None) -> Move:
    """Write what the finding says."""
    return lambda her, found: her.set(at or found.field, form.format(her.read(found, pattern)))


def takes_form(pattern: str, **own: str) -> Move:
    """Write the form that the finding shows, with their own values in place of its examples."""

    def move(her: Newcomer, found: Finding) -> None:
        shown = her.read(found, pattern)
        for example, value in own.items():
            her.own.append(value)
            shown, count = re.subn(rf"(?<={example} = )(\".*?\"|[\d.]+)", value, shown)
            assert count == 1, f"the form that is shown has no {example}"
        her.set(found.field, shown)

    return move


def renames(pattern: str) -> Move:
    """Give the key the name that the finding says."""

    def move(her: Newcomer, found: Finding) -> None:
        her.text = renamed(her.text, found.field, her.read(found, pattern))

    return move


def renames_to_close(pattern: str) -> Move:
    """Give the key that name of a printed list that looks like it."""

    def move(her: Newcomer, found: Finding) -> None:
        names = re.findall(r"\w+", her.read(found, pattern))
        (close,) = difflib.get_close_matches(found.field.rpartition(".")[2], names, n=1)
        her.text = renamed(her.text, found.field, close)

    return move


def drops(her: Newcomer, found: Finding) -> None:
    """Take the line out."""
    her.text = without(her.text, found.field)


def is_settled(her: Newcomer, found: Finding) -> None:
    """What was done about another finding is enough for this one."""


def runs(**blanks: str) -> Move:
    """Run the command that was printed, its blanks filled in. PLAN is the plan file."""

    def move(her: Newcomer, found: Finding) -> None:
        her.commands.append(_filled(her, found, blanks))

    return move


def _filled(her: Newcomer, found: Finding, blanks: Mapping[str, str]) -> list[str]:
    assert found.passes.startswith("raykit "), f"no command was printed:\n{found.whole}"
    command = shlex.split(found.passes.partition("   ")[0])
    her.own.extend(blanks.values())
    given = {**blanks, "PLAN": her.plan}
    if "WORDS" in blanks:  # an example of what to say, or three dots
        given |= {word: blanks["WORDS"] for word in command if " " in word or word == "..."}
    return [given.get(word, word) for word in command[1:]]


def roles_for_validation(her: Newcomer, found: Finding) -> None:
    """Two sets in place of one that did both."""
    keys = re.findall(r"(\w+) = \.\.\.", found.want + found.passes)
    assert len(keys) == 2, found.whole
    her.text = without(her.text, found.field)
    for key in keys:
        her.set(f"splits.{key}", her.know(0.15))


def selects_by_development(her: Newcomer, found: Finding) -> None:
    """The printed form, with the metric that was there."""
    metric = her.read(found, r'"min report_only\.(\w+)"')
    her.set(found.field, her.read(found, r'("min development\.<metric>")').replace("<metric>", metric))


def judges_by_development(her: Newcomer, found: Finding) -> None:
    """The printed form of a metric, with the one that was there."""
    metric = her.read(found, r"report_only\.(\w+)")
    her.set(found.field, her.read(found, r'("development\.<metric>")').replace("<metric>", metric))


def quotes_text(her: Newcomer, found: Finding) -> None:
    """Text stands in quotes: in the line that was named."""
    her.read(found, r'(text in "quotes")')
    assert found.line is not None
    lines = her.text.splitlines()
    key, _, rest = lines[found.line - 1].partition("= ")
    value, comment = (part.strip() for part in (f"{rest}#").split("#")[:2])
    lines[found.line - 1] = f'{key}= "{value}"' + (f"  # {comment}" if comment else "")
    her.text = "\n".join(lines) + "\n"


def mends_the_recipe(her: Newcomer, found: Finding) -> None:
    """The line that was named, and the text that could not be read there."""
    file, line = her.read(found, r"see (\S+), line"), int(her.read(found, r"line (\d+):"))
    bad = her.read(found, r"could not convert string to float: '(.*)'")
    lines = her.files[file].splitlines()
    assert lines[line - 1].strip() == her.read(found, r"line \d+: (.*)")
    lines[line - 1] = lines[line - 1].replace(bad, bad.rstrip(","))
    her.files[file] = "\n".join(lines) + "\n"


def counts_the_rows(her: Newcomer, found: Finding) -> None:
    """The printed command, once for each source that was named."""
    sources = her.read(found, r"counted the rows of (.*)").split(", ")
    assert len(sources) == len(ROWS)
    example = her.read(found, r'--source "(.*?)"')
    for source in sources:
        command = _filled(her, found, {"N": str(ROWS[source]), "WORDS": INDEX, "NAME": MIRA})
        her.commands.append([source if word == example else word for word in command])


def predicts_apart(her: Newcomer, found: Finding) -> None:
    """What each hypothesis predicts, in the printed form."""
    own = {
        "placed": "3 points keep a loss above 1.0, and all others fall below 0.1",
        "lr": "the loss of all 48 points goes up and down by more than 0.2",
    }
    _says_each(her, found, "diagnosis.tests.longer.predicts", own)


def branches_apart(her: Newcomer, found: Finding) -> None:
    """What is done after each observation: the finding asks for it by hypothesis."""
    her.read(found, r"(what is done for each observation)")
    own = {"placed": "place the 3 points anew, then train", "lr": "halve lr, then train"}
    shown = "\n".join(her.prints)
    _says_each(her, Finding(field=found.field, says=shown), found.field, own)


def _says_each(her: Newcomer, found: Finding, name: str, own: Mapping[str, str]) -> None:
    names = dict.fromkeys(re.findall(r'(\w+) = "\.\.\."', found.whole))
    assert list(names) == list(own), f"nothing printed says the form:\n{found.whole}"
    her.set(name, "{ " + ", ".join(f"{key} = {her.know(own[key])}" for key in names) + " }")


# --- desks: a folder with a plan that passes, and the store around it ---------------------------------------


class Workshop:
    """Makes the desks; what takes long is made once and copied."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder, self._nursery = folder, nursery

    def digits(self, desk: Path) -> None:
        """The bundled job; nobody pays for it."""
        shutil.copytree(ROOT / "jobs" / "digits", desk, ignore=LEFT_BEHIND)

    def written(self, desk: Path) -> None:
        """The bundled recipe, and a plan as raykit writes it."""
        self.digits(desk)
        (desk / "plan.toml").unlink()
        assert run_in(desk, "plan", "new", "--recipe", "recipe:DigitsVae")[0] == 0

    def paid(self, desk: Path) -> None:
        """The tiny job on machines that cost 80 dollars an hour."""
        write_job(desk, {"wall_h": "0.1"})
        _priced(desk, rate=80.0, ceiling=60.0)

    def beside(self, desk: Path) -> None:
        """The same, in a store where `tiny` was trained for the same decision, and paid for."""
        self.paid(desk)
        shutil.copytree(self._trained(), desk / "store")
        plan = desk / "plan.toml"
        plan.write_text(plan.read_text().replace('"tiny"', '"refit"', 1))

    def continued(self, desk: Path) -> None:
        """One that goes on from `tiny`."""
        self.beside(desk)
        with (desk / "plan.toml").open("a") as plan:
            plan.write(_CONTINUED)

    def team(self, desk: Path) -> None:
        """The team's continuation: its base trained here, its rows counted, its times measured."""
        made = self.folder / "team"
        if not made.exists():
            self.uncounted(made)
            _count(made, "refresh.toml", ROWS)
            for what, pool, time_s in _MEASURED:
                options = {"what": what, "pool": pool, "time-s": time_s, "how": "the bill of 2026-08-30"}
                _done(made, "measured", "refresh.toml", options)
        shutil.copytree(made, desk)

    def uncounted(self, desk: Path) -> None:
        """The same, with its base and nothing else."""
        self._files(desk)
        make_production(desk / "store")

    def search(self, desk: Path) -> None:
        """The team's search, without the shared file."""
        self._files(desk)
        _count(desk, "search.toml", list(ROWS)[:3])
        (desk / "raykit.toml").unlink()

    def _files(self, desk: Path) -> None:
        shutil.copytree(ROOT / "tests" / "users", desk, ignore=LEFT_BEHIND)

    def _trained(self) -> Path:
        made = self.folder / "trained"
        if not made.exists():
            plan = write_job(made / "tiny", {"wall_h": "0.1"})
            _priced(plan.parent, rate=1.0, ceiling=4.0)
            site = site_of(plan, str(made / "store"))
            log = site.run_log("test")
            claimed = claim(site, log, People(site.store, site.name), None)
            ((code, out),) = [
                rank.wait() for rank in Launches(self._nursery, claimed.task).ranks(claimed.task)
            ]
            assert code == 0, out
            end = Released(launch=claimed.task.launch, reason="completed")
            site.run_log("test").append(lambda entries: [end], at=1.8e9)
        return made / "store"


_CONTINUED = """
[base]
candidate     = "tiny"
start         = "continue"
keep          = ["weights"]
against_as_is = "Its ratio of 0.57 is above the 0.4 that the tests would rest on."
"""

_MEASURED = (
    ("gates", "train", "4320"),
    ("setup", "train", "1440"),
    ("drain", "train", "360"),
    ("qc", "qc", "47700"),
    ("generate", "generate", "67320"),
    ("compare", "generate", "2700"),
    ("update", "train", "2.19"),
)


def _priced(folder: Path, *, rate: float, ceiling: float) -> None:
    plan = folder / "plan.toml"
    text = plan.read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling:g}")
    price = f'usd_per_hour = {{ rate = {rate}, source = "invoice 2026-10", billed = "resource" }}'
    plan.write_text(f"{text}\n[pools.train]\ngpus         = 0\n{price}\n")


def _count(desk: Path, plan: str, sources: Iterable[str]) -> None:
    for source in sources:
        _done(desk, "counted", plan, {"source": source, "rows": str(ROWS[source]), "how": INDEX})


def _done(desk: Path, command: str, what: str, options: Mapping[str, str]) -> None:
    """What Mira says of it before the mistake is made."""
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    code, _, err = run_in(desk, command, what, *words, "--by", MIRA)
    assert code == 0, err


def run_in(desk: Path, *words: str) -> tuple[int, str, str]:
    """One command line in a folder, as somebody types it there: (exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        del sys.modules[name]  # the team's own `jobs`, and not the one beside this suite
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(desk):
        for name in ("RAYKIT_ROOT", "RAYKIT_PERSON", "RAYKIT_DEBUG", "COLUMNS"):
            patch.delenv(name, raising=False)
        patch.setattr(sys, "stdin", io.StringIO())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    return code, out.getvalue(), err.getvalue()


# --- the cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mistake, and what a newcomer does about each finding that it leads to."""

    title: str
    desk: Callable[[Workshop, Path], None]
    plan: str = "plan.toml"
    file: str = ""
    """The file that the mistake is in, if it is not the plan."""
    mistake: tuple[tuple[str, str], ...] = ()
    """(what the file says, what it says by mistake)"""
    snippet: str = ""
    """The mistake as the page shows it, where it is not simply what was written."""
    note: str = ""
    """One sentence for the page."""
    moves: Mapping[str, Move]
    """By the field of a finding."""
    exits: tuple[int, ...]
    """The exit code of each refusal."""
    whole: bool = False
    """Whether the page shows the statement above the refusal, too."""


FILE = (
    Case(
        title="A key by the name it has elsewhere",
        desk=Workshop.digits,
        mistake=(("updates          = 2000", "steps            = 2000"),),
        moves={"run.steps": renames(r"did you mean (\w+)\?"), "run.updates": is_settled},
        exits=(2,),
    ),
    Case(
        title="Text without quotes",
        desk=Workshop.digits,
        mistake=(('stop             = "never"', "stop             = never"),),
        moves={"the file": quotes_text},
        exits=(2,),
    ),
    Case(
        title="A misspelt parameter of the recipe",
        desk=Workshop.digits,
        mistake=(("width = 32", "widht = 32"),),
        moves={"run.params.widht": renames_to_close(r"one of (.*)")},
        exits=(2,),
    ),
    Case(
        title="A number where a rule belongs",
        desk=Workshop.digits,
        mistake=(('fail       = { ratio = "> 0.35" }', "fail       = { ratio = 0.35 }"),),
        moves={"qc.fail.ratio": takes(r'\{ ratio = (".*?") \}')},
        exits=(2,),
    ),
    Case(
        title="A new plan that nobody has filled in",
        desk=Workshop.written,
        snippet="```console\n$ raykit plan new --recipe recipe:DigitsVae\n```",
        note="Twelve answers, and nothing that could be looked up is among them. No threshold of quality is proposed: "
        "the one that is shown is an example.",
        moves={
            "decision": knows("Which checkpoint of this VAE makes the synthetic digit set?"),
            "if_no": knows("No checkpoint passes: make no set, and look at the latent width next."),
            "claim.unit": knows("one 8x8 grey-level image"),
            "claim.target": knows("the image itself; no label is predicted"),
            "claim.population": knows("the 1,797 digits that scikit-learn ships"),
            "claim.worthwhile": knows(0.01),
            "claim.success": knows("development ratio at most 0.35"),
            "claim.compare": knows(["mean-image"]),
            "run.updates": knows(2000),
            "qc.owner": knows("ada"),
            "qc.fail": takes(r"(\{ ratio = .*? \})"),
            "budget.ceiling_usd": knows(1),
        },
        exits=(2,),
    ),
    Case(
        title="A recipe that fails when it is imported",
        desk=Workshop.digits,
        file="recipe.py",
        mistake=(("lr: float = 1e-3", 'lr: float = float("1e-3,")'),),
        moves={"recipe": mends_the_recipe},
        exits=(2,),
    ),
    Case(
        title="A shared file that is not there",
        desk=Workshop.search,
        plan="search.toml",
        snippet='```toml\n[claim]\nfrom = "raykit.toml"    # which was left behind when the plan was copied\n```',
        moves={
            "claim.from": drops,
            "claim.unit": knows("one document"),
            "claim.target": knows("its next byte-pair token, scored as bits per byte"),
            "claim.population": knows("documents crawled up to 2026-10, English and code"),
            "claim.success": knows("better than lr = 6e-5 by at least 0.004"),
        },
        exits=(2, 2),
    ),
)

DECIDES = (
    Case(
        title="No word about what follows from a no",
        desk=Workshop.digits,
        mistake=(('if_no    = "No checkpoint passes: make no set, and look at the latent width next."\n', ""),),
        moves={"if_no": knows("Make no set, and look at the latent width next.")},
        exits=(2,),
    ),
    Case(
        title="Validation as a role",
        desk=Workshop.digits,
        mistake=(
            ("development = 0.15                          # selects\n", ""),
            ('report_only = 0.15                          # other tools say "validation": it reports, it never selects',
             "validation  = 0.30"),
        ),
        moves={"splits.validation": roles_for_validation},
        exits=(2,),
    ),
    Case(
        title="Shares that are more than the whole",
        desk=Workshop.digits,
        mistake=(("train       = 0.70", "train       = 0.80"),),
        moves={"splits": knows(0.7, at="splits.train")},
        exits=(2,),
    ),
    Case(
        title="Selection by rows that only report",
        desk=Workshop.digits,
        mistake=(('"min development.ratio"', '"min report_only.ratio"'),),
        moves={"run.select": selects_by_development},
        exits=(2,),
    ),
    Case(
        title="A check between two checkpoints",
        desk=Workshop.digits,
        mistake=(("every      = 200", "every      = 250"),),
        moves={"qc.every": takes(r"a multiple of run\.checkpoint_every \((\d+)\)")},
        exits=(2,),
    ),
    Case(
        title="A comparison that cannot see what matters",
        desk=Workshop.paid,
        mistake=(
            ("[run]\n", '[comparison]\narms       = { narrow = {}, wide = { "params.width" = 32 } }\n'
             'varies     = "params.width"\ndetectable = 0.05\n\n[run]\n'),
        ),
        note="More seeds would cost more, so this newcomer says what would really change the decision.",
        moves={"comparison.detectable": takes(r"is ([\d.]+), and", at="claim.worthwhile")},
        exits=(3,),
    ),
    Case(
        title="A test that every hypothesis passes",
        desk=Workshop.paid,
        mistake=(
            ("[run]\n", '[diagnosis.hypotheses]\nplaced = { says = "3 of the points are placed wrongly." }\n'
             'lr     = { says = "The learning rate is too high." }\n\n[diagnosis.tests.longer]\n'
             'does     = "40 updates on the 48 rows that train"\ncost_usd = 1.0\ncovers   = { rows = 48 }\n'
             'predicts = { otherwise = "the loss goes on falling" }\n'
             'next     = { otherwise = "train the whole run" }\n\n[run]\n'),
        ),
        moves={
            "diagnosis.tests": predicts_apart,
            "diagnosis.tests.longer.predicts": is_settled,
            "diagnosis.tests.longer.next": branches_apart,
        },
        exits=(3, 3),
    ),
)  # fmt: skip

SEARCHES = (
    Case(
        title="A search that is judged by rows that only report",
        desk=Workshop.digits,
        plan="search.toml",
        mistake=(('metric     = "development.ratio"', 'metric     = "report_only.ratio"'),),
        moves={"search.metric": judges_by_development},
        exits=(2,),
    ),
    Case(
        title="More repeats than there are trials",
        desk=Workshop.digits,
        plan="search.toml",
        mistake=(("top = 2", "top = 12"),),
        moves={"search.repeats.top": takes(r"at most (\d+)")},
        exits=(2,),
    ),
    Case(
        title="A grid with another number of settings than there are trials",
        desk=Workshop.digits,
        plan="search.toml",
        mistake=(
            ('name = "optuna.tpe"', 'name = "grid"'),
            ("{ loguniform = [1e-4, 5e-2] }", "{ choice = [1e-3, 5e-3] }"),
        ),
        moves={"search.trials": takes(r"\b(\d+): every setting of the grid")},
        exits=(2,),
    ),
    Case(
        title="A scheduler that comes too late",
        desk=Workshop.digits,
        plan="search.toml",
        mistake=(("grace_updates = 100", "grace_updates = 400"),),
        moves={"search.scheduler.grace_updates": knows(200)},
        exits=(2,),
    ),
)

MONEY = (
    Case(
        title="A pool without a rate",
        desk=Workshop.paid,
        mistake=(('usd_per_hour = { rate = 80.0, source = "invoice 2026-10", billed = "resource" }\n', ""),),
        moves={
            "pools.train.usd_per_hour": takes_form(
                r"(\{ rate = .*\})", rate="80.0", source='"invoice 2026-11"'
            )
        },
        exits=(2,),
    ),
    Case(
        title="A rate that nobody has named a source for",
        desk=Workshop.paid,
        mistake=(('{ rate = 80.0, source = "invoice 2026-10", billed = "resource" }', "80.0"),),
        moves={
            "pools.train.usd_per_hour": takes_form(
                r"(\{ rate = .*\})", rate="80.0", source='"invoice 2026-11"'
            )
        },
        exits=(2,),
    ),
    Case(
        title="A ceiling with no room to confirm the result",
        desk=Workshop.team,
        plan="refresh.toml",
        mistake=(("ceiling_usd = 900", "ceiling_usd = 824"),),
        moves={"budget": takes(r"at least ([\d.]+)", at="budget.ceiling_usd")},
        exits=(3,),
    ),
    Case(
        title="Five dollars and no word on anything shorter",
        desk=Workshop.paid,
        mistake=(('first     = "It is the shortest run of this suite: 20 updates."\n', ""),),
        moves={
            "value.first": knows(
                "5 updates end before the learning rate has fallen: they cannot tell the two apart."
            )
        },
        exits=(2,),
    ),
    Case(
        title="A reason that is only a habit",
        desk=Workshop.paid,
        mistake=(
            ("It is the shortest run of this suite: 20 updates.", "A full run first is standard practice."),
        ),
        note="A check of words, not of sense: it asks once for what the habit is worth.",
        moves={
            "value.first": knows("5 updates lose 0.2 of the ratio, which is more than the 0.01 that decides.")
        },
        exits=(3,),
    ),
)

THERE = (
    Case(
        title="A base by a name that is none",
        desk=Workshop.team,
        plan="refresh.toml",
        mistake=(('candidate      = "lm1b-prod"  ', 'candidate      = "lm1b-prd"   '),),
        moves={"base.candidate": takes(r"close: ([\w.-]+)", '"{}"')},
        exits=(2,),
    ),
    Case(
        title="Rows that nobody has counted",
        desk=Workshop.uncounted,
        plan="refresh.toml",
        snippet='```toml\n[data]\ntrain = ["s3://corp/docs@v7", "s3://corp/docs-new@2026-11"]    '
        "# and this store has never heard of them\n```",
        moves={"data": counts_the_rows},
        exits=(2,),
    ),
    Case(
        title="Weights of another width",
        desk=Workshop.continued,
        mistake=(("{ width = 16 }", "{ width = 32 }"),),
        moves={"base.start": takes(r"run\.params\.width: (\d+) -> \d+", at="run.params.width")},
        exits=(3,),
    ),
    Case(
        title="From the start, beside weights that were paid for",
        desk=Workshop.beside,
        snippet='```toml\nname     = "refit"\ndecision = "Does the test pass?"    # `tiny` was trained for it in this '
        "store, and the plan has no [base]\n```",
        note="The new plan is written from that of the weights: only its open lines are left to say.",
        moves={
            "base": runs(),
            "base.start": is_settled,
            "value.remains": is_settled,
            "decision": knows("Do 10 updates more of tiny bring its ratio below 0.4?"),
            "if_no": knows("Keep tiny."),
            "claim.success": knows("development ratio better by at least 0.01"),
            "base.against_as_is": knows("Its ratio of 0.57 is above the 0.4 that the tests would rest on."),
            "base.against_pilot": knows("10 updates are the pilot."),
            "run.updates": knows(10),
            "budget.ceiling_usd": knows(4),
        },
        exits=(3, 2),
    ),
    Case(
        title="A fresh start that nobody has approved",
        desk=Workshop.team,
        plan="refresh.toml",
        mistake=(('start          = "continue"', 'start          = "fresh"   '),),
        note="A restart is a request of its own, and a person answers for it by name.",
        moves={
            "base.keep": drops,
            ALL_OF_IT: runs(WORDS="the tokenizer of the base splits code wrongly: issue 412", NAME=MIRA),
            "base.reason": knows(
                "0.02 bits per byte on code, by the tokenizer test of 2026-11-12; a worthwhile 0.004."
            ),
            "base.because": takes(r"\b(base-invalid)\b", '"{}"'),
            "base.invalid_without": knows(
                "Every embedding of a code token would be one of the old tokenizer."
            ),
            "base.against_continue": knows("The embeddings of 31,000 code tokens cannot be continued."),
            "base.against_replay": knows("Replay keeps the same embeddings, and would lose the same 0.02."),
        },
        exits=(2, 3, 2),
        whole=True,
    ),
)

GROUPS = {
    "The file": FILE,
    "What decides": DECIDES,
    "A search": SEARCHES,
    "Money": MONEY,
    "What is there already": THERE,
}
CASES = [case for group in GROUPS.values() for case in group]


# --- a case from its mistake to its lock --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One refusal, and what the newcomer did about it."""

    command: str
    printed: str
    diff: str
    ran: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A case as it went."""

    case: Case
    snippet: str
    rounds: tuple[Round, ...]
    outcome: str


class Stories:
    """Every case is told once, by whichever test asks first."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._told: dict[str, Story] = {}

    def of(self, case: Case) -> Story:
        if case.title not in self._told:
            self._told[case.title] = self._tell(case)
        return self._told[case.title]

    def _tell(self, case: Case) -> Story:
        desk = self._workshop.folder / f"desk-{CASES.index(case)}"
        case.desk(self._workshop, desk)
        snippet = _make_mistake(case, desk)
        her = Newcomer(case.plan, {name: (desk / name).read_text() for name in _editable(desk)})
        rounds: list[Round] = []
        seen: set[str] = set()
        while True:
            before = _store(desk)
            code, out, err = run_in(desk, "plan", "check", her.plan)
            her.prints += [out, err]
            assert _store(desk) == before, "a check has written into the store"
            lock = (desk / her.plan).with_suffix(".lock")
            if code == 0:
                Lock.from_bytes(lock.read_bytes(), lock.name)
                assert seen == case.moves.keys(), "a move that no finding asked for"
                assert [len(rounds), err] == [len(case.exits), ""]
                return Story(case=case, snippet=snippet, rounds=tuple(rounds), outcome=neutral(out, desk))
            assert len(rounds) < min(MAX_ROUNDS, len(case.exits)), f"still refused:\n{err}"
            assert (code, err.splitlines()[-1]) == (case.exits[len(rounds)], f"exit {code}"), err
            assert "Traceback" not in err and not list(desk.glob("*.lock"))
            shown = out + err if case.whole and "refused:" in err else err
            command = f"raykit plan check {her.plan}"
            seen |= {finding.field for finding in findings(err)}
            diff, ran = self._mend(case, her, desk, findings(err))
            rounds.append(Round(command=command, printed=neutral(shown, desk), diff=diff, ran=ran))

    def _mend(self, case: Case, her: Newcomer, desk: Path, found: Sequence[Finding]) -> tuple[str, str]:
        """Let her do what she makes of a print: the changes to her files, and what her commands printed."""
        assert found, "nothing that was printed could be read"
        before, her.commands = dict(her.files), []
        for finding in found:
            assert finding.field in case.moves, f"what now?\n{finding.field}\n{finding.whole}"
            case.moves[finding.field](her, finding)
        assert unprinted(her, before) == set(), "words that nobody has printed"
        assert her.files != before or her.commands, "nothing was done"
        ran = []
        for command in her.commands:
            code, out, err = run_in(desk, *command)
            assert code == 0, err
            her.prints.append(out)
            ran.append(f"$ {shlex.join(['raykit', *command])}\n{neutral(out, desk).rstrip()}\n")
            if made := re.search(r"wrote +(\S+\.toml)", out):
                her.plan = made[1]
                her.text = (desk / her.plan).read_text()
                her.prints.append(her.text)  # raykit has written it, and she sees it in her editor
        diff = _diff(before, her.files)
        for name, text in her.files.items():
            (desk / name).write_text(text)
        return diff, "".join(ran)


def _make_mistake(case: Case, desk: Path) -> str:
    """Put the mistake in place; what the page shows of it."""
    path = desk / (case.file or case.plan)
    text = path.read_text()
    shown = []
    for right, wrong in case.mistake:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
        shown.append(wrong.strip("\n").removesuffix("\n\n[run]") if wrong.strip() else "")
    path.write_text(text)
    if case.snippet:
        return case.snippet
    lines = _around(text, [part for part in shown if part]) or _left_out(case)
    language = "python" if path.suffix == ".py" else "toml"
    return f"```{language}\n{lines}\n```"


def _around(text: str, parts: Sequence[str]) -> str:
    """The lines that hold these parts, under the heading of their table."""
    lines = text.splitlines()
    block: list[str] = []
    for part in parts:
        first = next(number for number, line in enumerate(lines) if part.splitlines()[0] in line)
        heading = next((line for line in reversed(lines[: first + 1]) if line.startswith("[")), None)
        if heading and heading not in block and heading != lines[first]:
            block.append(heading)
        block += lines[first : first + len(part.splitlines())]
    return "\n".join(line.partition("  #")[0].rstrip() for line in block)


def _left_out(case: Case) -> str:
    ((right, _),) = case.mistake
    return f"# left out: {' '.join(right.split())}"


def _editable(desk: Path) -> list[str]:
    return [path.name for path in sorted(desk.iterdir()) if path.suffix in (".toml", ".py")]


def _store(desk: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (desk / "store").rglob("*") if path.is_file()}


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What she has changed, file by file."""
    blocks = []
    for name, text in after.items():
        lines = difflib.unified_diff(before.get(name, "").splitlines(), text.splitlines(), n=0, lineterm="")
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        if changed and name in before:
            blocks.append("\n".join(line.rstrip() for line in changed) + "\n")
    return "".join(blocks)


def neutral(text: str, desk: Path) -> str:
    """A print without what differs from one machine to another: paths and digests."""
    text = text.replace(f"{desk}/", "./").replace(f"{desk.resolve()}/", "./")
    return re.sub(r"\b(lock|sha256) [0-9a-f]{8}\b", r"\1 7f3a90c1", text)


@pytest.fixture(scope="module")
def stories(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    return Stories(Workshop(tmp_path_factory.mktemp("refusals"), nursery))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_what_is_printed_is_enough(case: Case, stories: Stories) -> None:
    assert len(stories.of(case).rounds) <= MAX_ROUNDS


def test_there_are_at_least_twelve_mistakes() -> None:
    assert len({case.title for case in CASES}) == len(CASES) >= 12


def test_a_printed_command_means_the_same_store(tmp_path: Path, stories: Stories) -> None:
    desk = tmp_path / "desk"
    stories._workshop.beside(desk)
    (desk / "store").rename(desk / "other")
    code, _, err = run_in(desk, "plan", "check", "plan.toml", "--root", "other")
    commands = [finding.passes for finding in findings(err) if finding.passes.startswith("raykit")]
    assert code == 3 and len(commands) == 2
    assert all(" --root other" in command for command in commands)


# --- the page -----------------------------------------------------------------------------------------------

HEAD = """\
# Refusals, and the way out of each

A refusal says everything at once: one numbered line for each finding with the key that it is about, what is wrong and
in which line of the file; then, where there is one, `have` (what is there), `want` (what would pass) and `pass` (a
line or a command that helps). A refusal that is not a list says the same as `at`, `rule` and `pass`. The exit code
comes last: 2 if something has to be changed or said, 3 if a check or a person stands in the way. By then nothing has
been started, written or spent.

Nobody has written this page. `tests/unit/test_refusals.py` makes each mistake, prints what is below, and lets a
newcomer mend it who may use only what was printed, and what nobody else can know: a price, a count, a reason. It is
refused at most three times before the lock is written. What stands above a refusal on the terminal, the plan in
short, is shown in the last case only. Long lines are folded, paths and digests are neutral.
"""


def page(stories: Stories) -> str:
    """The page as these runs make it."""
    blocks = [HEAD, _contents()]
    for name, group in GROUPS.items():
        blocks.append(f"## {name}\n")
        blocks += [_section(stories.of(case)) for case in group]
    return "\n".join(blocks)


def _contents() -> str:
    lines = ["| mistake | exit code |", "|---|---|"]
    for case in CASES:
        anchor = re.sub(r"[^a-z0-9 _-]", "", case.title.lower()).replace(" ", "-")
        lines.append(f"| [{case.title}](#{anchor}) | {', then '.join(map(str, case.exits))} |")
    return "\n".join(lines) + "\n"


def _section(story: Story) -> str:
    case = story.case
    note = [textwrap.fill(case.note, COLUMNS) + "\n"] if case.note else []
    parts = [f"### {case.title}\n", *note, f"{story.snippet}\n"]
    for number, each in enumerate(story.rounds):
        parts.append(_block("console", f"$ {each.command}\n{folded(each.printed)}"))
        parts.append("The newcomer:\n" if number == 0 else "And then:\n")
        parts += [_block("console", folded(each.ran))] if each.ran else []
        parts += [_block("diff", each.diff)] if each.diff else []
    last = story.outcome.rstrip().splitlines()[-1].strip()
    return "\n".join([*parts, f"Passes: `{' '.join(last.split())}`\n"])


def _block(language: str, text: str) -> str:
    assert "```" not in text
    return f"```{language}\n{text.rstrip()}\n```\n"


def folded(text: str) -> str:
    """Lines as a terminal of so many columns would show them, under their own beginning."""
    return "\n".join(part for line in text.splitlines() for part in _folded(line)) + "\n"


def _folded(line: str) -> Iterator[str]:
    label = re.match(r" ?\d+  \S+ +| *\S+ {2,}|  your why  ", line)
    hang = min(len(label[0]) if label else 2, 36)
    if len(line) <= COLUMNS or line.startswith("$"):
        yield line
        return
    yield from textwrap.wrap(
        line, COLUMNS, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )


def test_the_page_is_what_was_printed(stories: Stories) -> None:
    text = page(stories)
    if os.environ.get(WRITES) == "1":
        PAGE.write_text(text, encoding="utf-8")
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    lines = difflib.unified_diff(
        written.splitlines(), text.splitlines(), str(PAGE.name), "now", n=1, lineterm=""
    )
    assert written == text, f"{WRITES}=1 pytest {Path(__file__).name} writes it anew:\n" + "\n".join(
        [*lines][:60]
    )
