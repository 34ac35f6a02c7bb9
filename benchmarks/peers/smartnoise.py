"""DP-CTGAN and PATE-CTGAN of smartnoise-synth 1.0.8 (``pip install smartnoise-synth==1.0.8 packaging``).

Read in its source: it is given a transformer that was fitted on the public bounds and categories, so that its own,
which takes the categories from the rows, does not run.
"""

from __future__ import annotations

from .adapter import Peer

__all__ = ["DPCTGAN", "PATECTGAN"]


class DPCTGAN(Peer):
    """DP-CTGAN by smartnoise-synth: a conditional GAN, its discriminator trained by DP-SGD (Rosenblatt et al. 2020)."""

    name, package, model = "DP-CTGAN", "smartnoise-synth", "DPCTGAN"
    unpaid = (
        "the exact frequencies of all categories: it draws its conditions from them, in training and in sampling",
        "the end of training: checked between epochs, after the budget is exceeded",
        "amplification: batches of 500 are drawn with replacement, accounted as Poisson samples",
    )


class PATECTGAN(Peer):
    """PATE-CTGAN by smartnoise-synth: a conditional GAN with teachers on parts of the rows (Rosenblatt et al. 2020)."""

    name, package, model = "PATE-CTGAN", "smartnoise-synth", "PATECTGAN"
    unpaid = (
        "nearly all: its teachers and its student are one and the same network, trained on real rows without noise; "
        "that network trains the generator; the noisy votes that it accounts for are not its only way to the rows",
        "the exact frequencies of all categories; sampling draws its conditions from real rows",
        "the end of training: checked after the budget is exceeded, by a cost that depends on the rows",
    )
