"""Fits under states of numpy and torch that the caller's program has set."""

import threading

import numpy as np
import pandas as pd
import pytest
import torch

from skdpgen import DPSGD, PrivacyAccountant, SubsetSGD
from skdpgen.synthesizers import DP2VAESynthesizer, DPMERFSynthesizer, DPVAESynthesizer, MomentSynthesizer
from skdpgen.utils.numerics import each_in_usual_numerics, usual_numerics

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(300, 3))
_FRAME = pd.DataFrame({"a": 10 ** _RNG.uniform(-8, 8, 300), "b": _RNG.choice(list("xyz"), 300)})
_NETWORKS = {
    "merf": lambda: DPMERFSynthesizer(2.0, steps=2),
    "dpvae": lambda: DPVAESynthesizer(2.0, n_components=2, training=DPSGD(2, 0.1)),
    "dp2vae": lambda: DP2VAESynthesizer(
        2.0, n_components=2, training=SubsetSGD(10, 2, pretrain_steps=2, warm_start_steps=2)
    ),
}


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def no_device():
    torch.set_default_device("meta")
    yield
    torch.set_default_device("cpu")


def _fits(name):
    accountant = PrivacyAccountant(5.0, 1e-5)
    fitted = _NETWORKS[name]().set_params(accountant=accountant, random_state=0).fit(_X)
    assert len(accountant.report())
    return fitted


@pytest.mark.parametrize("name", _NETWORKS)
def test_networks_are_trained_whatever_torchs_default_dtype_is(name, float64):
    fitted = _fits(name)
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32)
    assert np.isfinite(fitted.sample(5)).all()


@pytest.mark.parametrize("state", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("name", _NETWORKS)
def test_networks_are_trained_where_the_caller_records_no_gradients(name, state):
    with state():
        fitted = _fits(name)
        assert not torch.is_grad_enabled()
    assert np.isfinite(fitted.sample(5)).all()


@pytest.mark.parametrize("name", _NETWORKS)
def test_networks_are_trained_under_autocast_and_beside_a_default_device(name, no_device):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fitted = _fits(name)
    torch.set_default_device("cpu")
    assert np.isfinite(fitted.sample(5)).all()


@pytest.mark.parametrize("rows", [_X, _FRAME], ids=["array", "frame"])
def test_numpys_error_state_does_not_end_a_charged_fit(rows):
    with np.errstate(all="raise"):
        fitted = MomentSynthesizer(1.0, random_state=0).fit(rows)
        assert np.geterr() == dict.fromkeys(("divide", "over", "under", "invalid"), "raise")
    assert len(fitted.sample(5)) == 5


def test_the_last_of_several_threads_restores_the_default_dtype(float64):
    inside, leave = threading.Barrier(3), threading.Event()

    def block():
        with usual_numerics():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=block) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert torch.get_default_dtype() == torch.float32
    with usual_numerics():
        pass
    assert torch.get_default_dtype() == torch.float32
    leave.set()
    for thread in threads:
        thread.join()
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("name", _NETWORKS)
def test_samples_are_the_same_in_any_state(name, no_device):
    torch.set_default_device("cpu")
    fitted = _fits(name)
    expected = fitted.sample(5, random_state=0)
    with torch.autocast("cpu", dtype=torch.bfloat16), np.errstate(all="raise"):
        torch.set_default_device("meta")
        found = fitted.sample(5, random_state=0)
    np.testing.assert_array_equal(found, expected)


def test_latents_scores_and_reconstructions_are_the_same_in_any_state():
    fitted = _fits("dpvae")
    latent, score = fitted.transform(_X[:5]), fitted.score_samples(_X[:5])
    with torch.autocast("cpu", dtype=torch.bfloat16), np.errstate(all="raise"):
        np.testing.assert_array_equal(fitted.transform(_X[:5]), latent)
        np.testing.assert_array_equal(fitted.score_samples(_X[:5]), score)
        assert np.isfinite(fitted.inverse_transform(latent)).all()
        assert np.isfinite(fitted.reconstruct(_X[:5])).all()


def test_chunks_are_drawn_in_the_usual_state_and_the_callers_returns_between_them():
    states = []

    def chunks():
        for _ in range(2):
            states.append(np.geterr()["under"])
            yield np.geterr()["under"]

    with np.errstate(under="raise"):
        for _ in each_in_usual_numerics(chunks()):
            states.append(np.geterr()["under"])
    assert states == ["ignore", "raise", "ignore", "raise"]
