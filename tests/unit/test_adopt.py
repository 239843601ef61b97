"""`raykit adopt`: weights that were made elsewhere, by their bytes; whatever else is refused leaves no trace."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load, save, save_file

from raykit.cli.main import main
from raykit.data import weights
from raykit.ids import sha256
from raykit.read.bases import base_facts, resolve_base
from raykit.store.candidates import read_adopted, read_candidates
from raykit.store.check import check
from raykit.store.local import LocalStore
from raykit.train.tensors import HostCopy


def model() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {
        "embed.weight": torch.randn(6, 4),
        "body.0.weight": torch.randn(4, 4).bfloat16(),
        "body.0.bias": torch.randn(4).half(),
        "seen": torch.tensor(12),
        "mask": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 3),
    }


def canonical_file(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The file that a checkpoint of these tensors would have here."""
    copy = HostCopy()
    copy.take(tensors)
    return b"".join(bytes(part) for part in copy.stream())


class Adopt:
    """Calls the command, with a person and a root."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = LocalStore(root)
        self._capsys = capsys

    def __call__(self, source: Path | str, name: str = "prod", *options: str) -> tuple[int, str]:
        code = main(["adopt", str(source), "--as", name, "--by", "mira", "--root", self.store.url, *options])
        told = self._capsys.readouterr()
        return code, told.out + told.err

    def is_empty(self) -> bool:
        return list(self.store.list("")) == []


@pytest.fixture
def adopt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Adopt:
    return Adopt(tmp_path / "store", capsys)


def sharded(folder: Path, tensors: Mapping[str, torch.Tensor], shards: int = 2) -> Path:
    """A folder as Hugging Face writes it."""
    folder.mkdir(parents=True)
    placed = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = dict(list(tensors.items())[number::shards])
        save_file(part, folder / name, metadata={"format": "pt"})
        placed.update(dict.fromkeys(part, name))
    index = {"metadata": {"total_size": 1}, "weight_map": placed}
    (folder / weights.INDEX).write_text(json.dumps(index))
    (folder / "config.json").write_text('{"layers": 2, "limit": [0.0, Infinity]}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def in_dcp(folder: Path, state: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


# --- what is adopted ----------------------------------------------------------------------------------------


def test_a_file_is_kept_byte_for_byte(adopt: Adopt, tmp_path: Path) -> None:
    # covers CAND-02
    source = tmp_path / "m.safetensors"
    save_file(model(), source, metadata={"format": "pt"})
    code, out = adopt(source)
    assert code == 0, out
    (event,) = read_candidates(adopt.store)
    manifest = read_adopted(adopt.store, event.manifest)
    assert manifest.model.sha256 == sha256(source.read_bytes())
    assert adopt.store.get(event.key.replace("manifest.json", "model.safetensors")) == source.read_bytes()
    assert (manifest.tensors, manifest.elements) == (6, sum(t.numel() for t in model().values()))
    assert check(adopt.store, read_data=True).findings == ()


def test_nothing_of_its_training_is_made_up(adopt: Adopt, tmp_path: Path) -> None:
    # covers CAND-04, CAND-07
    save_file(model(), tmp_path / "m.safetensors")
    code, out = adopt(tmp_path / "m.safetensors")
    assert code == 0
    assert "history    absent: nothing is known here of how it was trained" in out
    assert "mira says  nothing about it" in out
    (event,) = read_candidates(adopt.store)
    assert (event.history, event.update, event.rows, event.accelerator_ms, event.cost) == (
        "absent",
        0,
        *[None] * 3,
    )
    facts = base_facts(adopt.store, resolve_base(adopt.store, "prod"))
    assert (facts.updates, facts.rows, facts.accelerator_ms, facts.cost) == (None, None, None, None)


def test_what_people_say_of_it_is_labelled_as_said(adopt: Adopt, tmp_path: Path) -> None:
    # covers CAND-03, CAND-04, CAND-07
    save_file(model(), tmp_path / "m.safetensors")
    said = (
        "--updates",
        "95000",
        "--rows",
        "59022310",
        "--accelerator-hours",
        "461.6",
        "--role",
        "release-model",
    )
    code, out = adopt(tmp_path / "m.safetensors", "prod", *said, "--source-note", "hf:org/lm1b@91c2")
    assert code == 0
    assert "mira says  95,000 updates, 59,022,310 rows, 461.6 accelerator-hours, hf:org/lm1b@91c2" in out
    facts = base_facts(adopt.store, resolve_base(adopt.store, "prod"))
    assert (facts.said_by, facts.role, facts.history) == ("mira", "release-model", "absent")
    assert (facts.updates, facts.rows, facts.accelerator_ms) == (95_000, 59_022_310, 1_661_760_000)


def test_a_folder_of_shards_becomes_one_file_as_a_checkpoint_here_has_it(
    adopt: Adopt, tmp_path: Path
) -> None:
    source = sharded(tmp_path / "hf", model())
    code, out = adopt(source)
    assert code == 0, out
    assert "from a folder of 2 shards" in out
    assert "left out   tokenizer.json" in out
    (event,) = read_candidates(adopt.store)
    folder = event.key.removesuffix("manifest.json")
    assert adopt.store.get(folder + "model.safetensors") == canonical_file(model())
    assert adopt.store.get(folder + "config.json") == (source / "config.json").read_bytes()


def test_a_folder_with_one_file_is_that_file(adopt: Adopt, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    save_file(model(), folder / "model.safetensors")
    assert adopt(folder)[0] == 0
    (event,) = read_candidates(adopt.store)
    assert read_adopted(adopt.store, event.manifest).model.sha256 == sha256(
        (folder / "model.safetensors").read_bytes()
    )


@pytest.mark.parametrize(
    "state",
    [
        lambda tensors: tensors,
        lambda tensors: {"model": tensors, "optim": {"state": {"a": {"exp_avg": torch.ones(2)}}, "lr": 0.1}},
        lambda tensors: {"app": {"model": tensors, "step": 7}},
    ],
    ids=["bare", "model", "app.model"],
)
def test_a_dcp_folder_gives_the_same_bytes(state: Callable[[Any], Any], adopt: Adopt, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in model().items() if tensor.numel()}
    code, out = adopt(in_dcp(tmp_path / "dcp", state(tensors)), "prod", "--trust-pickle")
    assert code == 0, out
    (event,) = read_candidates(adopt.store)
    assert adopt.store.get(event.key.replace("manifest.json", "model.safetensors")) == canonical_file(tensors)


def test_names_that_begin_with_model_are_no_place(adopt: Adopt, tmp_path: Path) -> None:
    """Many models call their body `model`: nothing beside it may be lost."""
    tensors = {"model.layers.0.weight": torch.randn(2, 2), "lm_head.weight": torch.randn(2, 2)}
    assert adopt(in_dcp(tmp_path / "dcp", tensors), "prod", "--trust-pickle")[0] == 0
    (event,) = read_candidates(adopt.store)
    kept = load(adopt.store.get(event.key.replace("manifest.json", "model.safetensors")))
    assert kept.keys() == tensors.keys()


def test_what_a_dcp_folder_holds_beside_the_model_is_named(adopt: Adopt, tmp_path: Path) -> None:
    state = {"model": model(), "optim": {"state": {"a": {"exp_avg": torch.ones(2)}}, "lr": 0.1}, "step": 7}
    out = adopt(in_dcp(tmp_path / "dcp", state), "prod", "--trust-pickle")[1]
    assert "left out   optim (2 entries), step (1 entries)" in out


def test_the_same_weights_again_write_nothing(adopt: Adopt, tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    adopt(tmp_path / "m.safetensors")
    before = {
        item.key: (Path(adopt.store.url) / item.key).stat().st_mtime_ns for item in adopt.store.list("")
    }
    shutil.copy(tmp_path / "m.safetensors", tmp_path / "copy.safetensors")
    code, out = adopt(tmp_path / "copy.safetensors")
    assert (code, "adopted already; nothing was written" in out) == (0, True)
    after = {item.key: (Path(adopt.store.url) / item.key).stat().st_mtime_ns for item in adopt.store.list("")}
    assert before == after


def test_the_same_weights_in_other_shards_are_the_same(adopt: Adopt, tmp_path: Path) -> None:
    assert adopt(sharded(tmp_path / "two", model(), 2))[0] == 0
    code, out = adopt(sharded(tmp_path / "three", model(), 3))
    assert (code, "already" in out) == (0, True), out


def test_json_says_all_of_it(adopt: Adopt, tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    told = json.loads(adopt(tmp_path / "m.safetensors", "prod", "--json")[1])
    assert (told["new"], told["candidate"], told["history"], told["person"]) == (
        True,
        "prod",
        "absent",
        "mira",
    )
    assert [file["holds"] for file in told["files"]] == ["model"]
    assert json.loads(adopt(tmp_path / "m.safetensors", "prod", "--json")[1])["new"] is False


def test_what_is_known_of_adopted_weights_is_shown(
    adopt: Adopt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # covers CAND-03, CAND-04, CAND-07
    def ask(*words: str) -> str:
        assert main([*words, "--root", adopt.store.url]) == 0
        return capsys.readouterr().out

    save_file(model(), tmp_path / "m.safetensors")
    adopt(tmp_path / "m.safetensors", "prod", "--updates", "9500", "--source-note", "hf:org/lm1b@91c2")
    adopt(tmp_path / "m.safetensors", "prod", "--updates", "95000", "--correct")
    (event,) = read_candidates(adopt.store)
    file = sha256((tmp_path / "m.safetensors").read_bytes())
    text = ask("show", "prod")
    for part in (
        "prod, a registered candidate",
        "source     not known",
        f"manifest   sha256 {event.manifest}",
        "history    absent: nothing is known here of how it was trained",
        "mira says  95,000 updates (",
        "before     mira had said: 9,500 updates, hf:org/lm1b@91c2 (",
        "updates    95,000, as mira says",
        "rows       not known",
        "used by    no plan that is locked here",
        file,
    ):
        assert part in text
    found = json.loads(ask("show", "prod", "--json"))
    assert (found["candidate"], found["history"], found["said_by"], found["verifies"]) == (
        "prod",
        "absent",
        "mira",
        True,
    )
    assert [each["sha256"] for each in found["files"]] == [file]
    assert [each["update"] for each in found["statements"]] == [9500, 95_000]

    listed = ask("ls").splitlines()
    assert listed[0].split() == ["CANDIDATE", "ROLE", "ORIGIN", "UPDATE", "SIZE", "MANIFEST"]
    assert listed[1].split()[:4] == ["prod", "base", "adopted", "95,000"]
    assert listed[1].endswith(event.manifest[:8])
    (row,) = json.loads(ask("ls", "--json"))
    assert (row["candidate"], row["manifest"], row["objects"]) == ("prod", event.manifest, 2)
    assert event.key in ask("ls", "prod")
    assert "registered candidates: prod" in ask("status")
    assert main(["show", "prd", "--root", adopt.store.url]) == 2


def test_weights_that_are_broken_are_shown_to_be(
    adopt: Adopt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    adopt(tmp_path / "m.safetensors")
    (event,) = read_candidates(adopt.store)
    (Path(adopt.store.url) / event.key).unlink()
    assert main(["show", "prod", "--root", adopt.store.url]) == 0
    assert "bytes      BROKEN: " in capsys.readouterr().out
    assert main(["show", "prod", "--json", "--root", adopt.store.url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verifies"], found["files"]) == (False, None)


# --- names --------------------------------------------------------------------------------------------------


def test_a_name_stands_for_its_first_bytes(adopt: Adopt, tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    adopt(tmp_path / "m.safetensors")
    before = list(adopt.store.list(""))
    save_file({"other": torch.ones(2)}, tmp_path / "o.safetensors")
    code, out = adopt(tmp_path / "o.safetensors")
    assert (code, "prod stands for other weights" in out) == (2, True)
    assert "pass   give the new weights a name of their own" in out
    code, out = adopt(tmp_path / "m.safetensors", "prod2")
    assert (code, "registered already, as prod" in out) == (2, True)
    assert "pass   use prod in the plan" in out
    assert list(adopt.store.list("")) == before


def test_what_was_mistyped_is_corrected_and_stays_on_record(adopt: Adopt, tmp_path: Path) -> None:
    # covers CAND-29
    save_file(model(), tmp_path / "m.safetensors")
    code, out = adopt(tmp_path / "m.safetensors", "prod", "--correct")
    assert (code, "nothing was said of a candidate prod" in out) == (2, True)
    assert adopt.is_empty()
    adopt(tmp_path / "m.safetensors", "prod", "--updates", "9500", "--rows", "7")
    code, out = adopt(tmp_path / "m.safetensors", "prod", "--updates", "95000", "--rows", "7")
    assert (code, "was registered by mira with updates 9500, not 95000" in out) == (2, True)
    assert "--as prod --correct, with all that is so" in out
    code, out = adopt(tmp_path / "m.safetensors", "prod", "--updates", "95000", "--rows", "7", "--correct")
    assert code == 0
    assert "prod is adopted, and what was said of it is corrected" in out
    assert "mira says  95,000 updates, 7 rows" in out
    assert "before     mira had said: 9,500 updates, 7 rows" in out
    assert base_facts(adopt.store, resolve_base(adopt.store, "prod")).updates == 95_000
    again = adopt(tmp_path / "m.safetensors", "prod", "--updates", "95000", "--rows", "7")
    assert (again[0], "already; nothing was written" in again[1]) == (0, True), "the newest is what was said"
    assert check(adopt.store, read_data=True).findings == ()


def test_both_digests_have_their_names(adopt: Adopt, tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    _, out = adopt(tmp_path / "m.safetensors")
    (event,) = read_candidates(adopt.store)
    file = sha256((tmp_path / "m.safetensors").read_bytes())
    assert f"bytes      model.safetensors sha256 {file[:8]}, from " in out
    assert f"manifest   sha256 {event.manifest[:8]}, of the list of its files" in out


def test_a_store_that_this_begins_is_said_to_be_new(adopt: Adopt, tmp_path: Path) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    save_file({"other": torch.ones(2)}, tmp_path / "o.safetensors")
    assert f"a new store: {adopt.store.url}" in adopt(tmp_path / "m.safetensors")[1]
    assert "a new store" not in adopt(tmp_path / "o.safetensors", "other")[1]


def test_an_experiments_name_is_taken(adopt: Adopt, tmp_path: Path) -> None:
    from makerun import RunMaker

    RunMaker(adopt.store, experiment="digits").freeze()
    save_file(model(), tmp_path / "m.safetensors")
    code, out = adopt(tmp_path / "m.safetensors", "digits")
    assert (code, "digits is an experiment" in out) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rows", "-1"), "greater than or equal to 0"),
        (("--accelerator-hours", "nan"), "greater than or equal to 0"),
        (("--accelerator-hours", "1e300"), "is no time"),
        (("--source-note", "  "), "it says nothing"),
        (("--source-note", "x" * 3000), "3,000 characters"),
        (("--role", "best"), "best"),
    ],
)
def test_what_is_said_has_to_make_sense(
    options: tuple[str, ...], words: str, adopt: Adopt, tmp_path: Path
) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    code, out = adopt(tmp_path / "m.safetensors", "prod", *options)
    assert (code, words in out) == (2, True), out
    assert adopt.is_empty()


def test_somebody_brings_it(adopt: Adopt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    assert main(["adopt", str(tmp_path / "m.safetensors"), "--as", "prod", "--root", adopt.store.url]) == 2
    assert (
        main(["adopt", str(tmp_path / "m.safetensors"), "--as", "No", "--by", "m", "--root", adopt.store.url])
        == 2
    )
    assert adopt.is_empty()


# --- what is refused ----------------------------------------------------------------------------------------


def header(entries: Mapping[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def raw(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


ONE = json.dumps(entry("U8", [1], 0, 1)).encode()
TWICE = raw(b'{"a":' + ONE + b',"a":' + ONE + b"}") + b"1"
GOOD = save({"a": torch.ones(4), "b": torch.ones(2)})

FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is 0 bytes long"),
    "short": (b"\x01\x02", "it is 2 bytes long"),
    "truncated": (GOOD[:-1], "it was cut, or not copied whole"),
    "truncated in the header": (GOOD[:40], "its header would be"),
    "too long": (GOOD + b"\0", "its tensors would end at byte"),
    "a header of 2^60 bytes": (struct.pack("<Q", 2**60) + b"{}", "would be 1,152,921,504,606,846,976 bytes"),
    "not JSON": (struct.pack("<Q", 8) + b"not json", "is not valid JSON"),
    "a list": (header([]), "its header is no table"),  # type: ignore[arg-type]
    "no tensors": (header({}), "it holds 0 tensors"),
    "a name twice": (TWICE, "is there twice"),
    "an unknown type": (header({"a": entry("F8_E8M0", [1], 0, 1)}, b"1"), "is of type F8_E8M0"),
    "an overlap": (
        header({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"123"),
        "the bytes of b are not where they have to be",
    ),
    "a hole": (header({"a": entry("U8", [1], 1, 2)}, b"12"), "the bytes of a are not where they have to be"),
    "a shape of another size": (header({"a": entry("F32", [2], 0, 4)}, b"1234"), "the bytes of a are not"),
    "a negative shape": (header({"a": entry("U8", [-1], 0, 1)}, b"1"), "not made of whole numbers"),
    "a shape of floats": (header({"a": entry("U8", [1.0], 0, 1)}, b"1"), "not made of whole numbers"),  # type: ignore[list-item]
    "a huge shape": (header({"a": entry("U8", [2**47, 2**47], 0, 1)}, b"1"), "the bytes of a are not"),
    "no offsets": (header({"a": {"dtype": "U8", "shape": [1]}}, b"1"), "is not described by"),
    "metadata of numbers": (header({"__metadata__": {"a": 1}}), "its metadata is not a table of texts"),
    "a NaN": (save({"a": torch.tensor([1.0, float("nan")])}), "a holds a NaN"),
    "a half NaN": (save({"a": torch.tensor([float("nan")]).half()}), "a holds a NaN"),
    "a bfloat16 NaN": (save({"a": torch.tensor([1.0, -float("nan")]).bfloat16()}), "a holds a NaN"),
    "a double NaN": (save({"a": torch.tensor([float("nan")]).double()}), "a holds a NaN"),
    "a zip pickle": (b"PK\x03\x04" + bytes(100), "is a pickle"),
    "a raw pickle": (pickle.dumps({"a": 1}), "is a pickle"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_whole_model_is_refused(what: str, adopt: Adopt, tmp_path: Path) -> None:
    data, words = FILES[what]
    (tmp_path / "m.safetensors").write_bytes(data)
    code, out = adopt(tmp_path / "m.safetensors")
    assert (code, words in out) == (2, True), out
    assert adopt.is_empty()


def test_infinity_is_a_number(adopt: Adopt, tmp_path: Path) -> None:
    """Masks hold it; whether training can start from it is for the first gate."""
    tensors = {"a": torch.tensor([float("inf"), -1.0]), "b": torch.tensor([-float("inf")]).bfloat16()}
    save_file(tensors, tmp_path / "m.safetensors")
    assert adopt(tmp_path / "m.safetensors")[0] == 0


def test_a_huge_file_is_refused_before_it_is_read(adopt: Adopt, tmp_path: Path) -> None:
    with (tmp_path / "m.safetensors").open("wb") as file:
        file.write(GOOD)
        file.truncate(2**40 + 1)  # sparse
    code, out = adopt(tmp_path / "m.safetensors")
    assert (code, "at most 1,099,511,627,776" in out) == (2, True), out


@pytest.mark.parametrize(
    "what", ["missing", "folder", "pipe", "device", "link", "link to a folder", "bin", "url"]
)
def test_a_source_that_is_no_plain_file_is_refused(what: str, adopt: Adopt, tmp_path: Path) -> None:
    source, real = tmp_path / "m.safetensors", tmp_path / "real.safetensors"
    save_file(model(), real)
    match what:
        case "folder":
            source.mkdir()
        case "pipe":
            os.mkfifo(source)
        case "device":
            source = Path("/dev/null")
        case "link":
            source.symlink_to(real)
        case "link to a folder":
            source.symlink_to(tmp_path)
        case "bin":
            source = tmp_path / "pytorch_model.bin"
            torch.save(model(), source)
    code, out = adopt("s3://bucket/model" if what == "url" else source)
    assert code == 2, out
    words = {
        "missing": "cannot be read: No such file",
        "folder": "holds no weights",
        "pipe": "is not a plain file",
        "device": "is not a plain file",
        "link": "is a symbolic link",
        "link to a folder": "is a symbolic link",
        "bin": "pytorch_model.bin is a pickle: to read it is to run whatever code is in it",
        "url": "is not a path of this machine",
    }
    assert words[what] in out
    assert adopt.is_empty()


def index_of(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / weights.INDEX
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


SHARD = "model-00001-of-00002.safetensors"

FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a shard is missing": (lambda f: (f / SHARD).unlink(), f"{SHARD} cannot be read: No such file"),
    "a shard is cut": (lambda f: (f / SHARD).write_bytes((f / SHARD).read_bytes()[:-3]), "it was cut"),
    "a shard is a link": (
        lambda f: ((f / SHARD).rename(f.parent / "blob"), (f / SHARD).symlink_to(f.parent / "blob")),
        "is a symbolic link",
    ),
    "no index": (lambda f: (f / weights.INDEX).unlink(), "holds 2 safetensors files and no"),
    "an index that is no JSON": (lambda f: (f / weights.INDEX).write_text("{"), "is not valid JSON"),
    "an index without a map": (lambda f: index_of(f, lambda i: i.pop("weight_map")), "has no weight_map"),
    "a path out of the folder": (
        lambda f: index_of(f, lambda i: i["weight_map"].update({"seen": "../real.safetensors"})),
        "a safetensors file beside the index",
    ),
    "a tensor that is in none": (
        lambda f: index_of(f, lambda i: i["weight_map"].update({"ghost": SHARD})),
        f"ghost is not in {SHARD}",
    ),
    "a tensor that the index leaves out": (
        lambda f: index_of(f, lambda i: i["weight_map"].pop("embed.weight")),
        "embed.weight is not in the index",
    ),
    "a tensor that is in two": (
        lambda f: save_file({**load((f / SHARD).read_bytes()), "body.0.weight": torch.ones(2)}, f / SHARD),
        "differ",
    ),
    "a config that is no JSON": (
        lambda f: (f / "config.json").write_text("layers: 2"),
        "config.json is not JSON",
    ),
    "a config that is a link": (
        lambda f: ((f / "config.json").unlink(), (f / "config.json").symlink_to("tokenizer.json")),
        "is a symbolic link",
    ),
    "a config that is too long": (
        lambda f: (f / "config.json").write_text(json.dumps({"a": "x" * 5_000_000})),
        "config.json is too long",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_that_is_no_whole_model_is_refused(what: str, adopt: Adopt, tmp_path: Path) -> None:
    change, words = FOLDERS[what]
    folder = sharded(tmp_path / "hf", model())
    change(folder)
    code, out = adopt(folder)
    assert (code, words in out) == (2, True), out
    assert adopt.is_empty()


def test_a_folder_of_pickles_is_refused(adopt: Adopt, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    torch.save(model(), folder / "pytorch_model.bin")
    (folder / "config.json").write_text("{}")
    code, out = adopt(folder)
    assert (code, "is a pickle" in out, "safetensors.torch.save_file" in out) == (2, True, True)


# --- DCP ----------------------------------------------------------------------------------------------------


def test_a_dcp_folder_needs_a_word_since_it_is_made_of_pickles(adopt: Adopt, tmp_path: Path) -> None:
    code, out = adopt(in_dcp(tmp_path / "dcp", model()))
    assert (code, "are pickles" in out, "--trust-pickle" in out) == (2, True, True)
    assert adopt.is_empty()


class Evil:
    """What a pickle can do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._path),))


