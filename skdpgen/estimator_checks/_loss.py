"""What a fit loses, against what it claims."""

from __future__ import annotations

from sklearn.base import clone

from skdpgen.accounting import describe_event
from skdpgen.audit import audit

from ._helpers import check

_RUNS = 8
_ROWS = 50


@check
def check_an_audit_does_not_refute_the_claim(estimator, data):
    """What a canary adds to the releases of a fit, over the noise measured in eight, is no more than epsilon 10 allows.

    Noise at half its scale and a clipping that was forgotten are found. For fits of Gaussian releases alone: of sampled
    steps and of thresholds so few runs tell nothing (see `skdpgen.audit.audit_neighbours`).
    """
    if not hasattr(estimator, "plan"):
        return
    claimed = clone(estimator).set_params(epsilon=10.0, accountant=None)
    rows = data(n_rows=_ROWS)
    plan = claimed.plan(*rows)
    if plan.extra_delta or any(row["mechanism"] != "gaussian" for row in describe_event(plan.event)):
        return
    # an honest estimator fails once in a thousand times
    found = audit(claimed, *rows, n_runs=_RUNS, confidence=0.999, method="scale")
    assert not found.broken, str(found)
