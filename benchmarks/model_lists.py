"""Names that `models` may hold, by what a benchmark does with them; each is looked up before anything is fitted."""

from __future__ import annotations

import inspect

from .models import CLASSIFIER, MODELS, REAL
from .peers import PEERS

__all__ = [
    "models_of_images",
    "models_of_tables",
    "models_that_sample",
    "models_with_components",
    "models_with_shares",
]


def models_that_sample():
    """Names of `find_model`, and the real data."""
    return (REAL, *dict.fromkeys((*MODELS, *_classes())))


def models_of_images():
    """The same, and the classifier that is trained by DP-SGD on the rows."""
    return (*models_that_sample(), CLASSIFIER)


def models_of_tables():
    """The same, and the peers."""
    return (*models_of_images(), *PEERS)


def models_with_components():
    """Those whose number of latent dimensions can be set."""
    classes = _classes()
    estimators = {name: name for name in classes} | {name: model.estimator for name, model in MODELS.items()}
    return tuple(
        name
        for name in models_that_sample()
        if name in estimators and "n_components" in inspect.signature(classes[estimators[name]]).parameters
    )


def models_with_shares():
    """Those of P3GM that train a decoder: the encoder's share of their budget can be set."""
    return tuple(name for name, model in MODELS.items() if model.estimator == "P3GMSynthesizer" and model.trains)


def _classes():
    from skdpgen import synthesizers

    return {name: getattr(synthesizers, name) for name in synthesizers.__all__ if name.endswith("Synthesizer")}