def change_metadata(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / ".metadata"
    found = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(change(found) or found))


def other_path(name: str) -> Callable[[Any], Any]:
    def change(found: Any) -> None:
        for info in found.storage_data.values():
            info.relative_path = name

    return change


def resized(found: Any) -> None:
    entry = found.state_dict_metadata["embed.weight"]
    entry.size = torch.Size([1_000_000, 1_000_000])
    entry.chunks[0].sizes = entry.size


def with_hole(found: Any) -> None:
    found.state_dict_metadata["embed.weight"].chunks.clear()


def longer(found: Any) -> None:
    next(iter(found.storage_data.values())).length = 10**9


METADATA: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a path out of the folder": (other_path("../m.safetensors"), "which is not in the folder"),
    "an absolute path": (other_path("/etc/passwd"), "which is not in the folder"),
    "a part that is longer than its file": (longer, "is shorter than .metadata says"),
    "a tensor that is larger than all files": (resized, "describes more than the"),
    "a tensor with a hole": (with_hole, "are 0 numbers, it has 24"),
    "something else": (lambda found: {"a": 1}, "does not describe a checkpoint"),
    "no storage": (lambda found: setattr(found, "storage_data", None), "does not describe a checkpoint"),
}


@pytest.mark.parametrize("what", METADATA)
def test_a_dcp_description_that_lies_is_refused(what: str, adopt: Adopt, tmp_path: Path) -> None:
    change, words = METADATA[what]
    folder = in_dcp(tmp_path / "dcp", model())
    change_metadata(folder, change)
    code, out = adopt(folder, "prod", "--trust-pickle")
    assert (code, words in out) == (2, True), out
    assert adopt.is_empty()


