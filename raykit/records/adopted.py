"""Weights that were made elsewhere, as they are kept here."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from raykit.ids import Digest, Name
from raykit.records.base import Count, Positive, Record, Versioned


class AdoptedFile(Record):
    """One file of adopted weights."""

    name: Name
    sha256: Digest
    size_bytes: Count
    holds: Literal["model", "config"]


class Adopted(Versioned):
    """The closed list of the files of adopted weights. The same bytes have the same manifest, whoever brings them.

    It says nothing of how they were trained: nobody here knows.
    """

    files: tuple[AdoptedFile, ...]
    tensors: Positive
    elements: Count
    """Numbers in all tensors together."""

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if sum(file.holds == "model" for file in self.files) != 1:
            raise ValueError("exactly one file holds the model")
        return self

    @property
    def model(self) -> AdoptedFile:
        """The file that holds the weights."""
        return next(file for file in self.files if file.holds == "model")
