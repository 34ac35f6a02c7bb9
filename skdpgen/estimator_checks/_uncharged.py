"""Whether anything of the rows leaves a fit beside its releases."""

from __future__ import annotations

import numpy as np

from ..testing import check_noninterference
from ._helpers import N_ROWS, check, fresh

# Far from those of `default_data`, and beyond bounds, where values may be.
_SCALE, _SHIFT = 30.0, -7.0


@check
def check_all_that_a_fit_leaves_follows_from_its_releases(estimator, data):
    """Two unrelated data sets and the same releases: the same model, card, warnings and printed lines, to the last bit.

    And each query of neighbouring data sets differs by its sensitivity at most (see
    `skdpgen.testing.check_noninterference`, which takes data that cross more branches than this check's do). What is
    learned must leave a fit through `skdpgen.mechanisms.add_gaussian`, `skdpgen.mechanisms.release_names` or a step of
    `skdpgen.nn.DPNet`.
    """
    if not hasattr(estimator, "plan"):
        return
    estimator = fresh(estimator)
    parameters = estimator.get_params(deep=False)
    n_other = N_ROWS // 3 if parameters["neighboring"] == "replace_one" else N_ROWS // 7
    one, other = data(N_ROWS // 3, 0), data(n_other, 1)
    joining = tuple(part[:1] for part in data(N_ROWS // 7, 2))
    if isinstance(other[0], np.ndarray) and other[0].dtype.kind == "f" and parameters.get("on_invalid") != "raise":
        other = (_SCALE * other[0] + _SHIFT, *other[1:])
        joining = (-_SCALE * joining[0], *joining[1:])
    check_noninterference(estimator, one, other, rows=joining)
