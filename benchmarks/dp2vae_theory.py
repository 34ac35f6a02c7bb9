"""DP2-VAE's accounting: the noise that each sampler needs, and the example in which the paper's claim fails."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from skdpgen.utils.atomic import save_figure

__all__ = ["dp2vae_accounting", "dp2vae_hidden_state", "hidden_state_delta"]


def dp2vae_accounting(*, steps=(5_000, 10_000, 20_000), n_subsets=2500, delta=1e-5, quick=False):
    """Yield the noise, in units of C on the sum of the drawn subsets, that each sampler needs.

    Parameters
    ----------
    steps : sequence of int
    n_subsets : int, default=2500
    delta : float, default=1e-5
    quick : bool, default=False
        500 steps of 250 subsets, epsilon 10.

    Yields
    ------
    dict
        sampler, encoders (the policies that it holds for), epsilon, steps, noise.
    """
    from skdpgen.accounting import noise_multiplier_for
    from skdpgen.dpsgd._subsets import SubsetPlan

    budgets = (10.0, 1.0)
    if quick:
        steps, n_subsets, budgets = (500,), 250, (10.0,)
    rows = (
        ("poisson", "stateless", "frozen, stateless, round_robin"),
        ("one_of_k", "stateless", "frozen, stateless, round_robin"),
        ("balanced", "on_query", "any"),
        ("one_of_k", "on_query", "any"),
    )
    for epsilon in budgets:
        for count in steps:
            for sampler, update, encoders in rows:

                def plan(z, sampler=sampler, update=update, count=count):
                    return SubsetPlan(n_subsets, count, z, sampler=sampler, encoder_update=update)

                z = noise_multiplier_for(lambda z: plan(z).event, epsilon, delta, "add_or_remove_one")
                yield {
                    "model": f"{sampler}, index revealed" if plan(1.0).mechanism == "index_revealed" else sampler,
                    "encoders": encoders,
                    "epsilon": epsilon,
                    "steps": count,
                    "noise": plan(z).noise_std,
                }


# ---- the hidden state ---------------------------------------------------------------------------------------------
def hidden_state_delta(epsilon, sigma, steps_a, steps_b, threshold=1.0, *, informed=True):
    """Privacy profile of the two statistics of the K = 2 example that an adversary needs: a bound from below.

    Two encoders, one drawn at each step, C = 1, noise of standard deviation `sigma`. Phase A, `steps_a` steps: encoder
    1 emits +1 under D and -1 under D', encoder 2 emits 0. Both keep ``W = sum of outputs at their visits``, less the
    others', which for K = 2 each can tell. Phase B, `steps_b` steps: both emit ``sign(W - threshold)``.

    Parameters
    ----------
    epsilon : array
    sigma : float
    steps_a, steps_b : int
    threshold : float, default=1.0
        In standard deviations of W.
    informed : bool, default=True
        False: encoders whose state does not depend on their visits, as in the sound designs. What they may know of
        phase A is what was released, so that W is the sum of all outputs.

    Returns
    -------
    array of the shape of `epsilon`
        max over the order of the pair of ``sup_S P(S) - e^epsilon Q(S)``, S over sets of (sum of A, sum of B).

    Notes
    -----
    Given n visits to encoder 1, the sums over its visits and over the others' are normal and independent; n is
    binomial, and is summed over. Sums and integrals are taken on grids.
    """
    n = np.arange(steps_a + 1)
    weight = stats.binom.pmf(n, steps_a, 0.5)
    kept = weight > 1e-14
    step = max(1, int(kept.sum()) // 200)
    n, weight = n[kept][::step], weight[kept][::step]
    weight = weight / weight.sum()
    scale = sigma * math.sqrt(steps_a)
    reach = steps_a / (2 * scale) + 9
    y = np.linspace(-reach, reach, 2001)  # sum of A, in its standard deviations
    z_scale = sigma * math.sqrt(steps_b)
    z = np.linspace(-steps_b / z_scale - 9, steps_b / z_scale + 9, 801)  # sum of B
    densities = []
    for sign in (1, -1):
        mean = sign * n / scale
        density = stats.norm.pdf(y[:, None], mean) * weight
        if informed:
            # W given Y: means sign * n, variances steps_a, covariance n - (steps_a - n), all in sigma's units
            slope = (2 * n - steps_a) / steps_a
            spread = np.sqrt(np.maximum(1 - slope**2, 1e-12))
            above = stats.norm.sf((threshold - mean - slope * (y[:, None] - mean)) / spread)
        else:
            above = (y[:, None] > threshold) * np.ones_like(density)
        plus, minus = (density * above).sum(1), (density * (1 - above)).sum(1)
        shift = steps_b / z_scale
        densities.append(np.outer(plus, stats.norm.pdf(z, shift)) + np.outer(minus, stats.norm.pdf(z, -shift)))
    cell = (y[1] - y[0]) * (z[1] - z[0])
    p, q = densities
    return np.array(
        [
            cell * max(np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((p, q), (q, p)))
            for e in np.atleast_1d(epsilon)
        ]
    )


def dp2vae_hidden_state(*, sigma=40.0, steps_a=14_400, steps_b=1_600, delta=1e-5, quick=False, figure=None):
    """Yield the claim of composed amplification, the true loss of the K = 2 example, and that of the sound designs.

    Parameters
    ----------
    sigma, steps_a, steps_b : float, int, int
        See `hidden_state_delta`.
    delta : float, default=1e-5
    quick : bool, default=False
        No effect but a shorter curve in the figure.
    figure : str or path, default=None
        Privacy profiles are drawn to this file.

    Yields
    ------
    dict
        model, epsilon: that of the claim, or a bound from below of the truth, or the price of a sound event.
    """
    from skdpgen.accounting import delta_pld, epsilon_pld, subset_gaussian_event

    relation, steps = "add_or_remove_one", steps_a + steps_b
    claim = subset_gaussian_event("one_of_k", 0.5, sigma / 2, steps)
    revealed = subset_gaussian_event("index_revealed", 0.5, sigma / 2, steps)

    def truth(informed):
        def gap(e):
            return float(hidden_state_delta(e, sigma, steps_a, steps_b, informed=informed)[0]) - delta

        return brentq(gap, 1.0, 60.0, xtol=1e-3)

    found = {
        "claim: per-step amplification, composed": epsilon_pld(claim, delta, relation),
        "hidden state (true, at least)": truth(True),
        "state that no draw moves (true, at least)": truth(False),
        "index revealed (price)": epsilon_pld(revealed, delta, relation),
    }
    for name, epsilon in found.items():
        yield {"model": name, "epsilon": epsilon}
    if figure is not None:
        at = np.linspace(min(found.values()) - 3, found["hidden state (true, at least)"] + 4, 7 if quick else 25)
        curves = {
            "claimed": [delta_pld(claim, float(e), relation) for e in at],
            "true, hidden state": hidden_state_delta(at, sigma, steps_a, steps_b),
            "true, state that no draw moves": hidden_state_delta(at, sigma, steps_a, steps_b, informed=False),
            "price with the index revealed": [delta_pld(revealed, float(e), relation) for e in at],
        }
        _draw_profiles(at, curves, delta, figure)


def _draw_profiles(at, curves, delta, path):
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture needs matplotlib: pip install skdpgen[plot]") from None
    drawing = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = drawing.subplots()
    for (name, values), style in zip(curves.items(), ("C0-", "C3-", "C2--", "C7:")):
        axes.semilogy(at, np.maximum(values, 1e-12), style, label=name)
    axes.axhline(delta, color="black", linewidth=0.6)
    axes.set(xlabel="epsilon", ylabel="delta", ylim=(1e-9, 1))
    axes.legend(frameon=False)
    save_figure(drawing, path, dpi=110)
