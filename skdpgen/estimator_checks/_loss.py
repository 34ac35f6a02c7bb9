"""What a fit loses, against what it claims."""

from __future__ import annotations

from sklearn.base import clone

from ..accounting import describe_event
from ..audit import audit
from ..audit._audit import is_gaussian
from ._helpers import check

_RUNS = {"plain": 8, "gradient": 3}
_ROWS = 50


@check
def check_an_audit_does_not_refute_the_claim(estimator, data):
    """What a canary adds to the releases of a fit, over the noise measured, is no more than epsilon 10 allows.

    Noise at half its scale and a clipping that was forgotten are found, and so is a sensitivity half as large as it is,
    where the rows attain it. For fits of Gaussian releases alone, among them steps of DP-SGD at ``sampling_rate=1``: of
    sampled steps and of thresholds so few runs tell nothing (see `skdpgen.audit.audit_neighbours`).

    An honest estimator exceeds its claim in one short audit of a thousand, so the claim is refuted by a second audit
    alone, of four times as many fresh runs, that finds the same: once in a million times.
    """
    if not hasattr(estimator, "plan"):
        return
    claimed = clone(estimator).set_params(epsilon=10.0, accountant=None)
    rows = data(n_rows=_ROWS)
    plan = claimed.plan(*rows)
    if not is_gaussian(plan.event, plan.extra_delta):
        return
    sampled = any(row["sampling_rate"] for row in describe_event(plan.event))
    n_runs = _RUNS["gradient" if sampled else "plain"]
    for more in (1, 4):
        found = audit(claimed, *rows, n_runs=n_runs * more, confidence=0.999, method="scale")
        if not found.broken:
            return
    raise AssertionError(str(found))
