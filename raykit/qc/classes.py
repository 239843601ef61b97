"""Classifiers: accuracy, calibration, Brier score, and the support of each class. Pure.

calibration_error   sum over 15 bins of n_b/n * |accuracy_b - confidence_b|, bins of equal mass by confidence
                    (Naeini et al. 2015, with the adaptive bins of Nguyen and O'Connor 2015)
brier               mean of sum_c (p_c - y_c)^2 (Brier 1950); no skill is the shares of the classes in the roster
brier_skill         1 - brier / brier of those shares: 0 is no skill, 1 is perfect (Murphy 1988)
"""

from __future__ import annotations

import math

import numpy as np

from raykit.qc.strata import Array, Strata
from raykit.records import Score

BINS = 15
MAX_CLASSES = 100
"""With more classes than this, none is told of by itself: names stay few, and so do the units of each."""


def class_scores(probabilities: Array, labels: Array, strata: Strata) -> dict[str, Score]:
    """Scores of `probabilities` [units, classes] against `labels` [units], both in roster order."""
    classes = probabilities.shape[1]
    right = probabilities.argmax(axis=1) == labels
    shares = np.bincount(labels, minlength=classes) / max(1, len(labels))
    hot = np.eye(classes)[labels]
    error = np.square(probabilities - hot).sum(axis=1)
    prior_error = np.square(shares - hot).sum(axis=1)
    found = {
        "accuracy": strata.score(
            lambda places: float(right[places].mean()), better="more", no_skill=float(shares.max())
        ),
        "calibration_error": strata.pooled(
            lambda places: calibration_error(probabilities[places].max(axis=1), right[places]), better="less"
        ),
        "brier": strata.score(
            lambda places: float(error[places].mean()), better="less", no_skill=float(prior_error.mean())
        ),
        "brier_skill": strata.score(
            lambda places: _skill(error[places].mean(), prior_error[places].mean()),
            better="more",
            no_skill=0.0,
        ),
    }
    return found | (_each_class(right, labels, classes) if classes <= MAX_CLASSES else {})


def calibration_error(confidence: Array, right: Array) -> float:
    """Expected calibration error over bins of equal mass.

    Units of equal confidence are in one bin, that of the middle one of them: a roster is sorted by stratum, and bins
    that divided them by their place would hold one class each.
    """
    _, level, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    bins = (middle * min(BINS, len(confidence)) / len(confidence)).astype(int)[level]
    gaps = np.bincount(bins, weights=right - confidence)
    return math.fsum(np.abs(gaps)) / len(confidence)


def _skill(error: float, of_no_skill: float) -> float | None:
    return None if of_no_skill <= 0.0 else float(1.0 - error / of_no_skill)


def _each_class(right: Array, labels: Array, classes: int) -> dict[str, Score]:
    """How many units each class has, and the share of them that is recognized; None if it has none."""
    found: dict[str, Score] = {}
    for number in range(classes):
        members = labels == number
        support = int(members.sum())
        recall = float(right[members].mean()) if support else None
        found[f"recall.{number}"] = Score(value=recall, strata={}, better="more")
        found[f"support.{number}"] = Score(value=float(support), strata={})
    return found
