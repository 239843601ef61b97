"""Examining checkpoints: what is asked of each, what is still open, and what an answer means. Pure.

roster      the fixed examples, drawn from a split with a quota for each stratum
suite       what every checkpoint is asked, frozen before the first answer
backlog     which checkpoints have to be examined, and how far each of them is
steer       what a pool of workers does next
scores      per-example numbers -> pooled and per stratum, each beside what no skill scores
fields      latent or parameter fields in their own space: percentiles, spread, ends of the range, dimensions
embedding   effective rank and spread of representations
classes     calibration and support of each class
text        bits per byte beside the unigram entropy
verdict     thresholds, collapse, lost strata -> findings; pending is never passed
"""

from __future__ import annotations
