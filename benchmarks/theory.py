"""Sensitivities and noise of PriVAE and DP2-VAE: what the papers state, and what holds."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from .drawing import new_figure, save_figure

__all__ = [
    "dp2vae_accounting",
    "dp2vae_hidden_state",
    "hidden_state_delta",
    "noise_ratio",
    "privae_theory_benchmark",
    "table_1",
]

# ---- PriVAE --------------------------------------------------------------------------------------------------------
# The paper's two settings: B, b, C1, C2, and rate and steps of one run.
SETTINGS = {
    "Fashion-MNIST": {"batch": 256, "groups": 16, "c1": 0.05, "c2": 0.005, "rate": 256 / 60_000, "steps": 2344},
    "pinwheel": {"batch": 20, "groups": 1, "c1": 0.05, "c2": 0.0005, "rate": 20 / 400, "steps": 200},
}
_KAPPA = 2.0  # the paper's factor for two releases in the place of one


def table_1(batch, groups, c1, c2, c=0.0002):
    """The paper's Table 1 on the scale of the released gradient: what it says, and what is true.

    Parameters
    ----------
    batch, groups : int
        B and b.
    c1, c2, c : float
        Bounds of a record's gradient, of a group's, and of the two other methods'.

    Returns
    -------
    list of dict
        For each method the sensitivity `paper` and, under either relation, `add_or_remove_one` and `replace_one`.
    """
    from skdpgen.dpsgd import TermwisePlan, WholeBatchPlan

    rows = []
    for method, paper in (("micro aggregation", c), ("batch aggregation", c), ("term-wise", c1 / batch + c2 / groups)):
        shared = {"sampling_rate": 0.01, "steps": 1, "noise_multiplier": 1.0, "expected_batch_size": float(batch)}
        if method == "term-wise":
            plan = TermwisePlan(**shared, sample_bound=c1, group_bound=c2, n_groups=groups)
            moved = plan.l2_bound, plan.difference_bound
        else:
            # a mean of gradients that all depend on every record: one vector, which may be reversed
            plan = WholeBatchPlan(**shared, gradient_bound=c, aggregation=method.split()[0])
            moved = plan.l2_bound, plan.l2_bound
        rows.append(
            {
                "method": method,
                "paper": batch * c if method == "micro aggregation" else paper,
                "add_or_remove_one": moved[0] / batch,
                "replace_one": moved[1] / batch,
            }
        )
    # the paper counts micro aggregation on the scale of the sum: B C there, where 2 B C holds
    rows[0] |= {"paper": rows[0]["paper"] / batch}
    return rows


def noise_ratio(batch, groups, c1, c2):
    """Noise of two independent draws, one a term, over that of one draw on their sum, at the same epsilon.

    With d1 = C1/B and d2 = 2 C2/b, two Gaussian releases cost together what one on the sum costs at multiplier z when
    ``(d1/s1)**2 + (d2/s2)**2 = 1/z**2``, and their sum has the variance ``s1**2 + s2**2``. Its least value is
    ``z**2 (d1 + d2)**2``, that of one draw (Cauchy and Schwarz); draws of equal shares, ``s = sqrt(2) z d``, have more,
    and the paper's factor of 2 in the place of sqrt(2) more again.

    Returns
    -------
    dict
        Standard deviations at noise multiplier 1: `one` draw; `two` draws of equal shares; `two_kappa`, with the
        paper's factor 2; `paper`, the paper's, which has the factor 2 and C2 in the place of 2 C2.
    """
    d1, d2 = c1 / batch, 2 * c2 / groups
    return {
        "one": d1 + d2,
        "two": math.sqrt(2) * math.hypot(d1, d2),
        "two_kappa": _KAPPA * math.hypot(d1, d2),
        "paper": _KAPPA * math.hypot(d1, d2 / 2),
    }


def privae_theory_benchmark(asked=(1.0, 10.0), delta=1e-5):
    """Yield Table 1 and the noise of one draw and of two, for the paper's two settings.

    Parameters
    ----------
    asked : sequence of float, default=(1, 10)
        Epsilons that the paper asks for; a row states what the noise of the paper costs at each.
    delta : float, default=1e-5

    Yields
    ------
    dict
        With `setting` and `method`: sensitivities on the scale of the released gradient; standard deviations at noise
        multiplier 1 and their ratio to one draw's; for the paper's noise also what it costs where `epsilon` was asked.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, Table 1 and section 4.3.
    """
    from skdpgen.accounting import epsilon_pld, noise_multiplier_for, poisson_gaussian_event

    relation = "add_or_remove_one"
    names = {
        "one": "one draw of noise",
        "two": "two draws, equal shares",
        "two_kappa": "two draws, kappa = 2",
        "paper": "two draws as in the paper (C2, kappa = 2)",
    }
    for setting, public in SETTINGS.items():
        sizes = {key: public[key] for key in ("batch", "groups", "c1", "c2")}
        for row in table_1(**sizes):
            yield {"setting": setting, **row}
        noise = noise_ratio(**sizes)
        for key, method in names.items():
            yield {"setting": setting, "method": method, "std": noise[key], "ratio": noise[key] / noise["one"]}
        for epsilon in asked:

            def event(z):
                return poisson_gaussian_event(public["rate"], z, public["steps"])  # noqa: B023

            z = noise_multiplier_for(event, epsilon, delta, relation)
            true = epsilon_pld(event(z * noise["paper"] / noise["one"]), delta, relation)
            method = f"{names['paper']}: epsilon where {epsilon:g} was asked"
            yield {"setting": setting, "method": method, "epsilon": epsilon, "epsilon_true": true}


# ---- DP2-VAE -------------------------------------------------------------------------------------------------------
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
        model, epsilon: that of the claim, or a bound from below of the truth, or the epsilon of a sound event.
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
        "index revealed (epsilon)": epsilon_pld(revealed, delta, relation),
    }
    for name, epsilon in found.items():
        yield {"model": name, "epsilon": epsilon}
    if figure is not None:
        at = np.linspace(min(found.values()) - 3, found["hidden state (true, at least)"] + 4, 7 if quick else 25)
        curves = {
            "claimed": [delta_pld(claim, float(e), relation) for e in at],
            "true, hidden state": hidden_state_delta(at, sigma, steps_a, steps_b),
            "true, state that no draw moves": hidden_state_delta(at, sigma, steps_a, steps_b, informed=False),
            "epsilon with the index revealed": [delta_pld(revealed, float(e), relation) for e in at],
        }
        _draw_profiles(at, curves, delta, figure)


def _draw_profiles(at, curves, delta, path):
    drawing = new_figure((6.4, 4.0))
    axes = drawing.subplots()
    for (name, values), style in zip(curves.items(), ("C0-", "C3-", "C2--", "C7:")):
        axes.semilogy(at, np.maximum(values, 1e-12), style, label=name)
    axes.axhline(delta, color="black", linewidth=0.6)
    axes.set(xlabel="epsilon", ylabel="delta", ylim=(1e-9, 1))
    axes.legend(frameon=False)
    save_figure(drawing, path, dpi=110)
