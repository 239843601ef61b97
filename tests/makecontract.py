"""The smallest contract of a synthetic set, for tests that need nothing of a store."""

from __future__ import annotations

from raykit.records import Column, GenerationContract


def bare_contract(rows: int, unit_rows: int = 10, **other: object) -> GenerationContract:
    """A contract over so many rows; `other` are fields of its own."""
    return GenerationContract.model_validate(
        {
            "experiment": "demo",
            "name": "digits",
            "teacher": "1" * 64,
            "recipe": "recipe:R",
            "params": {},
            "code": "2" * 64,
            "decode": {},
            "seed": 0,
            "revision": 1,
            "dtype": "float32",
            "autocast": "none",
            "deterministic": True,
            "threads": 1,
            "batch_rows": unit_rows,
            "samples": 1,
            "rows": rows,
            "unit_rows": unit_rows,
            "columns": (Column(name="row", type="int64"),),
            "bounds": {"failed": 0.0},
            **other,
        }
    )
