"""Other projects' synthesizers in the tables: thin adapters, each run by an interpreter of its own environment.

The package never imports a peer, and needs none. ``pip install dpmm==0.1.9`` (AIM, MST, PrivBayes) and
``pip install smartnoise-synth==1.0.8 packaging`` (DP-CTGAN, PATE-CTGAN), each into an environment of its own, and name
their interpreters by ``skdpgen bench adult --models AIM --peer-python PATH ...`` or by the variable
SKDPGEN_PEERS_PYTHON.
"""

from __future__ import annotations

import functools

from .adapter import PYTHON_VARIABLE, Peer
from .dpmm import AIM, MST, PrivBayes
from .smartnoise import DPCTGAN, PATECTGAN

__all__ = ["AIM", "DPCTGAN", "MST", "PATECTGAN", "PEERS", "PYTHON_VARIABLE", "Peer", "PrivBayes", "find_peer"]

# By the name that `--models` takes.
PEERS = {peer.name: peer for peer in (AIM, MST, PrivBayes, DPCTGAN, PATECTGAN)}


def find_peer(name, python=None):
    """Return the maker of a peer by its name, looked for in the environments of `python`; None for other names."""
    if name not in PEERS:
        return None
    make = functools.partial(PEERS[name], python=python)
    make.name = name
    return make
