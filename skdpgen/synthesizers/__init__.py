"""Generators of synthetic rows: one estimator a file."""

from __future__ import annotations

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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
