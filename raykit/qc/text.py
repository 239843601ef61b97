"""Language models: bits per byte, which no choice of tokens can improve, beside the unigram entropy. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from raykit.qc.strata import Array, Strata
from raykit.records import Score


def text_scores(nats: Array, contents: Sequence[bytes], strata: Strata) -> dict[str, Score]:
    """`bits_per_byte`: all negative log-likelihood in bits over all bytes, of units in roster order.

    No skill is the entropy of one byte of those units: what a model scores that knows how often each byte comes and
    nothing else.
    """
    sizes = np.array([len(content) for content in contents])

    def bits(places: Array) -> float | None:
        size = int(sizes[places].sum())
        return math.fsum(nats[places]) / math.log(2.0) / size if size else None

    return {"bits_per_byte": strata.score(bits, better="less", no_skill=unigram_entropy(contents))}


def unigram_entropy(contents: Sequence[bytes]) -> float | None:
    """Bits per byte that the frequencies of single bytes leave; None without bytes."""
    counts = np.bincount(np.frombuffer(b"".join(contents), dtype=np.uint8), minlength=256)
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log2(shares)).sum()) + 0.0 if len(shares) else None
