"""Differentially private generative models with the scikit-learn API."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:  # type checkers and editors do not follow names that are imported on first use
    from . import accounting as accounting
    from . import audit as audit
    from . import datasets as datasets
    from . import dpsgd as dpsgd
    from . import exceptions as exceptions
    from . import metrics as metrics
    from . import nn as nn
    from . import report as report
    from . import tabular as tabular
    from . import testing as testing
    from ._parameters import DPSGD as DPSGD
    from ._parameters import GroupDivergence as GroupDivergence
    from ._parameters import ImageFeatures as ImageFeatures
    from ._parameters import LatentMixture as LatentMixture
    from ._parameters import PrivacyUnit as PrivacyUnit
    from ._parameters import SubsetSGD as SubsetSGD
    from .accounting import PrivacyAccountant as PrivacyAccountant
    from .accounting import PrivacyCard as PrivacyCard
    from .decomposition import DPPCA as DPPCA
    from .mixture import DPGaussianMixture as DPGaussianMixture
    from .model_selection import PrivateSearchCV as PrivateSearchCV
    from .synthesizers import DataLensSynthesizer as DataLensSynthesizer
    from .synthesizers import DP2VAESynthesizer as DP2VAESynthesizer
    from .synthesizers import DPCGANSynthesizer as DPCGANSynthesizer
    from .synthesizers import DPGMSynthesizer as DPGMSynthesizer
    from .synthesizers import DPMERFSynthesizer as DPMERFSynthesizer
    from .synthesizers import DPSinkhornSynthesizer as DPSinkhornSynthesizer
    from .synthesizers import DPVAESynthesizer as DPVAESynthesizer
    from .synthesizers import GPATESynthesizer as GPATESynthesizer
    from .synthesizers import GSWGANSynthesizer as GSWGANSynthesizer
    from .synthesizers import MomentSynthesizer as MomentSynthesizer
    from .synthesizers import P3GMSynthesizer as P3GMSynthesizer
    from .synthesizers import PATEGANSynthesizer as PATEGANSynthesizer
    from .synthesizers import PriVAESynthesizer as PriVAESynthesizer
    from .synthesizers import PrivatePipeline as PrivatePipeline
    from .synthesizers import load as load
    from .synthesizers import sample_pipeline as sample_pipeline
    from .tabular import Schema as Schema
    from .tabular import TableEncoder as TableEncoder

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _FOLDERS)
