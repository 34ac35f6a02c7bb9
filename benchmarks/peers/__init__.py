"""Synthesizers of other projects: thin adapters, each run by the interpreter of a separate environment.

The package never imports a peer. Install ``dpmm==0.1.9`` (AIM, MST, PrivBayes; Python 3.10 or 3.11) and
``smartnoise-synth==1.0.8 packaging`` (DP-CTGAN, PATE-CTGAN), each in a separate environment. Name their interpreters by
``skdpgen bench adult --models AIM --peer-python PATH ...`` or by the variable SKDPGEN_PEERS_PYTHON.

From the source of dpmm: its pipelines spend `proc_epsilon` on bins of the numbers *beside* `epsilon`; here the two
together are the budget. From the source of smartnoise-synth: it is given a transformer that was fitted on the public
bounds and categories, so that its own transformer, which takes the categories from the rows, does not run.
"""

from __future__ import annotations

import functools

from .adapter import PYTHON_VARIABLE, Peer

__all__ = ["AIM", "DPCTGAN", "MST", "PATECTGAN", "PEERS", "PYTHON_VARIABLE", "Peer", "PrivBayes", "find_peer"]

# A tenth of the budget for the bins of numbers, as the pipelines' defaults have it.
_SETTINGS = {"processing_share": 0.1}
_UNCHARGED = (
    "the exact number of rows (number of bins, threshold of their tree)",
    "which columns hold a single value: copied as they are",
)


class AIM(Peer):
    """AIM by dpmm: adaptive choice of 2-way marginals, a graphical model of them (McKenna et al. 2022)."""

    name, package, model = "AIM", "dpmm", "AIM"
    # MiB: the default of AIM's own class, which the pipeline lifts
    settings = {**_SETTINGS, "max_model_size": 80}
    uncharged = _UNCHARGED


class MST(Peer):
    """MST by dpmm: 2-way marginals along a spanning tree (McKenna, Miklau, Sheldon 2021)."""

    name, package, model = "MST", "dpmm", "MST"
    settings = _SETTINGS
    uncharged = _UNCHARGED


class PrivBayes(Peer):
    """PrivBayes by dpmm: a Bayesian network of degree 2, its tables by Gaussian noise (Zhang et al. 2017)."""

    name, package, model = "PrivBayes", "dpmm", "PrivBayes"
    settings = _SETTINGS
    uncharged = (
        *_UNCHARGED,
        "part of the choice of the network: it scores parents by mutual information in bits over the mean of the "
        "entropies, with the sensitivity of mutual information in nats",
    )


class DPCTGAN(Peer):
    """DP-CTGAN by smartnoise-synth: a conditional GAN, its discriminator trained by DP-SGD (Rosenblatt et al. 2020)."""

    name, package, model = "DP-CTGAN", "smartnoise-synth", "DPCTGAN"
    uncharged = (
        "the exact frequencies of all categories: it draws its conditions from them, in training and in sampling",
        "the end of training: checked between epochs, after the budget is exceeded",
        "amplification: batches of 500 are drawn with replacement, accounted as Poisson samples",
    )


class PATECTGAN(Peer):
    """PATE-CTGAN by smartnoise-synth: a conditional GAN with teachers on parts of the rows (Rosenblatt et al. 2020)."""

    name, package, model = "PATE-CTGAN", "smartnoise-synth", "PATECTGAN"
    uncharged = (
        "nearly all: its teachers and its student are one and the same network, trained on real rows without noise; "
        "that network trains the generator; the noisy votes that it accounts for are not its only way to the rows",
        "the exact frequencies of all categories; sampling draws its conditions from real rows",
        "the end of training: checked after the budget is exceeded, by a cost that depends on the rows",
    )


# By the name that `--models` takes.
PEERS = {peer.name: peer for peer in (AIM, MST, PrivBayes, DPCTGAN, PATECTGAN)}


def find_peer(name, python=None):
    """Return the maker of a peer by its name, looked for in the environments of `python`; None for other names."""
    if name not in PEERS:
        return None
    make = functools.partial(PEERS[name], python=python)
    make.name = name
    return make
