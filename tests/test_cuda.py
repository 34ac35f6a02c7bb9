"""What trains on the processor trains on a CUDA device: equal clipped sums, noise at its scale, whole fits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _claims import assert_noise_at_scale
from _flat import make_flat
from dpsgd.test_clipped_sum import LAYERS, Layer

from skdpgen import DP2VAESynthesizer, DPVAESynthesizer, P3GMSynthesizer, PriVAESynthesizer
from skdpgen._types import BoundedSum
from skdpgen.dpsgd import ClippedSum, GradientNoise, LossModule
from skdpgen.nn import DPNetClassifier
from skdpgen.utils.noise import make_noise_generator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),
]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("path", ["fast", "vmap"])
def test_clipped_sum_on_cuda_equals_the_processors(name, path):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    module = Layer(make())
    x = torch.randn((5, *shape), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([True, True, False, True, True])
    expected = ClippedSum(LossModule(module), 0.5, path="loop")(x, mask=mask).value
    expected = [value.clone() for value in expected]
    found = ClippedSum(LossModule(module.cuda()), 0.5, path=path)(x.cuda(), mask=mask.cuda()).value
    for a, b in zip(found, expected):
        assert a.is_cuda
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_noise_on_cuda_is_at_its_scale(kind):
    zeros = BoundedSum([torch.zeros(150_000, device="cuda"), torch.zeros((3, 4), device="cuda")], add_or_remove_one=2.0)
    shapes = [value.shape for value in zeros.value]
    with GradientNoise(shapes, 0.75, make_noise_generator(kind), steps=2, device="cuda") as noise:
        first, second = (noise.release(zeros, divisor=10.0)[0].clone() for _ in range(2))
    for released in (first, second):
        assert released.is_cuda
        assert_noise_at_scale(released.double().cpu().numpy(), 0.15)
    assert not torch.equal(first, second)


def _rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)).clip(-3, 3)
    return X, (X[:, 0] > 0).astype(int)


PUBLIC = {"epsilon": 100.0, "delta": 1e-5, "bounds": (-3, 3), "classes": [0, 1]}
SHORT = {"steps": 5, "random_state": 0, "device": "cuda", **PUBLIC}
SYNTHESIZERS = {
    "P3GM": lambda: make_flat(P3GMSynthesizer, decoder="net", warm_start_steps=3, **SHORT),
    "PriVAE": lambda: make_flat(PriVAESynthesizer, divergence="mmd", n_groups=2, **SHORT),
    "PriVAE, kl_prior": lambda: make_flat(
        PriVAESynthesizer, divergence="kl_prior", prior="sparse", n_groups=2, **SHORT
    ),
    "DP-VAE": lambda: make_flat(DPVAESynthesizer, **SHORT),
    "DP2-VAE": lambda: make_flat(DP2VAESynthesizer, n_subsets=8, pretrain_steps=3, **SHORT),
    "DP2-VAE, frozen": lambda: make_flat(
        DP2VAESynthesizer, n_subsets=8, pretrain_steps=3, encoder_update="frozen", **SHORT
    ),
}


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_synthesizer_fits_and_samples_on_cuda(name):
    X, y = _rows()
    synthesizer = SYNTHESIZERS[name]().fit(X, y)
    rows, labels = synthesizer.sample(50)
    assert rows.shape == (50, 6)
    assert len(labels) == 50
    assert np.isfinite(rows).all()
    synthesizer.card_.verify()


def test_classifier_fits_on_cuda():
    X, y = _rows()
    classifier = DPNetClassifier(**{**SHORT, "steps": 60}).fit(X, y)
    assert classifier.score(X, y) > 0.8
