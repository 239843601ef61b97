"""Every random stream's key, as a pure function of where in the run it is used.

Nothing in raykit draws from a generator that carries on from earlier use: a stream is named by its place
(which sample of which epoch, which update on which rank), and its key is a hash of that name. A resumed
run therefore meets the same randomness without replaying anything. Seeding torch, NumPy and `random` with
a key is done in `raykit.train`; only the derivation lives here.
"""

from __future__ import annotations

import hashlib

KEY_BITS = 63
"""A key fits a signed 64-bit integer, so that every generator and every column type can hold it."""

HASH_SEED = "0"
"""PYTHONHASHSEED of every worker: a set of names has the same order in each of them."""


def key(*parts: int | str) -> int:
    """A 63-bit key that depends on every part, on its type and on its place among the others."""
    return int.from_bytes(material(8, *parts), "little") >> (64 - KEY_BITS)


def material(size_bytes: int, *parts: int | str) -> bytes:
    """`size_bytes` pseudo-random bytes named by `parts`; other parts give unrelated bytes."""
    return hashlib.shake_256(b"".join(_packed(part) for part in parts)).digest(size_bytes)


def _packed(part: int | str) -> bytes:
    """`part` with its type and length in front, so that ("ab", "c") and ("a", "bc") never meet."""
    if isinstance(part, str):
        tag, data = b"s", part.encode()
    else:
        tag, data = b"i", part.to_bytes(part.bit_length() // 8 + 1, "little", signed=True)
    return tag + len(data).to_bytes(8, "little") + data


def init(seed: int) -> int:
    """For building the model and everything else before the first update."""
    return key("init", seed)


def update(seed: int, update: int, rank: int, micro: int) -> int:
    """For one micro-batch of one update on one rank: dropout, sampled noise."""
    return key("update", seed, update, rank, micro)


def sample(seed: int, epoch: int, index: int) -> int:
    """For one sample's own transforms in one epoch, whichever worker loads it."""
    return key("sample", seed, epoch, index)


def evaluate(seed: int, update: int) -> int:
    """For scoring the weights of one update."""
    return key("evaluate", seed, update)
