"""What cannot be trained privately is refused by shape alone, and the path is chosen before training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from skdpgen.dpsgd import LossModule, check_optimizer, choose_path
from skdpgen.dpsgd import _checks as checks


class Net(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x).flatten(1).pow(2).sum(1)


def path(module, *like):
    return choose_path(LossModule(module), like or (torch.zeros(5, 4),))


def test_supported_layers_take_the_fast_path():
    torch.manual_seed(0)
    assert path(Net(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(6, 2))) == (
        "fast",
        "",
    )


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Linear(4, 6), nn.BatchNorm1d(6)], (4,)),
        ([nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2, track_running_stats=False)], (1, 3, 3)),
        ([nn.Conv2d(1, 2, 2), nn.SyncBatchNorm(2)], (1, 3, 3)),
        ([nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False)], (4,)),
    ],
)
def test_batch_norm_is_refused(layers, shape):
    with pytest.raises(ValueError, match="mixes the records"):
        path(Net(*layers), torch.zeros(2, *shape))


def test_running_statistics_are_refused():
    with pytest.raises(ValueError, match="running statistics"):
        path(Net(nn.Conv1d(1, 2, 2), nn.InstanceNorm1d(2, track_running_stats=True)), torch.zeros(2, 1, 4))

    class Counter(Net):
        def __init__(self):
            super().__init__(nn.Linear(4, 2))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.seen += x.sum()
            return super().forward(x)

    module = Counter()
    with pytest.raises(ValueError, match="changes its buffers"):
        path(module)
    assert module.seen == 0
    assert module.training


def test_mixing_of_records_by_hand_is_refused():
    class Centred(Net):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    class CentredInTraining(Net):
        def forward(self, x):
            return super().forward(x - x.mean(0) if self.training else x)

    for mixing in (Centred, CentredInTraining):
        for dropout in ((), (nn.Dropout(0.1),), (nn.Dropout(0.5), nn.Linear(2, 2), nn.Dropout(0.5))):
            with pytest.raises(ValueError, match="depends on the others"):
                path(mixing(nn.Linear(4, 2), *dropout))


def test_mixing_that_dropout_hid_is_caught(monkeypatch):
    monkeypatch.setattr(checks, "_check_beside_others", lambda root, inputs: None)
    with pytest.raises(pytest.fail.Exception):
        test_mixing_of_records_by_hand_is_refused()


def test_dropout_alone_mixes_nothing(monkeypatch):
    # which would seed the generators of all devices, and not give them back
    monkeypatch.setattr(torch, "manual_seed", None)
    assert path(Net(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 2), nn.Dropout(0.2)))[0] == "fast"


def test_rare_dropout_is_never_taken_for_mixing():
    """One mask in many leaves out a unit: the verdict must not depend on whether it was drawn in one pass of two."""
    refused = []
    for seed in range(25):
        torch.default_generator.manual_seed(seed)
        try:
            path(Net(nn.Linear(4, 8), nn.Dropout(0.02), nn.Linear(8, 2)))
        except ValueError as error:
            refused.append(error)
    assert not refused


def test_the_verdict_does_not_depend_on_the_state_of_the_generators():
    class RareInEvaluation(Net):  # draws where dropout does not
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.2, training=True))

    module, verdicts = RareInEvaluation(nn.Linear(4, 2)), set()
    for seed in range(20):
        torch.default_generator.manual_seed(seed)
        try:
            verdicts.add(path(module))
        except ValueError as error:
            verdicts.add(str(error))
    (verdict,) = verdicts
    assert "the loss is random" in verdict


def test_a_generator_of_the_module_s_own_is_told_apart_from_mixing():
    class Own(Net):
        def __init__(self, *layers):
            super().__init__(*layers)
            self.generator = torch.Generator()

        def forward(self, x):
            return super().forward(x + torch.rand(x.shape, generator=self.generator))

    with pytest.raises(ValueError, match="the loss is random"):
        path(Own(nn.Linear(4, 2)))


def test_reduced_and_random_losses_are_refused():
    class Reduced(Net):
        def forward(self, x):
            return super().forward(x).mean()

    class Random(Net):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    with pytest.raises(ValueError, match="one entry for each record"):
        path(Reduced(nn.Linear(4, 2)))
    with pytest.raises(ValueError, match="noise_shape"):
        path(Random(nn.Linear(4, 2)))


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_embeddings_that_mix_records_are_refused(layer, options):
    """With `max_norm` a pass writes the rows that were looked up, unnoised: which ones, the records tell."""
    with pytest.raises(ValueError, match="mixes the records"):
        path(Net(layer(4, 2, **options)), torch.zeros(2, 3, dtype=torch.int64))


def test_lazy_frozen_and_half_precision_modules_are_refused():
    with pytest.raises(ValueError, match="takes its shape from data"):
        path(Net(nn.LazyLinear(3)))
    with pytest.raises(ValueError, match="no trainable parameter"):
        path(Net(nn.Flatten()))
    with pytest.raises(ValueError, match="float32 or float64"):
        path(Net(nn.Linear(4, 2)).to(torch.bfloat16), torch.zeros(2, 4, dtype=torch.bfloat16))


def test_shared_parameters_take_the_reference_path():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

        def forward(self, x):
            h = nn.functional.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t())
            return (self.decoder(torch.tanh(self.encoder(h))) - x).square().sum(1)

    chosen, reason = path(Tied())
    assert chosen == "vmap"
    assert "used twice" in reason

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(4, 2)

        def forward(self, x):
            h = torch.tanh(self.encoder(x))
            return (nn.functional.linear(h, self.encoder.weight.t()) - x).square().sum(1)

    chosen, reason = path(Hidden())  # hooks see one use, the comparison finds the other
    assert chosen == "vmap"
    assert "differ" in reason

    tied = Net(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    tied.layers[2].weight = tied.layers[0].weight
    assert path(tied)[0] == "vmap"


def test_samples_before_records_take_the_reference_path():
    class SamplesFirst(Net):
        def forward(self, x):
            h = self.layers(torch.cat([x, 2 * x]))  # (samples * batch): places of a record are not side by side
            return h.view(2, len(x), -1).square().sum((0, 2))

    assert path(SamplesFirst(nn.Linear(4, 3)))[0] == "vmap"


def test_unsupported_layers_take_the_reference_path():
    chosen, reason = path(Net(nn.Conv1d(1, 2, 2)), torch.zeros(2, 1, 4))
    assert chosen == "vmap"
    assert "Conv1d" in reason
    assert path(Net(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))))[0] == "vmap"

    class Branch(Net):
        def forward(self, x):
            if float(x.sum()) > 1e9:  # vmap cannot branch on values
                x = -x
            return super().forward(x)

    assert path(Branch(nn.Linear(4, 2)))[0] == "fast"
    assert path(Branch(nn.Conv1d(1, 2, 2)), torch.zeros(2, 1, 4))[0] == "loop"


def test_lbfgs_is_refused():
    with pytest.raises(ValueError, match="LBFGS"):
        check_optimizer(torch.optim.LBFGS)
    for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad):
        check_optimizer(optimizer)
    check_optimizer(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    with pytest.raises(ValueError, match="LBFGS"):
        check_optimizer(torch.optim.LBFGS([torch.zeros(1)]))


def test_check_leaves_generators_and_gradients_alone():
    module = Net(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    path(module)
    assert torch.equal(torch.rand(3), expected)
    assert all(p.grad is None for p in module.parameters())


def test_a_module_of_more_parameters_than_the_proof_of_rounding_allows_is_refused():
    checks.check_module(nn.Linear(2**15, 2**15, bias=False, device="meta"))
    with pytest.raises(ValueError, match="rounding of their gradients is not bounded"):
        checks.check_module(nn.Linear(2**15, 2**15, device="meta"))
