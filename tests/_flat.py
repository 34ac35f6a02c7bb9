"""Synthesizers by flat parameters: those of the training and of the divergence beside the others."""

from __future__ import annotations

from sklearn.base import clone

from skdpgen._parameters import grouped_parameters, object_of


def make_flat(cls, *args, **flat):
    """Return ``cls(*args, **parameters)``, with the flat parameters in the objects that hold them."""
    return cls(*args, **grouped_parameters(cls, flat))


def set_flat(estimator, **flat):
    """Set parameters of an estimator, those of its training by their flat names."""
    kind, known = object_of(type(estimator), "training"), type(estimator)._get_param_names()
    names = () if kind is None else [name for name in kind._get_param_names() if name in flat and name not in known]
    if names:
        training = kind() if estimator.training is None else clone(estimator.training)
        flat["training"] = training.set_params(**{name: flat.pop(name) for name in names})
    return estimator.set_params(**flat)
