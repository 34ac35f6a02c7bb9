"""Generators of synthetic rows: one estimator a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..utils.lazy import lazy_names

# Imported on first use: a fit needs one of them.
_HOMES = {
    "DP2VAESynthesizer": "_dp2vae",
    "DPCGANSynthesizer": "_dpcgan",
    "DPGMSynthesizer": "_dpgm",
    "DPMERFSynthesizer": "_dp_merf",
    "DPSinkhornSynthesizer": "_dp_sinkhorn",
    "DPVAESynthesizer": "_privae",
    "DataLensSynthesizer": "_datalens",
    "GPATESynthesizer": "_gpate",
    "GSWGANSynthesizer": "_gs_wgan",
    "MomentSynthesizer": "_moment",
    "P3GMSynthesizer": "_p3gm",
    "PATEGANSynthesizer": "_pategan",
    "PriVAESynthesizer": "_privae",
    "PrivatePipeline": "_pipeline",
    "load": "_released",
    "sample_pipeline": "_pipeline",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # type checkers and editors do not follow names that are imported on first use
    from ._datalens import DataLensSynthesizer as DataLensSynthesizer
    from ._dp2vae import DP2VAESynthesizer as DP2VAESynthesizer
    from ._dp_merf import DPMERFSynthesizer as DPMERFSynthesizer
    from ._dp_sinkhorn import DPSinkhornSynthesizer as DPSinkhornSynthesizer
    from ._dpcgan import DPCGANSynthesizer as DPCGANSynthesizer
    from ._dpgm import DPGMSynthesizer as DPGMSynthesizer
    from ._gpate import GPATESynthesizer as GPATESynthesizer
    from ._gs_wgan import GSWGANSynthesizer as GSWGANSynthesizer
    from ._moment import MomentSynthesizer as MomentSynthesizer
    from ._p3gm import P3GMSynthesizer as P3GMSynthesizer
    from ._pategan import PATEGANSynthesizer as PATEGANSynthesizer
    from ._pipeline import PrivatePipeline as PrivatePipeline
    from ._pipeline import sample_pipeline as sample_pipeline
    from ._privae import DPVAESynthesizer as DPVAESynthesizer
    from ._privae import PriVAESynthesizer as PriVAESynthesizer
    from ._released import load as load

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
