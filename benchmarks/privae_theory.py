"""PriVAE's sensitivities and noise, the paper's beside the true ones: its Table 1, and one noise draw against two."""

from __future__ import annotations

import math

__all__ = ["noise_ratio", "privae_theory_benchmark", "table_1"]

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
            # the mean over the batch of gradients that all hang on every record: one vector, which may turn round
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
        For each epsilon, what the paper's noise costs in truth where it was asked.
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
