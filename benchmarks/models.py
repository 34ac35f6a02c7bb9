"""What the tables compare: synthesizers by class name, and settings of them that have a name."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field

from skdpgen import ImageFeatures

__all__ = [
    "BASELINES",
    "CLASSIFIER",
    "MODELS",
    "REAL",
    "Model",
    "find_model",
    "models_of_images",
    "models_of_tables",
    "models_that_sample",
    "models_with_components",
    "models_with_shares",
    "verified_epsilon",
]

REAL = "real data"
# Trained by DP-SGD on the rows themselves and tested on real ones, without any synthesis: what a reviewer asks for.
CLASSIFIER = "DPNetClassifier"


@dataclass(frozen=True)
class Model:
    """A synthesizer, as the papers' tables name it.

    Parameters
    ----------
    name : str
        In ``--models``, in the results and in the printed tables.
    estimator : str
        Class in `skdpgen.synthesizers`.
    settings : dict
        Parameters of the synthesizer; ``{data}`` in a text stands for the name of the data.
    private : bool
        False: fitted at an infinite epsilon, whatever the budget of the others.
    trains : bool
        Whether DP-SGD trains a net, on the `device` that is asked for.
    training : dict
        Parameters of its `DPSGD`; "net" is a function that makes one.
    """

    name: str
    estimator: str
    settings: dict = field(default_factory=dict)
    private: bool = True
    trains: bool = False
    training: dict = field(default_factory=dict)

    def make(self, data, *, epsilon, device="cpu", **public):
        """Return the unfitted synthesizer; of what is `public` it is given what its class takes.

        Parameters
        ----------
        data : str
            Name of the data set.
        epsilon : float
        device : str, default="cpu"
        **public
            `delta`, `bounds`, `schema`, ... None is left out.
        """
        from skdpgen import DPSGD, synthesizers

        make = getattr(synthesizers, self.estimator)
        taken = inspect.signature(make).parameters
        given = {name: value for name, value in public.items() if value is not None and name in taken}
        own = {
            name: value.format(data=data) if isinstance(value, str) else value for name, value in self.settings.items()
        }
        training = {name: value() if name == "net" else value for name, value in self.training.items()}
        if self.trains and device != "cpu":
            training["device"] = device
        if training:
            own["training"] = DPSGD(**training)
        return make(epsilon=epsilon if self.private else math.inf, **{**given, **own})


def autoencoder():
    """The net of P3GM(AE): its encoder has no variance."""
    from skdpgen.nn import DPNet, P3GMModule

    return DPNet(P3GMModule, module__latent_variance="zero")


# Of images, the paper's: dense nets on the pixels.
_DENSE = {"image_shape": None}
# Settings of P3GM and DP-VAE that the papers' tables list as separate models.
MODELS = {
    model.name: model
    for model in (
        Model("P3GM(net)", "P3GMSynthesizer", {"decoder": "net"}, trains=True),
        Model("P3GM(released)", "P3GMSynthesizer", {"decoder": "released"}),
        Model("P3GM(tables)", "P3GMSynthesizer", {"budget_split": {"target": 0}}),
        Model("P3GM(features)", "P3GMSynthesizer", {"decoder": "features"}),
        Model("P3GM(upright)", "P3GMSynthesizer", {"decoder": ImageFeatures(upright=True)}),
        Model("P3GM(deformed)", "P3GMSynthesizer", {"decoder": ImageFeatures(deformation=0.025)}),
        Model(
            "P3GM(upright, deformed)", "P3GMSynthesizer", {"decoder": ImageFeatures(upright=True, deformation=0.025)}
        ),
        Model("P3GM(AE)", "P3GMSynthesizer", {"decoder": "net"}, trains=True, training={"net": autoencoder}),
        Model("P3GM(paper)", "P3GMSynthesizer", {"preset": "paper/{data}", **_DENSE}, trains=True),
        Model("PGM", "P3GMSynthesizer", {"preset": "paper/{data}", **_DENSE}, private=False, trains=True),
        Model("DPVAESynthesizer", "DPVAESynthesizer", _DENSE, trains=True),
        Model("VAE", "DPVAESynthesizer", _DENSE, private=False, trains=True, training={"warm_start_steps": 0}),
        Model("DPGMSynthesizer", "DPGMSynthesizer", _DENSE, trains=True),
    )
}
# What samples, in the order of the rows of every table.
BASELINES = (
    REAL,
    "P3GMSynthesizer",
    "P3GM(AE)",
    "P3GM(paper)",
    "PGM",
    "VAE",
    "DPVAESynthesizer",
    "DPGMSynthesizer",
    "DPMERFSynthesizer",
    "MomentSynthesizer",
)


def find_model(name):
    """Return the `Model` of a name: one of `MODELS`, or a class of `skdpgen.synthesizers` at its defaults.

    Raises
    ------
    ValueError
        There is no such model.
    """
    if name in MODELS:
        return MODELS[name]
    from skdpgen import synthesizers

    classes = [known for known in synthesizers.__all__ if known.endswith("Synthesizer")]
    if name not in classes:
        known = ", ".join([REAL, CLASSIFIER, *MODELS, *(c for c in classes if c not in MODELS)])
        raise ValueError(f"models must be of {known}; got {name!r}")
    return Model(name, name)


def verified_epsilon(synthesizer):
    """Epsilon of a fit recomputed from the events of its card (None without a card).

    Raises
    ------
    ValueError
        The events do not cost what the card says.
    """
    card = getattr(synthesizer, "card_", None)
    return None if card is None else card.verify()["fit"]["epsilon"]


# ---- names that the option `models` may hold, by what a benchmark does with them -----------------------------------
def models_that_sample():
    """Names of `find_model`, and the real data."""
    return (REAL, *dict.fromkeys((*MODELS, *_classes())))


def models_of_images():
    """The same, and the classifier that is trained by DP-SGD on the rows."""
    return (*models_that_sample(), CLASSIFIER)


def models_of_tables():
    """The same, and the peers."""
    from .peers import PEERS

    return (*models_of_images(), *PEERS)


def models_with_components():
    """Those whose number of latent dimensions can be set."""
    return _models_with("n_components")


def models_with_units():
    """Those that protect all rows of a person."""
    return _models_with("unit")


def _models_with(parameter):
    classes = _classes()
    estimators = {name: name for name in classes} | {name: model.estimator for name, model in MODELS.items()}
    return tuple(
        name
        for name in models_that_sample()
        if name in estimators and parameter in inspect.signature(classes[estimators[name]]).parameters
    )


def models_with_shares():
    """Those of P3GM that train a decoder: the encoder's share of their budget can be set."""
    return tuple(name for name, model in MODELS.items() if model.estimator == "P3GMSynthesizer" and model.trains)


def _classes():
    from skdpgen import synthesizers

    return {name: getattr(synthesizers, name) for name in synthesizers.__all__ if name.endswith("Synthesizer")}
