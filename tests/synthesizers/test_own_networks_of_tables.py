"""Networks of a user's own on tables: whatever cannot fit the columns is refused before anything is charged."""

import numpy as np
import pandas as pd
import pytest
from torch import nn

from skdpgen import DPSGD, PrivacyAccountant, SubsetSGD
from skdpgen.nn import DPNet, P3GMModule, PriVAEModule
from skdpgen.synthesizers import DP2VAESynthesizer, P3GMSynthesizer, PriVAESynthesizer
from skdpgen.tabular import Boolean, Categorical, Numeric, Schema

_RNG = np.random.default_rng(0)
_FRAME = pd.DataFrame(
    {
        "colour": _RNG.choice(list("xyz"), 600),
        "size": _RNG.choice(list("uv"), 600),
        "flag": _RNG.random(600) < 0.3,
        "kind": _RNG.choice(list("pq"), 600),
    }
)
_COLUMNS = [Categorical("colour", list("xyz")), Categorical("size", list("uvw")), Boolean("flag")]
_DECLARED = Schema([*_COLUMNS, Categorical("kind", list("pq"))])
_LEVELS = 8  # 3 + 3 + 2: the target is a label of the networks
_WITH_NUMBERS = Schema([*_DECLARED.columns, Numeric("height", (-4.0, 4.0))])
_LEARNED = Schema([Categorical("colour"), *_COLUMNS[1:], Categorical("kind", list("pq"))])


class _OfRows(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, rows, labels):
        return self.linear(rows)


class _AnyWidth(PriVAEModule):
    def __init__(self, n_features, n_latent, likelihood, **parameters):
        own = nn.Linear(n_latent + parameters.get("n_labels", 0), n_features)
        super().__init__(n_features, n_latent, likelihood, decoder=own, **parameters)


def _privae(width):
    net = DPNet(PriVAEModule, module__decoder=nn.Linear(5, width))
    return PriVAESynthesizer(n_components=3, training=DPSGD(2, 0.1, net=net, warm_start_steps=0))


def _p3gm(width):
    net = DPNet(P3GMModule, module__decoder=nn.Linear(3, width))
    return P3GMSynthesizer(n_components=3, decoder="net", training=DPSGD(2, 0.1, net=net))


def _dp2vae(width):
    networks = (_OfRows(width, 6), _OfRows(3, width))
    return DP2VAESynthesizer(n_components=3, architecture=networks, training=SubsetSGD(10, 2, warm_start_steps=2))


_MAKERS = {"PriVAE": _privae, "P3GM": _p3gm, "DP2VAE": _dp2vae}


def _fit(synthesizer, schema, accountant):
    frame = _FRAME if "height" not in schema else _FRAME.assign(height=_RNG.normal(size=600))
    parameters = {"epsilon": 3.0, "delta": 1e-5, "target": "kind", "random_state": 0}
    return synthesizer.set_params(schema=schema, accountant=accountant, **parameters).fit(frame)


@pytest.mark.parametrize("width", [_LEVELS, 11, 40])
@pytest.mark.parametrize("schema", [_WITH_NUMBERS, _LEARNED], ids=["numbers", "learned"])
@pytest.mark.parametrize("name", _MAKERS)
def test_a_fixed_width_is_refused_where_the_fit_releases_the_levels(name, schema, width):
    accountant = PrivacyAccountant(10.0, 1e-5)
    with pytest.raises(ValueError, match="fixed number of columns"):
        _fit(_MAKERS[name](width), schema, accountant)
    assert not len(accountant.report())


@pytest.mark.parametrize("name", ["PriVAE", "DP2VAE"])
def test_declared_levels_take_their_width_and_no_other(name):
    for width in (_LEVELS - 1, _LEVELS + 1):
        accountant = PrivacyAccountant(10.0, 1e-5)
        with pytest.raises(ValueError, match=r"does not (fit|take)"):
            _fit(_MAKERS[name](width), _DECLARED, accountant)
        assert not len(accountant.report())
    fitted = _fit(_MAKERS[name](_LEVELS), _DECLARED, PrivacyAccountant(10.0, 1e-5))
    assert set(fitted.sample(50)["colour"]) <= set("xyz")


def test_a_module_that_makes_its_layers_fits_any_table():
    training = DPSGD(2, 0.1, net=DPNet(_AnyWidth), warm_start_steps=0)
    synthesizer = PriVAESynthesizer(n_components=3, training=training)
    fitted = _fit(synthesizer, _WITH_NUMBERS, PrivacyAccountant(10.0, 1e-5))
    assert len(fitted.sample(20)) == 20
