"""Trees of tensors as bytes, and back, to the bit.

covers CKPT-01 CKPT-04 CONTRACT-07, S7
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from types import MappingProxyType
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from raykit.errors import CorruptError, GateError
from raykit.train.tensors import DTYPES, HostCopy, join, read_tensors, split


def file_of(tensors: dict[str, torch.Tensor], structure: Any = None) -> bytes:
    copy = HostCopy()
    copy.take(tensors, structure)
    return b"".join(bytes(chunk) for chunk in copy.stream())


def through_bytes(tree: Any) -> Any:
    """What a state is after it was saved and loaded."""
    structure, tensors = split(tree, "tree")
    return join(*read_tensors(file_of(tensors, structure), "tree"))


def same(a: Any, b: Any) -> bool:
    """The same types, and the same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


# --- trees --------------------------------------------------------------------------------------------------

DTYPE = st.sampled_from(sorted(DTYPES, key=str))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any bits of any dtype: among them NaNs with a payload, and minus zero."""
    dtype = draw(DTYPE)
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = math.prod(shape) * dtype.itemsize
    if dtype is torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).bool().view(shape)
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    return torch.frombuffer(data, dtype=dtype).view(shape) if size else torch.empty(shape, dtype=dtype)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | tensors()
)
KEYS = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["$", "is", "a", "a.b", "0"])
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(KEYS | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES)
@settings(deadline=None, max_examples=300, derandomize=True)
def test_any_tree_comes_back_to_the_bit(tree: Any) -> None:
    assert same(through_bytes(tree), tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}},
        {0: torch.zeros(1), "0": torch.ones(1)},
        {"a": [torch.zeros(1)], "a.0": torch.ones(1), "a.0'": torch.ones(2)},
    ],
    ids=["dotted", "numbered", "primed"],
)
def test_tensors_whose_paths_are_spelled_alike_are_kept_apart(tree: Any) -> None:
    assert same(through_bytes(tree), tree)


def test_a_real_optimizer_comes_back() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert same(through_bytes(state), state)


REFUSED = {
    "a set": ({"a": {1, 2}}, "tree.a is a set"),
    "a function": ({"a": [print]}, "tree.a.0 is a builtin_function_or_method"),
    "a complex number": ({"a": 1j}, "tree.a is a complex"),
    "bytes": ({"a": b"x"}, "tree.a is a bytes"),
    "a key that is a tuple": ({"a": {(1, 2): 3}}, "tree.a is a dict"),
    "a key that is true": ({"a": {True: 3}}, "tree.a is a dict"),
    "a mapping of another kind": ({"a": MappingProxyType({"b": 1})}, "tree.a is a mappingproxy"),
    "a defaultdict with a function": ({"a": defaultdict(lambda: 0)}, "tree.a is a defaultdict"),
    "a tensor of tensors": (
        {"a": TwoTensor(torch.ones(1), torch.ones(1))},
        "tree.a is a tensor without plain bytes",
    ),
    "a sparse tensor": ({"a": torch.eye(2).to_sparse()}, "tree.a is a tensor without plain bytes"),
    "a tensor without data": ({"a": torch.ones(1, device="meta")}, "tree.a is a tensor without plain bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_exact_form_is_refused_by_its_path(what: str) -> None:
    tree, says = REFUSED[what]
    with pytest.raises(GateError) as refusal:
        through_bytes(tree)
    assert refusal.value.message.startswith(says)


# --- copies -------------------------------------------------------------------------------------------------


def test_a_file_is_what_safetensors_says_it_is() -> None:
    given_tensors = {
        "double": torch.arange(3, dtype=torch.float64),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flag": torch.tensor([True, False, True]),
        "none": torch.empty(0, 4),
        "one": torch.tensor(7),
    }
    found = safetensors.torch.load(file_of(given_tensors))
    assert found.keys() == given_tensors.keys()
    assert all(same(found[name], tensor) for name, tensor in given_tensors.items())


def test_equal_states_are_equal_bytes_in_whatever_order_they_come() -> None:
    one, two = torch.ones(2), torch.zeros(3, dtype=torch.int64)
    assert file_of({"a": one, "b": two}) == file_of({"b": two, "a": one})


def test_a_copy_is_not_touched_by_what_happens_afterwards() -> None:
    """Training goes on while the file is written."""
    tensor = torch.zeros(4)
    copy = HostCopy()
    copy.take({"a": tensor})
    before = b"".join(bytes(chunk) for chunk in copy.stream())
    tensor.fill_(1.0)
    assert b"".join(bytes(chunk) for chunk in copy.stream()) == before
    copy.take({"a": tensor})
    assert safetensors.torch.load(b"".join(bytes(c) for c in copy.stream()))["a"].tolist() == [1.0] * 4


@pytest.mark.parametrize("second", [torch.ones(5), torch.ones(2, dtype=torch.float64), torch.ones(1, 2)])
def test_a_copy_follows_a_change_of_shape_and_dtype(second: torch.Tensor) -> None:
    copy = HostCopy()
    for tensor in (torch.zeros(2), second, torch.zeros(2)):
        copy.take({"a": tensor})
        assert same(safetensors.torch.load(b"".join(bytes(c) for c in copy.stream()))["a"], tensor)


def test_strides_do_not_matter() -> None:
    base = torch.arange(12.0).view(3, 4)
    for view in (base.t(), base[:, ::2], base[1].expand(2, 4), base.as_strided((2, 2), (1, 1))):
        assert same(safetensors.torch.load(file_of({"a": view}))["a"], view.contiguous())


def test_all_tensors_are_streamed_as_one_piece_of_the_memory_that_is_kept() -> None:
    copy = HostCopy()
    before, after = (torch.full((10 * 2**20,), value, dtype=torch.uint8) for value in (0, 1))
    copy.take({"a": before, "b": before})
    header, body = copy.stream()
    assert len(header) + len(body) == copy.size_bytes
    copy.take({"a": after, "b": after})
    assert bytes(body) == b"\1" * 20 * 2**20


# --- bytes that are no such file ----------------------------------------------------------------------------

GOOD = file_of(
    {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int64)}, {"x": [1, {"$": "tensor", "is": "a"}]}
)


def header(value: Any) -> bytes:
    text = json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text


BAD: dict[str, bytes] = {
    "empty": b"",
    "short": b"\1\0\0",
    "no header": struct.pack("<Q", 100),
    "an endless header": struct.pack("<Q", 2**63) + b"{}",
    "a list": header([1]),
    "a number": header(1),
    "a number for a tensor": header({"a": 1}),
    "a number for the metadata": header({"__metadata__": 1}),
    "a number for the tree": header({"__metadata__": {"tree": 1}}),
    "a tree that is no JSON": header({"__metadata__": {"tree": "{"}}),
    "an unknown dtype": header({"a": {"dtype": "F1", "shape": [1], "data_offsets": [0, 4]}}) + b"1234",
    "offsets beyond the end": header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
    "overlapping tensors": header(
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in ("a", "b")}
    )
    + b"1234",
    "a negative shape": header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + b"1234",
    "a shape beyond memory": header({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}})
    + b"1234",
    "brackets that never close": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05hello\x94.",
}


@pytest.mark.parametrize("what", BAD)
def test_bytes_that_are_no_such_file_are_refused(what: str) -> None:
    with pytest.raises(CorruptError, match=r"^m\.safetensors"):
        read_tensors(BAD[what], "m.safetensors")


@given(st.data())
@settings(deadline=None, max_examples=300, derandomize=True)
def test_no_damage_does_more_than_be_refused(data: st.DataObject) -> None:
    """Digests hold before anything is parsed. Should they ever not, the parser still fails in one way only."""
    damaged = bytearray(GOOD)
    for at in data.draw(st.lists(st.integers(0, len(GOOD) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(GOOD)) | st.just(len(GOOD)))
    try:
        structure, found = read_tensors(damaged[:cut], "m.safetensors")
        join(structure, found)
    except CorruptError:
        pass


BAD_TREES = {
    "a tensor that is not there": {"$": "tensor", "is": "c"},
    "an unknown mark": {"$": "object", "is": "os.system"},
    "a mark without a value": {"$": "tuple"},
    "a tuple of a number": {"$": "tuple", "is": 3},
    "a float that is none": {"$": "float", "is": "1e5"},
    "a map that is no list": {"$": "map", "is": {}},
    "a map of numbers": {"$": "map", "is": [1]},
    "a map of triples": {"$": "map", "is": [[1, 2, 3]]},
    "a map with a key that is a list": {"$": "map", "is": [[[1], 2]]},
}


@pytest.mark.parametrize("what", BAD_TREES)
def test_a_tree_that_split_never_makes_is_refused(what: str) -> None:
    with pytest.raises(CorruptError):
        join({"x": [BAD_TREES[what]]}, {"a": torch.ones(1)})


# --- mappings, in their order and as what they are ----------------------------------------------------------

MAPPINGS = {
    "a dict that is sorted": {"a": 1, "b": 2},
    "a dict in another order": {"b": 1, "a": {"z": 1, "y": 2}},
    "an OrderedDict": OrderedDict(b=1, a=2),
    "a sorted OrderedDict": OrderedDict(a=1, b=torch.ones(2)),
    "a Counter": Counter({"x": 3, "a": 1, 7: 2}),
    "a defaultdict": defaultdict(int, {"x": 1, "a": 2}),
    "a defaultdict of lists": defaultdict(list, {"x": [1]}),
    "a defaultdict of nothing": defaultdict(None, {"x": 1}),
    "an empty OrderedDict": OrderedDict(),
    "one in another": OrderedDict(b=Counter(z=1, a=2), a=(OrderedDict(y=1, x=2),)),
}


@pytest.mark.parametrize("what", MAPPINGS)
def test_a_mapping_comes_back_in_its_order_and_as_what_it_is(what: str) -> None:
    """FAULT-A18: OrderedDict and Counter came back as dicts, and every dict sorted."""
    there = through_bytes({"it": MAPPINGS[what]})["it"]
    assert same(there, MAPPINGS[what])
    assert list(there) == list(MAPPINGS[what])
    if isinstance(there, defaultdict):
        assert there.default_factory is MAPPINGS[what].default_factory  # type: ignore[attr-defined]


def test_a_dict_that_is_sorted_keeps_the_bytes_that_it_had() -> None:
    for ordered in (True, False):
        assert split({"a": 1, "b": [{"c": 2}]}, ordered=ordered)[0] == {"a": 1, "b": [{"c": 2}]}
    assert split({"b": 1, "a": 2}, ordered=False)[0] == {"b": 1, "a": 2}


@pytest.mark.parametrize("text", ["\ud800", "a\udcff", {"\udc00": 1}], ids=ascii)
def test_a_text_that_has_no_bytes_is_refused_by_its_path(text: Any) -> None:
    """FAULT-A17: a raw error out of the save, which was tried again."""
    with pytest.raises(GateError, match=r"^tree.words.* has a text that is no Unicode: '") as refusal:
        split({"words": [text]}, "tree")
    assert refusal.value.remedy
    str(refusal.value).encode()


def test_pairs_of_float64_come_back_as_complex128() -> None:
    """FAULT-A03: the file format has no name for them; the header says which they are."""
    wide = torch.tensor([[1 + 2j, complex(math.nan, -0.0)]], dtype=torch.complex128)
    data = file_of({"a": wide.conj(), "b": torch.ones(2, dtype=torch.float64)})
    found = read_tensors(data, "it")[1]
    assert same(found["a"], wide.conj().resolve_conj()) and found["b"].dtype == torch.float64
    assert json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])["__metadata__"] == {"pairs": '["a"]'}


def test_the_installed_safetensors_reads_every_type_that_is_written() -> None:
    for dtype, name in DTYPES.items():
        assert safetensors.torch._TYPES[name] is dtype