@pytest.mark.parametrize("where", ["metadata", "tensor"])
def test_no_pickle_runs_code_even_if_it_is_trusted(where: str, adopt: Adopt, tmp_path: Path) -> None:
    folder, made = in_dcp(tmp_path / "dcp", model()), tmp_path / "made"
    if where == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(Evil(made)))
    else:
        torch.save(Evil(made), folder / "__0_0.distcp")
        size = (folder / "__0_0.distcp").stat().st_size

        def everywhere(found: Any) -> None:
            for info in found.storage_data.values():
                info.offset, info.length = 0, size
            seen = found.state_dict_metadata[
                "seen"
            ]  # one, so that the size does not refuse it before it is read
            found.state_dict_metadata = {"seen": seen}

        change_metadata(folder, everywhere)
    code, out = adopt(folder, "prod", "--trust-pickle")
    assert code == 2, out
    assert not made.exists()
    assert adopt.is_empty()


def test_a_damaged_dcp_folder_is_refused(adopt: Adopt, tmp_path: Path) -> None:
    for what in ("cut", "missing", "flipped", "two models"):
        state = {"a": {"model": model()}, "b": {"model": model()}} if what == "two models" else model()
        folder = in_dcp(tmp_path / what, state)
        data = folder / "__0_0.distcp"
        if what == "cut":
            data.write_bytes(data.read_bytes()[:-200])
        elif what == "missing":
            data.unlink()
        elif what == "flipped":
            (folder / ".metadata").write_bytes((folder / ".metadata").read_bytes()[:-30])
        code, out = adopt(folder, "prod", "--trust-pickle")
        assert code == 2, out
        assert adopt.is_empty()


