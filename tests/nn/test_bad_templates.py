"""Bad templates of networks: a message that names the parameter, and nothing charged."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from torch import nn, optim

from skdpgen import (
    DP2VAESynthesizer,
    DPGMSynthesizer,
    DPVAESynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    Schema,
    SubsetSGD,
)
from skdpgen.nn import (
    ClassifierModule,
    DPNet,
    DPNetClassifier,
    ImageRefinementModule,
    P3GMModule,
    ParameterAverage,
    PartitionedVAEModule,
    PriVAEModule,
    TableRefinementModule,
)
from skdpgen.tabular import Boolean, Categorical, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),  # few rows
    pytest.mark.usefixtures("short_fits"),
]

RNG = np.random.default_rng(5)
X, Y = RNG.uniform(0, 1, (60, 16)), RNG.integers(0, 2, 60)
FRAME = pd.DataFrame({"age": RNG.integers(20, 60, 60), "town": RNG.choice(["north", "south"], 60), "ill": Y == 1})
SCHEMA = Schema([Numeric("age", (0, 99), integer=True), Categorical("town", ("north", "south")), Boolean("ill")])
ARRAY = {"bounds": (0, 1), "steps": 2, "sampling_rate": 0.5, "n_components": 3}
TABLE = {"schema": SCHEMA, "steps": 2, "sampling_rate": 0.5}
CASES = {
    "p3gm": (P3GMSynthesizer, {**ARRAY, "decoder": "net", "warm_start_steps": 1}, P3GMModule, (X,)),
    "images": (
        P3GMSynthesizer,
        {**ARRAY, "decoder": "net", "image_shape": (4, 4), "classes": [0, 1]},
        ImageRefinementModule,
        (X, Y),
    ),
    "table": (P3GMSynthesizer, {**TABLE, "decoder": "net", "target": "ill"}, TableRefinementModule, (FRAME,)),
    "p3gm of a table": (P3GMSynthesizer, {**TABLE, "decoder": "net", "warm_start_steps": 1}, P3GMModule, (FRAME,)),
    "privae": (PriVAESynthesizer, {**ARRAY, "image_shape": (4, 4), "warm_start_steps": 0}, PriVAEModule, (X,)),
    "dpvae of a table": (DPVAESynthesizer, {**TABLE, "n_components": 3, "warm_start_steps": 1}, PriVAEModule, (FRAME,)),
    "dpgm": (DPGMSynthesizer, {**ARRAY, "n_clusters": 2, "cluster_steps": 1}, PartitionedVAEModule, (X,)),
    "classifier": (
        DPNetClassifier,
        {"bounds": (0, 1), "classes": [0, 1], "steps": 2, "sampling_rate": 0.5},
        ClassifierModule,
        (X, Y),
    ),
}
NOT_WHOLE = [0, -1, 2.5, np.nan, None, "three", True, 10**9]
NOT_NETWORKS = [5, "dense", nn.Linear, torch.zeros]
BAD = {
    "n_hidden": [*NOT_WHOLE, [4, 0], [2.5], (3, None), {}],
    "hidden_layer_sizes": [*NOT_WHOLE, [4, 0], [2.5], (3, None), {}],
    "n_monte_carlo": [*NOT_WHOLE, [2]],
    "n_channels": [*NOT_WHOLE, [2]],
    "n_prior_samples": [*NOT_WHOLE, [2]],
    "latent_variance": ["none", 0, None, 1.0, []],
    "expected_group_size": [0, -1, np.nan, np.inf, None, "three", True],
    "decoder": [*NOT_NETWORKS, nn.Linear(2, 2)],
    "encoder": [*NOT_NETWORKS, nn.Linear(2, 2)],
    "variance": [*NOT_NETWORKS, nn.Linear(2, 2)],
    "colour": ["red"],
}
# Set by the fit, whatever the value.
OF_FIT = {
    "basis", "center", "prior", "likelihood", "n_labels", "location", "slopes", "deviation", "features", "logits",
    "widths", "shares", "n_features", "n_latent", "divergence", "alpha", "beta", "image_shape", "n_parts", "n_classes",
}  # fmt: skip
NET = {
    "lr": [-1, np.nan, np.inf, None, "slow", True, 10**400],
    "optimizer": [None, "adam", nn.Linear, optim.LBFGS],
    "optimizer__betas": [3],
    "optimizer__speed": [1],
    "optimizer__weight_decay": [-1, "a", np.nan],
    "criterion": [None, nn.MSELoss, "mse", 3],
    "criterion__weight": [1],
    "callbacks": [3, "none", [3], [("a", 3)], (), [print]],
    "dataset": [None, 3, list],
    "iterator_train": [None, list],
    "iterator_train__batches": [1],
    "iterator_train__device": [1],
    "iterator_train__units": [None],
    "iterator_train__plan": [None],
    "iterator_valid__speed": [1],
    "dataset__speed": [1],
    "dataset__length": [3],
    "callbacks__x": [3],
    "callbacks__x__speed": [3],
    "module": [None, 3, "mlp", nn.Linear, nn.Linear(2, 2)],
    "plan": [3],
    "noise": ["fast"],
    "device": ["nowhere"],
}


def _own(module):
    """Parameters of a module."""
    return [name for name in inspect.signature(module.__init__).parameters if name != "self"]


def _refusals(case):
    """Names and values of what a fit must refuse."""
    module = CASES[case][2]
    for name in [*_own(module), "colour"]:
        values = [0, None, "x"] if name in OF_FIT else BAD[name]
        yield from ((f"module__{name}", value) for value in values)
    yield from ((name, value) for name, values in NET.items() for value in values)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_parameter_of_a_template_is_refused_by_its_name(case):
    cls, parameters, module, data = CASES[case]
    tried = 0
    for name, value in _refusals(case):
        net = DPNet(value) if name == "module" else DPNet(module, **{name: value})
        accountant = PrivacyAccountant(100.0, 1e-5)
        synth = _make(cls, {"accountant": accountant, **parameters, "net": net})
        named = name.rpartition("__")[2]
        with pytest.raises(ValueError, match=f"{named}|LBFGS|PoissonLoader|Adam refuses its parameters"):
            synth.fit(*data)
        assert not accountant.charges, (name, value)
        tried += 1
    assert tried > 40


def _make(cls, parameters):
    make = cls if cls is DPNetClassifier else functools.partial(make_flat, cls)
    return make(epsilon=10.0, **parameters)


@pytest.mark.parametrize("case", CASES)
def test_every_parameter_of_a_module_is_tried(case):
    assert set(_own(CASES[case][2])) <= BAD.keys() | OF_FIT


@pytest.mark.parametrize("case", CASES)
def test_good_parameters_of_a_template_are_kept(case):
    cls, parameters, module, data = CASES[case]
    name = "hidden_layer_sizes" if case == "classifier" else "n_hidden"
    for value in (3, np.int64(3), [4, 3], ()):
        own = {
            f"module__{name}": value,
            "optimizer__weight_decay": 0.1,
            "callbacks": None,
            "verbose": 0,
            "random_state": 0,
        }
        _make(cls, {**parameters, "net": DPNet(module, **own)}).fit(*data)


@pytest.mark.parametrize(
    ("callbacks", "name"),
    [
        ([ParameterAverage], "ParameterAverage__decay"),
        ([ParameterAverage()], "ParameterAverage__decay"),
        ([("average", ParameterAverage())], "average__decay"),
        ([ParameterAverage(), ParameterAverage()], "ParameterAverage_2__decay"),
    ],
)
def test_parameters_of_callbacks_reach_them(callbacks, name):
    cls, parameters, module, data = CASES["p3gm"]
    net = DPNet(module, callbacks=callbacks, verbose=0, **{f"callbacks__{name}": 0.25})
    _make(cls, {**parameters, "net": net}).fit(*data)
    accountant = PrivacyAccountant(100.0, 1e-5)
    net = DPNet(module, callbacks=callbacks, **{f"callbacks__{name.replace('decay', 'speed')}": 0.25})
    with pytest.raises(ValueError, match="speed= of net= is not a parameter of the callback"):
        _make(cls, {"accountant": accountant, **parameters, "net": net}).fit(*data)
    assert not accountant.charges


ARCHITECTURES = {
    "a name that is none": ("dense", "architecture"),
    "one module": ((nn.Linear(3, 3),), "architecture"),
    "three modules": (("mlp", "mlp", "mlp"), "architecture"),
    "no modules": ((5, None), "architecture"),
    "classes": ((nn.Linear, "mlp"), "architecture"),
    "nothing": (None, "architecture"),
    "a decoder without a label": (("mlp", nn.Linear(3, 16)), "decoder"),
    "an encoder without a label": ((nn.Linear(16, 6), "mlp"), "encoder"),
    "an architecture of images": ("conv_28", "image_shape"),
}


@pytest.mark.parametrize(("architecture", "word"), ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_bad_architecture_is_refused_before_the_charge(architecture, word):
    accountant = PrivacyAccountant(100.0, 1e-5)
    training = SubsetSGD(4, steps=2, warm_start_steps=0, pretrain_steps=1)
    synth = DP2VAESynthesizer(
        10.0, accountant=accountant, bounds=(0, 1), n_components=3, training=training, architecture=architecture
    )
    with pytest.raises(ValueError, match=word):
        synth.fit(X)
    assert not accountant.charges
