"""What is seen of rows as they are read, and of those whose content a dataset says itself.

FAULT-A21, FAULT-C09
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from raykit.data.content import content_digest
from raykit.errors import PlanError
from raykit.train.glance import Glance, nonfinite, require_together, signature
from raykit.train.inputs import SAMPLED, changed_rows, describe_dataset, sample_of

NAN = float("nan")


class Rows:
    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)
        self.ids = [f"r{n}" for n in range(len(self.items))]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Named(Rows):
    """Its content is the name of a file, as it were: not what is in it."""

    def content(self, index: int) -> Any:
        return f"file-{index}"


@pytest.mark.parametrize(
    ("item", "bad"),
    [
        (torch.tensor([1.0, NAN]), True),
        (torch.tensor([1, 2]), False),
        (torch.tensor(float("inf"), dtype=torch.bfloat16), True),
        (np.array([1.0, NAN]), True),
        (np.float32(NAN), True),
        (np.array(["nan"]), False),
        ({"x": (1.0, [2.0, {"y": NAN}])}, True),
        ({"x": (1.0, "nan", None, True)}, False),
    ],
    ids=str,
)
def test_a_value_that_is_no_number_is_seen_at_any_depth(item: Any, bad: bool) -> None:
    assert nonfinite(item) is bad


def test_what_a_row_is_made_of_is_said_in_a_line() -> None:
    item = {"x": torch.ones(1, 8), "y": (3, "text", np.zeros(2, np.int64)), "z": [1] * 20}
    assert signature(item).startswith("{x: float32 [1, 8], y: (int, str, int64 [2]), z: (int, int, ")
    assert signature(item).endswith(", 20 in all)}")


def seen(items: Sequence[Any]) -> tuple[Glance, Any]:
    glance = Glance()
    return glance, describe_dataset(Rows(items), glance).table["id"]


def test_rows_that_differ_in_shape_are_refused_by_id_unless_none_meet() -> None:
    glance, ids = seen([torch.ones(4), torch.ones(4), torch.ones(3)])
    with pytest.raises(PlanError, match=r"rows 'r0' \(float32 \[4\]\) and 'r2' \(float32 \[3\]\)") as caught:
        require_together(glance, ids, None, 2)
    assert (caught.value.field, caught.value.value) == ("recipe.collate", "r2")
    require_together(glance, ids, None, 1)
    require_together(glance, ids, list, 2)
    glance, ids = seen([torch.ones(4), torch.ones(4).double()])
    require_together(glance, ids, None, 2)  # torch puts them together


def test_of_many_shapes_some_are_looked_at() -> None:
    glance, _ = seen([torch.ones(n + 1) for n in range(100)])
    assert glance.rows == 100 and len(glance.kinds) == 16


# --- what a dataset says of its own content -----------------------------------------------------------------


def test_rows_that_are_read_for_their_content_need_no_sample() -> None:
    rows = Rows([torch.ones(2)] * 3)
    assert sample_of(rows, describe_dataset(rows)) is None


def test_replaced_rows_are_found_wherever_they_lie() -> None:
    rows = Named([torch.full((2,), n) for n in range(100)])
    was = sample_of(rows, describe_dataset(rows))
    assert was is not None and len(was) == SAMPLED
    assert changed_rows(was, sample_of(rows, describe_dataset(rows))) is None
    rows.items = [item + 1 for item in rows.items]
    found = changed_rows(was, sample_of(rows, describe_dataset(rows)))
    assert found is not None and found.allows == "inexact" and found.now == "32 of 32 differ"
    assert changed_rows(None, was) is None, "an attempt of before has sampled nothing"


def test_rows_without_stable_bytes_are_left_out_of_the_sample() -> None:
    rows = Named([object(), torch.ones(2), object()])
    assert list(sample_of(rows, describe_dataset(rows)) or ()) == ["r1"]
    assert sample_of(Named([object()]), describe_dataset(Named([object()]))) is None


@pytest.mark.xfail(strict=True, reason="data")
def test_one_replaced_row_is_found() -> None:
    rows = Named([torch.full((2,), n) for n in range(100)])
    was = sample_of(rows, describe_dataset(rows))
    assert was is not None
    last = max(range(100), key=lambda n: content_digest(f"file-{n}"))
    rows.items[last] = torch.zeros(2) - 1
    assert changed_rows(was, sample_of(rows, describe_dataset(rows))) is not None