# --- half-way -----------------------------------------------------------------------------------------------


def test_a_source_that_changes_meanwhile_is_not_registered(
    adopt: Adopt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "m.safetensors"
    save_file(model(), source)
    true = weights.survey

    def then_changed(*arguments: Any) -> Any:
        found = true(*arguments)
        save_file({**model(), "embed.weight": torch.zeros(6, 4)}, source)
        return found

    monkeypatch.setattr(weights, "survey", then_changed)
    code, out = adopt(source)
    assert (code, "has changed while it was read" in out) == (2, True), out
    assert read_candidates(adopt.store) == ()
    assert not any("adopted" in item.key for item in adopt.store.list(""))
    save_file(model(), source)
    monkeypatch.setattr(weights, "survey", true)
    assert adopt(source)[0] == 0


def test_what_was_left_half_done_is_finished(
    adopt: Adopt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raykit.errors import StoreUnavailableError
    from raykit.store import candidates

    def away(*arguments: Any, **named: Any) -> Any:
        raise StoreUnavailableError("the store is away")

    source = sharded(tmp_path / "hf", model())
    with monkeypatch.context() as patched:
        patched.setattr(candidates, "register", away)
        assert adopt(source)[0] == 6
    assert read_candidates(adopt.store) == ()
    assert [listed.key.rpartition("/")[2] for listed in check(adopt.store, read_data=True).orphans] == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
    code, out = adopt(source)
    assert (code, "prod is adopted\n" in out) == (0, True)
    assert check(adopt.store, read_data=True).orphans == ()


def test_a_large_model_is_never_in_memory(adopt: Adopt, tmp_path: Path) -> None:
    """Read as a stream, twice: what is held at once is a few pieces of a file."""
    import tracemalloc

    save_file({f"t{i}": torch.zeros(4_000_000) for i in range(4)}, tmp_path / "m.safetensors")  # 64 MB
    tracemalloc.start()
    try:
        assert adopt(tmp_path / "m.safetensors")[0] == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"peak {peak / 1e6:.1f} MB")
    assert peak < 4 * weights.READ_BYTES + 12_000_000


def test_check_reads_a_store_that_holds_only_adopted_weights(
    adopt: Adopt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(model(), tmp_path / "m.safetensors")
    adopt(tmp_path / "m.safetensors")
    assert main(["check", adopt.store.url, "--read-data"]) == 0
    assert "1 candidates" in capsys.readouterr().out
    (path,) = Path(adopt.store.url).rglob("model.safetensors")
    os.chmod(path, 0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert main(["check", adopt.store.url, "--read-data"]) == 5
    assert "does not match its sha256" in capsys.readouterr().out


def test_safetensors_need_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    save_file(model(), tmp_path / "m.safetensors")
    code = (
        "import sys\nfrom raykit.cli.main import main\n"
        f"assert main(['adopt', {str(tmp_path / 'm.safetensors')!r}, '--as', 'p', '--by', 'm', "
        f"'--root', {str(tmp_path / 'store')!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
