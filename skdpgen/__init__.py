"""Differentially private generative models with the scikit-learn API."""

from __future__ import annotations

from .utils.lazy import lazy_names

__version__ = "0.1.0"

# Public names and the rooms they live in; imported on first use, so that `import skdpgen` stays light
# (no torch until a net is trained).
_HOMES = {
    "PrivacyAccountant": "accounting",
    "PrivacyCard": "accounting",
    "PrivateSearchCV": "model_selection",
    "PrivacyUnit": "_parameters",
    "DPSGD": "_parameters",
    "SubsetSGD": "_parameters",
    "GroupDivergence": "_parameters",
    "ImageFeatures": "_parameters",
    "LatentMixture": "_parameters",
    "DPPCA": "decomposition",
    "DPGaussianMixture": "mixture",
    "P3GMSynthesizer": "synthesizers",
    "DP2VAESynthesizer": "synthesizers",
    "MomentSynthesizer": "synthesizers",
    "PriVAESynthesizer": "synthesizers",
    "DPVAESynthesizer": "synthesizers",
    "DataLensSynthesizer": "synthesizers",
    "GPATESynthesizer": "synthesizers",
    "GSWGANSynthesizer": "synthesizers",
    "DPSinkhornSynthesizer": "synthesizers",
    "DPMERFSynthesizer": "synthesizers",
    "DPGMSynthesizer": "synthesizers",
    "DPCGANSynthesizer": "synthesizers",
    "PATEGANSynthesizer": "synthesizers",
    "PrivatePipeline": "synthesizers",
    "sample_pipeline": "synthesizers",
    "load": "synthesizers",
    "Schema": "tabular",
    "TableEncoder": "tabular",
}

# Modules with names of theirs: `skdpgen.report` imports it, as `import skdpgen.report` does.
_FOLDERS = ("accounting", "audit", "datasets", "dpsgd", "exceptions", "metrics", "nn", "report", "tabular", "testing")

__all__ = ["__version__", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _FOLDERS)
