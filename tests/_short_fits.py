"""Fits with little post-processing, for tests of what a fit reads of its rows."""

from __future__ import annotations

import contextlib
from unittest.mock import patch

import numpy as np

from skdpgen.generators import oblivious_trees, refined_images, target_step
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.mechanisms import _selection
from skdpgen.synthesizers import _frame_model, _moment_start, _p3gm_decoder, _summary

__all__ = ["short_postprocessing"]


@contextlib.contextmanager
def short_postprocessing():
    """Fits to what was released, and synthetic rows, are post-processing: a few of them tell as much as all."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(fit_tables.__kwdefaults__, n_iter=2, n_restarts=2))
        for module, name, number in (
            (_p3gm_decoder, "_WARM_ROWS", 300),
            (_moment_start, "_ROWS", 300),
            (_frame_model, "_SYNTHETIC_ROWS", 1000),
            (_summary, "_DRAWN", 1000),
            (oblivious_trees, "_N_TREES", 4),
            (target_step, "_MOST_STEPS", 5),
            (refined_images, "_IMAGES", 1000),
            (refined_images, "_TRIED", 500),
            (_selection, "_runs", _once_for_equal_histograms(_selection._runs)),
        ):
            stack.enter_context(patch.object(module, name, number))
        yield


def _once_for_equal_histograms(runs):
    """A function of released histograms that fits to the same releases, of which there are many here, share."""
    found = {}

    def remembered(noisy, measure, *others):
        key = (*((np.shape(part), np.asarray(part, dtype=np.float64).tobytes()) for part in (noisy, measure)), others)
        if key not in found:
            found[key] = runs(noisy, measure, *others)
        return found[key]

    return remembered
