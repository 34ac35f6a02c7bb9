"""What an attacker can do at best: the risk that the releases of a fit leave to one record.

The attacker knows every other record, every setting, and all that was released. They decide whether one record was in
the data (which of two records was, under replace_one). No test of theirs is better than the figures here, which follow
from delta as a function of epsilon: from the privacy loss distribution of the releases, not from one pair of them.
"""

from __future__ import annotations

import math
import numbers

from scipy.optimize import minimize_scalar

from ..utils.printing import shown
from ._pricing import delta_curve


def membership_advantage(charges_or_events, neighboring: str) -> float:
    """Largest true positive rate less false positive rate of any attack that infers membership.

    It is the total variation distance of the two worst-case distributions, which is delta at epsilon 0. An attacker
    who is right in half of the cases by guessing is right in ``(1 + advantage) / 2`` of them at best.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
        Releases, all fixed in advance.
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        In [0, 1]: an upper bound, for Poisson-sampled steps above the exact figure by about a thousandth of it; 1.0
        when something is not private. For Gaussian releases it is ``2 Phi(mu / 2) - 1``.

    See Also
    --------
    true_positive_rate : What an attacker achieves who may rarely be wrong.

    References
    ----------
    S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha, "Privacy risk in machine learning: analyzing the connection to
    overfitting", CSF 2018 (the advantage). J. Dong, A. Roth, W. Su, "Gaussian differential privacy", Journal of the
    Royal Statistical Society B, 2022 (what the distributions of a mechanism allow to a test). T. Humphries et al.,
    "Investigating membership inference attacks under data dependencies", CSF 2023 (the bound
    ``(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1)`` from one epsilon and delta alone, which is larger).

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_event, membership_advantage
    >>> round(membership_advantage(gaussian_event(3.73), "add_or_remove_one"), 3)  # epsilon 1 at delta 1e-5
    0.107
    """
    delta = delta_curve(charges_or_events, neighboring)
    # the second is larger than an exact delta at epsilon 0; a bound by RDP, as of a search, is loose there
    return min(1.0, delta(0.0), _least(lambda e: (math.expm1(e) + 2 * delta(e)) / (math.exp(e) + 1), 20.0))


def true_positive_rate(charges_or_events, false_positive_rate: float, neighboring: str) -> float:
    """Largest true positive rate of any attack that infers membership, at a given false positive rate.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
        Releases, all fixed in advance.
    false_positive_rate : float
        Share of records outside the data that the attacker takes for members, in [0, 1].
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        In [false_positive_rate, 1]: an upper bound, for Poisson-sampled steps slightly above the exact figure; 1.0 when
        something is not private. For Gaussian releases it is ``Phi(Phi^-1(false_positive_rate) + mu)``.

    Raises
    ------
    ValueError
        For a rate outside [0, 1] or an unknown relation.

    Notes
    -----
    With delta(epsilon) for every epsilon >= 0 in both directions, a test with false positive rate a has a true positive
    rate of at most ``a exp(epsilon) + delta`` and ``1 - (1 - delta - a) exp(-epsilon)``, for every epsilon: the
    smallest of them is the figure. One pair (epsilon, delta) gives one of these lines.

    References
    ----------
    J. Dong, A. Roth, W. Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B, 2022 (the
    trade-off function of a test, and its duality with delta as a function of epsilon). N. Carlini et al., "Membership
    inference attacks from first principles", S&P 2022 (why the rate is stated at a low false positive rate).

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_event, true_positive_rate
    >>> round(true_positive_rate(gaussian_event(3.73), 0.01, "add_or_remove_one"), 4)  # epsilon 1 at delta 1e-5
    0.0198
    """
    rate = false_positive_rate
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 <= rate <= 1:
        raise ValueError(f"false_positive_rate must lie in [0, 1]; got {shown(rate)}")
    rate, delta = float(rate), delta_curve(charges_or_events, neighboring)
    # each line is an upper bound, so a search that stops near the smallest gives one too; both kinds have one minimum,
    # the first in epsilon up to where it is above 1, the second in exp(-epsilon)
    found = [rate + delta(0.0)]
    if rate < 1:
        found.append(_least(lambda epsilon: rate * math.exp(epsilon) + delta(epsilon), -math.log(rate or 1e-40)))
        found.append(_least(lambda shrunk: 1 - (1 - delta(-math.log(shrunk)) - rate) * shrunk, 1.0))
    return max(rate, min(1.0, *found))


def _least(line, most: float) -> float:
    return float(minimize_scalar(line, bounds=(0.0, most), method="bounded", options={"xatol": 1e-7}).fun)
