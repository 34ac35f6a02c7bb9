"""Attack risk: what epsilon and delta allow an attacker, computed from the releases of a fit.

The attacker knows all rows but one and everything that was released, and decides whether that row was in the data. Two
figures bound every such attack: the advantage (true positive rate less false positive rate), and the true positive rate
at a false positive rate of 1 %. They follow from the privacy loss distribution of the releases. The pair of epsilon and
delta alone is only one point of it, so it allows more.
"""

import math
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skdpgen import MomentSynthesizer
from skdpgen.accounting import gaussian_event, gaussian_mu, membership_advantage, true_positive_rate

RELATION, DELTA = "add_or_remove_one", 1e-5


def figures(epsilon):
    """Figures of a fit whose releases are Gaussian, and those of the pair alone."""
    event = gaussian_event(1 / gaussian_mu(epsilon, DELTA))
    growth = math.exp(epsilon)
    return {
        "advantage": membership_advantage(event, RELATION),
        "recognised of 100": 100 * true_positive_rate(event, 0.01, RELATION),
        "advantage, the pair alone": (growth - 1 + 2 * DELTA) / (growth + 1),
        "recognised, the pair alone": 100 * min(1.0, 0.01 * growth + DELTA, 1 - (0.99 - DELTA) / growth),
    }


# ---- the picture ------------------------------------------------------------------------------------------------
epsilons = np.geomspace(0.1, 20, 60)
found = [figures(epsilon) for epsilon in epsilons]
figure = Figure(figsize=(10, 4), layout="constrained")
left, right = figure.subplots(1, 2)
for ax, names, title in (
    (left, ("advantage", "advantage, the pair alone"), "advantage of an attacker"),
    (
        right,
        ("recognised of 100", "recognised, the pair alone"),
        "members recognised of 100, with 1 false alarm in 100",
    ),
):
    for name, style in zip(names, ("-", "--")):
        ax.plot(epsilons, [row[name] for row in found], style, label=name)
    ax.set_xscale("log")
    ax.set_xticks([0.1, 0.3, 1, 3, 10, 20], ["0.1", "0.3", "1", "3", "10", "20"])
    ax.set_xlabel(f"epsilon at delta {DELTA:g}")
    ax.set_ylabel("upper bound for every attack")
    ax.set_title(title, fontsize=11)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
right.axhline(1, color="0.4", linewidth=1)
right.annotate("guessing", (0.1, 1), xytext=(0, 4), textcoords="offset points", fontsize=9, color="0.4")
path = Path(tempfile.mkdtemp()) / "attack_risk.png"
figure.savefig(path, dpi=110)
print("picture:", path)

# ---- a fit: its own events, not those of a formula --------------------------------------------------------------
X = np.random.default_rng(0).random((2_000, 6))
for epsilon in (0.5, 1.0, 3.0, 10.0):
    model = MomentSynthesizer(epsilon, bounds=(0, 1), l2_bound=1.5).fit(X)
    charges = model.card_.charges
    print(
        f"epsilon {epsilon:4g}: advantage at most {membership_advantage(charges, RELATION):.3f}, at most "
        f"{100 * true_positive_rate(charges, 0.01, RELATION):.1f} of 100 recognised"
    )
print(model.accountant_.report().to_string(index=False))
