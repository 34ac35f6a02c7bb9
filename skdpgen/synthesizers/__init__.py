"""Generators of synthetic rows: one estimator a file."""

from __future__ import annotations

from ._dp2vae import DP2VAESynthesizer
from ._dp_merf import DPMERFSynthesizer
from ._dpgm import DPGMSynthesizer
from ._moment import MomentSynthesizer
from ._p3gm import P3GMSynthesizer
from ._pipeline import PrivatePipeline, sample_pipeline
from ._privae import DPVAESynthesizer, PriVAESynthesizer
from ._released import load

__all__ = [
    "DP2VAESynthesizer",
    "DPGMSynthesizer",
    "DPMERFSynthesizer",
    "DPVAESynthesizer",
    "MomentSynthesizer",
    "P3GMSynthesizer",
    "PriVAESynthesizer",
    "PrivatePipeline",
    "load",
    "sample_pipeline",
]
