"""Representations: do they still span more than a few directions? Pure.

effective_rank     RankMe (Garrido et al. 2023, arXiv 2210.02885): p_k = s_k / sum(s) + 1e-7 over the singular values
                   s of Z [units, dimensions], and exp(-sum p_k log p_k). It grows with both sizes of Z, so that it is
                   compared at equal ones alone: with that of the same roster at update 0.
embedding_spread   the median over dimensions of the standard deviation over units (Bardes et al. 2022)
"""

from __future__ import annotations

import numpy as np

from raykit.qc.strata import Array, Strata
from raykit.records import Score

EPSILON = 1e-7
"""What RankMe adds to every share."""


def embedding_scores(embeddings: Array, strata: Strata) -> dict[str, Score]:
    """Scores of `embeddings` [units, dimensions]."""
    return {
        "effective_rank": strata.pooled(lambda places: effective_rank(embeddings[places]), better="more"),
        "embedding_spread": strata.score(
            lambda places: float(np.median(embeddings[places].std(axis=0))), better="more"
        ),
    }


def effective_rank(embeddings: Array) -> float | None:
    """RankMe of `embeddings` [units, dimensions]; None if all of it is zero."""
    singular = np.linalg.svd(embeddings, compute_uv=False)
    total = singular.sum()
    if not total > 0.0:
        return None
    shares = singular / total + EPSILON
    return float(np.exp(-(shares * np.log(shares)).sum()))
