"""Checkpoints: the files of one, and the closed list of them."""

from __future__ import annotations

from typing import Literal

from raykit.ids import Digest, Name
from raykit.records.base import Count, Positive, Record, Versioned


class FileRef(Record):
    """One file of a checkpoint."""

    name: Name
    sha256: Digest
    size_bytes: Count
    holds: Literal["model", "optimizer", "rng", "state"]
    rank: Count
    shard: Count = 0
    shards: Positive = 1
    """This file is shard `shard` of `shards` of what it holds."""


class RankFiles(Versioned):
    """What one rank has written for one checkpoint: the note by which rank 0 learns of it."""

    rank: Count
    files: tuple[FileRef, ...]


class Manifest(Versioned):
    """The closed list of one checkpoint's files. Equal training states have equal manifests."""

    update: Count
    samples: Count
    world_size: Positive
    files: tuple[FileRef, ...]
    history_update: Count
    """History is durable through this update."""
    contract: Digest
    """Digest of the part of the plan that shapes the trained weights."""
    data: Digest
    """Digest of the members of the splits."""
    code: Digest
    """Digest of the frozen recipe folder."""
