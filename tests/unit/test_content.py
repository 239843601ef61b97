"""The identity of a dataset item: equal exactly when what it holds is equal."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raykit.data.content import content_digest
from raykit.errors import PlanError

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
items = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def exact(value):
    """`value` such that == tells 1, 1.0, True, 0.0 and -0.0 apart."""
    if isinstance(value, list):
        return [exact(part) for part in value]
    if isinstance(value, dict):
        return {name: exact(part) for name, part in value.items()}
    return type(value), repr(value)


@given(items, items)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_other_items_have_other_digests(first, second):
    assert (content_digest(first) == content_digest(second)) == (exact(first) == exact(second))


def test_the_digest_never_changes_between_releases():
    # covers SPLIT-29: stored members are compared with digests made by a newer raykit.
    item = {
        "image": np.arange(6, dtype=np.float32).reshape(2, 3),
        "label": 3,
        "name": "a",
        "raw": b"\0",
        "w": 0.5,
    }
    assert (
        content_digest((item, None, True))
        == "52862b3a93ebd0f4b19a3f0fafdaeb6401e9ef00e14a235390a38fdcaf9ebdbe"
    )


def test_what_a_model_is_shown_the_same_is_the_same():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    pair = namedtuple("pair", "x y")
    same = [
        (array, 1),
        [array, 1],
        pair(array, 1),
        (np.asfortranarray(array), 1),
        (array.astype(">i4"), 1),
        (np.repeat(array, 2, axis=0)[::2], 1),
        (torch.arange(6, dtype=torch.int32).reshape(2, 3), 1),
        (torch.from_numpy(array.T.copy()).T, 1),
    ]
    assert len({content_digest(item) for item in same}) == 1


def test_the_order_of_keys_does_not_matter():
    assert content_digest({"a": 1, "b": 2}) == content_digest(OrderedDict(b=2, a=1))
    assert content_digest({"a": 1, "b": 2}) != content_digest({"a": 2, "b": 1})


def test_type_shape_and_bytes_of_an_array_all_count():
    others = [
        np.zeros(4, np.float32),
        np.zeros((2, 2), np.float32),
        np.zeros((4, 1), np.float32),
        np.zeros(2, np.float64),
        np.zeros(4, np.int32),
        np.zeros(0, np.float32),
        np.zeros((0, 4), np.float32),
        np.float32(0),
        np.array([0, 0, 0, -0.0], np.float32),
        np.zeros(4, "M8[s]"),
        np.zeros(4, "M8[ms]"),
        np.array(["a", "b"]),
    ]
    assert len({content_digest(other) for other in others}) == len(others)


def test_bfloat16_is_known_by_its_bits_and_is_not_int16():
    values = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    bits = values.view(torch.int16)
    assert content_digest(values) == content_digest(values.clone())
    assert len({content_digest(values), content_digest(bits), content_digest(values.float())}) == 3
    assert content_digest(values.requires_grad_()) == content_digest(values.detach())


class Thing:
    pass


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (Thing(), "item"),
        ((1, {"a": [None, Thing()]}), "item[1]['a'][1]"),
        ({"s": {1, 2}}, "item['s']"),
        ([np.array([Thing()])], "item[0]"),
        (np.zeros(2, [("x", "f4")]), "item"),
        (np.ma.masked_array([1, 2], [True, False]), "item"),
        ((torch.ones(2).to_sparse(),), "item[0]"),
        ((torch.ones(2, device="meta"),), "item[0]"),
        ({Thing(): 1}, "item, key"),
        (len, "item"),
    ],
)
def test_what_has_no_stable_bytes_is_refused_by_its_path(item, path):
    with pytest.raises(PlanError) as caught:
        content_digest(item)
    assert str(caught.value).startswith(path)
    assert "content(index)" in caught.value.remedy
