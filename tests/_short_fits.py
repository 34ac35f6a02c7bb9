"""Fits with little post-processing, for tests of what a fit reads of its rows."""

from __future__ import annotations

import contextlib
from unittest.mock import patch

from skdpgen.generators import oblivious_trees, refined_images
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.synthesizers import _frame_model, _moment_start, _p3gm_decoder

__all__ = ["short_postprocessing"]


@contextlib.contextmanager
def short_postprocessing():
    """Fits to what was released, and synthetic rows, are post-processing: a few of them tell as much as all."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(fit_tables.__kwdefaults__, n_iter=2))
        for module, name, number in (
            (_p3gm_decoder, "_WARM_ROWS", 300),
            (_moment_start, "_ROWS", 300),
            (_frame_model, "_SYNTHETIC_ROWS", 1000),
            (oblivious_trees, "_N_TREES", 4),
            (refined_images, "_IMAGES", 1000),
            (refined_images, "_TRIED", 500),
        ):
            stack.enter_context(patch.object(module, name, number))
        yield
