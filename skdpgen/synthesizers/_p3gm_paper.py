"""Published settings of P3GM."""

from __future__ import annotations

import math

from .._parameters import LatentMixture
from ..accounting import gaussian_mu

# Table IV: noise multiplier, epochs, batch size; training rows of the paper (9/10 of N); None: no reduction by PCA.
P3GM_PAPER_ROWS = {
    "credit": {"noise_multiplier": 2.1, "epochs": 15, "batch_size": 100, "rows": 256_326, "n_components": None},
    "adult": {"noise_multiplier": 1.4, "epochs": 5, "batch_size": 200, "rows": 40_700, "n_components": 10},
    "isolet": {"noise_multiplier": 1.6, "epochs": 2, "batch_size": 100, "rows": 7_017, "n_components": 10},
    "esr": {"noise_multiplier": 1.4, "epochs": 2, "batch_size": 100, "rows": 10_350, "n_components": 10},
    "mnist": {"noise_multiplier": 1.4, "epochs": 4, "batch_size": 300, "rows": 63_000, "n_components": 10},
    "fashion_mnist": {"noise_multiplier": 1.4, "epochs": 4, "batch_size": 300, "rows": 63_000, "n_components": 10},
}


def paper_settings(preset):
    """Parameters of P3GMSynthesizer that the paper's Table IV sets for a data set.

    The split is that of the paper at (1, 1e-5): epsilon .1 for the PCA, the noise multiplier of Table IV for DP-SGD,
    and the rest for EM; all three are then scaled together to the budget asked for.

    `preset`: "paper/adult" and so on; "paper" alone is "paper/mnist".

    Reference: Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Table IV.
    """
    kind, _, name = preset.partition("/")
    row = P3GM_PAPER_ROWS.get(name or "mnist")
    if kind != "paper" or row is None:
        raise ValueError(
            f"preset must be 'paper' or one of {', '.join(f'paper/{n}' for n in P3GM_PAPER_ROWS)}; got {preset!r}"
        )
    rate = row["batch_size"] / row["rows"]
    steps = round(row["epochs"] / rate)
    whole = gaussian_mu(1.0, 1e-5) ** 2
    encoder = gaussian_mu(0.1, 1e-5) ** 2 / whole
    decoder = rate**2 * steps * math.expm1(row["noise_multiplier"] ** -2) / whole
    return {
        "prior": LatentMixture(3, covariance_type="diag", n_iter=20),
        "n_components": row["n_components"],
        "decoder": "net",
        "sampling_rate": rate,
        "steps": steps,
        "budget_split": {"encoder": encoder, "mixture": max(1 - encoder - decoder, 0.05), "decoder": decoder},
    }
