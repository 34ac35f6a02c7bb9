"""Generators of synthetic rows: one estimator a file."""

from __future__ import annotations

import importlib

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


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_HOMES])
