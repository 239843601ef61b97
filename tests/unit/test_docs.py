"""The documentation is true where a test can tell: links, commands, names of tests, the format, and its reader."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from makerun import make_run

import raykit
from raykit import errors, records
from raykit.cli.doctor import SETTINGS
from raykit.cli.main import COMMANDS, Group
from raykit.data.members import RoleRecord
from raykit.plan import Lock, LockedBase
from raykit.plan.tables import Generate, Search
from raykit.records.candidates import CandidateEvent
from raykit.store import layout
from raykit.store.local import LocalStore

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "jobs").glob("*/README.md")),
    *sorted((ROOT / "benchmarks").glob("README.md")),
    *sorted((ROOT / "cluster").glob("README.md")),
]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language; the fence may say more after it."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def code_of(text: str) -> str:
    """Everything that is set as code: fenced blocks and spans."""
    fenced = re.findall(r"^ *```.*?\n(.*?)^ *```$", text, re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S))
    return "\n".join([*fenced, *spans])


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading, without its head."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows: list[list[str]] = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


# --- links and names ----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), f"{link} is not there"
        assert target.resolve().is_relative_to(ROOT), f"{link} leaves the project"
        assert not anchor or anchor in anchors(target), f"{link} has no such heading"


@every_page
def test_every_command_that_is_named_exists(page: Path) -> None:
    for name, second in re.findall(r"(?<!from )\braykit ([a-z]+)(?: ([a-z]+))?", code_of(page.read_text())):
        assert name in COMMANDS, f"raykit {name}"
        command = COMMANDS[name]
        if isinstance(command, Group) and second and command.own is None:
            assert second in command.entries, f"raykit {name} {second}"


@every_page
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, name in re.findall(r"`([\w/.-]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^ *(def|class) {name}\(", text_of(file), re.M), f"{file}::{name}"


@every_page
def test_every_file_of_the_project_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:raykit|tests|docs|jobs|benchmarks)/[\w/.-]+\.(?:py|md|toml))`", page.read_text()
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


# --- the readme ---------------------------------------------------------------------------------------------


def command_names() -> Iterator[str]:
    for name, command in COMMANDS.items():
        if isinstance(command, Group):
            yield from [] if command.own is None else [name]
            yield from (f"{name} {inner}" for inner in command.entries)
        else:
            yield name


def test_the_readme_lists_every_command() -> None:
    listed = [
        re.sub(r"^`raykit ([a-z -]+?)(?: [A-Z/]+)*`$", r"\1", row[0]) for row in readme_table("command")
    ]
    assert listed == list(command_names())


def readme_table(heading: str) -> list[list[str]]:
    return table(text_of("README.md"), heading)


def all_errors(root: type[errors.RaykitError] = errors.RaykitError) -> Iterator[type[errors.RaykitError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from all_errors(child)


def test_exit_codes_are_those_of_the_errors() -> None:
    codes = {0, *(error.exit_code for error in all_errors())}
    assert {int(row[0]) for row in readme_table("code")} == codes
    listed = {int(row[0]): row[1] for row in table(text_of("docs/OPERATIONS.md"), "code")}
    for error in all_errors():
        group = error.exit_code
        if error.kind not in ("broken", "unknown", "insecure", "refused"):  # never raised by themselves
            assert f"`{error.kind}`" in listed[group], f"{error.kind} is not among the kinds of {group}"


def test_the_recipe_is_the_one_that_is_tested() -> None:
    # tests/unit/test_digits_recipe.py trains the one in docs/RECIPES.md
    assert blocks(text_of("README.md"), "python")[0] == blocks(text_of("docs/RECIPES.md"), "python")[0]


def test_the_changelog_is_of_this_version() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert version in text_of("CHANGELOG.md")


# --- lists that must be whole -------------------------------------------------------------------------------


def test_every_invariant_has_its_place() -> None:
    text = text_of("docs/INVARIANTS.md")
    kept = re.findall(r"^### (I\d+):", text, re.M)
    assert kept == [f"I{n}" for n in range(1, 16)]
    for part in re.split(r"^### ", text, flags=re.M)[1:]:
        assert "*Tests.* `" in part, f"{part.partition(':')[0]} names no test"


def test_every_goal_says_its_state_and_names_its_tests() -> None:
    # covers S22
    rows = table(text_of("docs/THREAT_MODEL.md"), "id")
    assert [row[0] for row in rows] == [f"S{n}" for n in range(1, 23)]
    for row in rows:
        assert row[2] in ("kept", "partly", "later")
        assert row[2] != "kept" or "::test_" in row[3], f"{row[0]} is said to be kept, and names no test"


def test_the_facts_of_a_resume_are_all_named() -> None:
    tree = ast.parse(text_of("raykit/train/facts.py"))
    (facts,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "FACT_ALLOWS"
    )
    assert facts is not None
    for name in ast.literal_eval(facts):
        assert f"`{name}`" in text_of("docs/KNOWN_LIMITS.md")


def test_every_setting_is_explained() -> None:
    for name in SETTINGS:
        assert f"`{name}" in text_of("docs/OPERATIONS.md")


# --- the format ---------------------------------------------------------------------------------------------

FORMAT = text_of("docs/FORMAT.md")
SAMPLES = {
    "experiment": "digits-vae",
    "run": "main",
    "n": "000000000012",
    "digest": "0" * 64,
    "role": "train",
    "attempt": "2",
    "first": "00000001",
    "last": "00000200",
    "series": "development",
    "update": "00000400",
    "file": "model.safetensors",
    "rank": "0",
    "path": "pages/index.html",
    "account": "digits-vae",
    "request": "0" * 64,
    "try": "2",
    "set": "digits",
    "contract": "0" * 64,
    "unit": "00000012",
    "chunk": "0" * 64,
    "search": "main",
}
PATTERNS = {
    "n": r"\d{12}",
    "digest": "[0-9a-f]{64}",
    "attempt": r"\d+",
    "first": r"\d{8,}",
    "last": r"\d{8,}",
    "update": r"\d{8,}",
    "series": "development|monitor",
    "request": "[0-9a-f]{64}",
    "try": r"\d+",
    "contract": "[0-9a-f]{64}",
    "unit": r"\d{8,}",
    "chunk": "[0-9a-f]{64}",
    "path": ".+",
}


def key_rows() -> list[tuple[str, str]]:
    return [(row[0].strip("`"), row[1].partition(",")[0]) for row in table(FORMAT, "key")]


def test_every_key_of_a_synthetic_set_is_explained() -> None:
    named = {row[0].strip("`") for row in table(text_of("docs/RECIPES.md"), "key of `[generate.NAME]`")}
    assert named == set(Generate.model_fields)


def test_every_key_of_a_search_is_explained() -> None:
    named = {row[0].strip("`") for row in table(text_of("docs/RECIPES.md"), "key of `[search]`")}
    assert named == set(Search.model_fields)


def test_every_key_of_the_format_is_one_that_raykit_makes() -> None:
    kinds = set()
    for pattern, kind in key_rows():
        known = layout.known(re.sub(r"<(\w+)>", lambda part: SAMPLES[part[1]], pattern))
        assert known is not None and known.kind == kind, pattern
        kinds.add(kind)
    assert kinds == {kind for kind, _ in layout._KINDS}
    derived = {row[1].partition(",")[0] for row in table(FORMAT, "key") if row[1].endswith(", derived")}
    assert derived == layout.DERIVED


def test_every_key_of_a_run_is_in_the_format(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    make_run(store)
    patterns = [
        re.compile(re.sub(r"<(\w+)>", lambda part: f"({PATTERNS.get(part[1], '[^/]+')})", re.escape(pattern)))
        for pattern, _ in key_rows()
    ]
    for item in store.list(""):
        assert sum(bool(pattern.fullmatch(item.key)) for pattern in patterns) == 1, item.key


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, block in re.findall(r"^```json record=(\w+)\n(.*?)^```$", FORMAT, re.M | re.S):
        yield name, json.loads(block)


def test_the_examples_have_the_fields_of_their_records() -> None:
    classes: dict[str, Any] = {
        **vars(records),
        "Lock": Lock,
        "LockedBase": LockedBase,
        "RoleRecord": RoleRecord,
    }
    seen = set()
    for name, example in examples():
        fields = {field.alias or key: field for key, field in classes[name].model_fields.items()}
        if name.endswith("Entry") or name in ("UnitReceipt", "SearchRegistration"):
            del example["self_sha256"]  # the file's own seal, around the record
        required = {key for key, field in fields.items() if field.is_required()}
        if name == "Lock":
            required.discard("settings")
        assert set(example) <= set(fields), name
        assert required <= set(example), name
        seen.add(name)
    assert {"RunEntry", "Lock", "RunRecord", "Row", "EvaluationRow", "MonitorRow", "Manifest"} <= seen
    assert {"AccountEntry", "AccountOf"} <= seen
    assert {"GenerationContract", "UnitReceipt", "SetManifest", "InputsManifest"} <= seen
    assert "SearchRegistration" in seen


UNIONS = {
    "Events of a run's log": records.RunEvent,
    "Events of an experiment's log": records.ExperimentEvent,
    "Events of a search's log": records.SearchEvent,
    "Events of the registry of candidates": CandidateEvent,
    "Events of the fleet's log": records.FleetEvent,
    "Events of an account's log": records.AccountEvent,
}


def kinds_of(union: Any) -> tuple[Any, ...]:
    """The events of a log; a union of one is that one."""
    inner = get_args(union)[0]
    return get_args(inner) or (inner,)


@pytest.mark.parametrize("heading", UNIONS)
def test_the_events_are_all_there_with_their_fields(heading: str) -> None:
    (at,) = (match.start() for match in re.finditer(f"^{heading}", FORMAT, re.M))
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table(FORMAT[at:], "event")}
    assert listed == {
        event.model_fields["event"].default: {
            field.alias or name for name, field in event.model_fields.items() if name != "event"
        }
        for event in kinds_of(UNIONS[heading])
    }


def test_every_log_has_its_table() -> None:
    entries = {
        cls for cls in vars(records).values() if isinstance(cls, type) and issubclass(cls, records.Entry)
    }
    unions = [get_args(cls.model_fields["events"].annotation)[0] for cls in entries - {records.Entry}]
    assert len(unions) == len(UNIONS)


# --- the reader in plain Python -----------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    (program,) = (block for block in blocks(FORMAT, "python") if "sys.argv" in block)
    assert len(program.splitlines()) <= 50
    path = tmp_path / "rows.py"
    path.write_text(program)
    return path


def read_rows(reader: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """Without site-packages: the standard library is all it has."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(reader), str(root), "digits"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_reader_prints_the_rows_that_count(reader: Path, tmp_path: Path) -> None:
    # covers HIST-15, I4: the run was killed at update 27 and resumed from 20
    make_run(LocalStore(tmp_path / "store"))
    done = read_rows(reader, tmp_path / "store")
    assert (done.returncode, done.stderr) == (0, "")
    rows = raykit.open(str(tmp_path / "store")).history("digits").rows()
    assert done.stdout.splitlines() == [row.to_bytes().decode() for row in rows]
    assert len(done.stdout.splitlines()) == 40


@pytest.mark.parametrize(
    "file", ["log/000000000003.json", "history/1/00000006-00000010.jsonl", "log/000000000001.json"]
)
def test_the_reader_refuses_what_was_changed(file: str, reader: Path, tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path / "store"))
    path = tmp_path / "store/experiments/digits/runs/main" / file
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    done = read_rows(reader, tmp_path / "store")
    assert done.returncode == 1
    assert f"{file} has changed" in done.stderr
    assert len(done.stdout.splitlines()) < 40
