"""The fast path equals the reference, and no record moves the sum further than stated."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from skdpgen.dpsgd import ClippedSum, LossModule, clipped_sum
from skdpgen.dpsgd import _layers as layers
from skdpgen.dpsgd._clipping import clip_factors


class Layer(nn.Module):
    """A layer between two activations, and a loss of each record that treats all outputs differently."""

    def __init__(self, layer, after=torch.tanh, before=None):
        super().__init__()
        self.layer, self.after, self.before = layer, after, before

    def forward(self, x):
        x = x if self.before is None else self.before(x)
        out = self.after(self.layer(x)).reshape(len(x), -1)
        weight = torch.linspace(-1, 2, out.shape[1], dtype=out.dtype, device=out.device)
        return (out * weight).sum(1) + (out**2).mean(1)


def data(*shape, seed=0, integers=None):
    generator = torch.Generator().manual_seed(seed)
    if integers:
        return torch.randint(integers, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def conv(*args, **kwargs):
    return nn.Conv2d(*args, **kwargs)


LAYERS = {
    "linear": (lambda: nn.Linear(7, 5), (7,)),
    "linear without bias": (lambda: nn.Linear(7, 5, bias=False), (7,)),
    "linear, wide output": (lambda: nn.Linear(3, 40), (3,)),
    "linear on a sequence, Gram": (lambda: nn.Linear(64, 48), (3, 64)),
    "linear on a sequence, product": (lambda: nn.Linear(4, 5), (9, 4)),
    "linear on a grid": (lambda: nn.Linear(4, 5), (3, 2, 4)),
    "conv": (lambda: conv(2, 3, 3), (2, 8, 7)),
    "conv without bias": (lambda: conv(2, 3, 3, bias=False), (2, 8, 7)),
    "conv stride and padding": (lambda: conv(2, 3, 4, stride=2, padding=1), (2, 8, 10)),
    "conv uneven": (lambda: conv(2, 3, (3, 2), stride=(2, 3), padding=(0, 2)), (2, 9, 8)),
    "conv dilation": (lambda: conv(2, 3, 3, dilation=(2, 1), padding=2), (2, 8, 7)),
    "conv groups": (lambda: conv(4, 6, 3, groups=2, padding=1), (4, 6, 5)),
    "conv depthwise": (lambda: conv(4, 8, 3, groups=4), (4, 6, 5)),
    "conv same": (lambda: conv(2, 3, (4, 3), padding="same", dilation=(1, 2)), (2, 8, 7)),
    "conv valid": (lambda: conv(2, 3, 3, padding="valid"), (2, 5, 5)),
    "conv circular": (lambda: conv(2, 3, 3, padding=1, padding_mode="circular"), (2, 6, 5)),
    "conv reflect": (lambda: conv(2, 3, 3, padding=(2, 1), padding_mode="reflect"), (2, 6, 5)),
    "conv 1x1": (lambda: conv(4, 3, 1), (4, 5, 5)),
    "conv 1x1 stride": (lambda: conv(4, 3, 1, stride=2), (4, 5, 5)),
    "conv, Gram": (lambda: conv(32, 64, 3, stride=2), (32, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3), (3, 5, 4)),
    "transposed without bias": (lambda: nn.ConvTranspose2d(3, 2, 3, bias=False), (3, 5, 4)),
    "transposed stride": (lambda: nn.ConvTranspose2d(3, 2, 4, stride=2, padding=1), (3, 5, 4)),
    "transposed output padding": (
        lambda: nn.ConvTranspose2d(3, 2, 3, stride=(2, 3), padding=1, output_padding=(1, 2)),
        (3, 5, 4),
    ),
    "transposed dilation": (lambda: nn.ConvTranspose2d(3, 2, 3, dilation=3, output_padding=2), (3, 5, 4)),
    "transposed groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2), (4, 5, 4)),
    "transposed, Gram": (lambda: nn.ConvTranspose2d(64, 32, 3, stride=2), (64, 2, 2)),
    "layer norm": (lambda: nn.LayerNorm(6), (6,)),
    "layer norm on a sequence": (lambda: nn.LayerNorm(6), (4, 6)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((4, 6)), (3, 4, 6)),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), (4, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 6), (6, 3, 4)),
    "group norm of vectors": (lambda: nn.GroupNorm(3, 6), (6,)),
}


def both(module, x, l2_bound=0.5, slow="vmap"):
    fast = clipped_sum(module, None, (x,), l2_bound).value
    reference = clipped_sum(module, None, (x,), l2_bound, path=slow).value
    return fast, reference


def assert_equal(fast, reference):
    assert len(fast) == len(reference) > 0
    for a, b in zip(fast, reference):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch copies its input: no harm
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch", [1, 4])
def test_fast_path_equals_reference(name, batch):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    module = Layer(make())
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * data(*p.shape, seed=9))
    x = data(batch, *shape)
    engine = ClippedSum(LossModule(module), 0.5)
    reference = ClippedSum(LossModule(module), 0.5, path="loop")
    torch.testing.assert_close(engine.square_norms(x), reference.square_norms(x), rtol=1e-4, atol=1e-9)
    assert_equal(engine(x).value, reference(x).value)
    assert_equal(shifted(engine, x), shifted(reference, x))


def shifted(engine, x):
    """The sum with something added to every gradient before it is clipped, of a batch in two parts."""
    shift = [0.3 * data(*p.shape, seed=8) for p in engine.parameters]
    engine.reset()
    for part, mask in ((x, torch.arange(len(x)) != 1), (x[:1], None)):
        engine.add(part, mask=mask, shift=shift)
    return [total.clone() for total in engine.result().value]


@pytest.mark.parametrize(("block", "kept"), [(1, 2**25), (2**12, 0)])
def test_norms_and_sums_do_not_depend_on_the_blocks_of_examples(block, kept):
    """A batch of a training has several blocks of examples; the dummy examples of `choose_path` are one block."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same' with even kernel")
        patch.setattr(layers, "_BLOCK", block)
        patch.setattr(layers, "_KEEP", kept)
        for make, shape in LAYERS.values():
            module = Layer(make())
            x = data(5, *shape) * torch.tensor([1.0, 3.0, 0.1, 10.0, 0.5]).view(-1, *[1] * len(shape))
            engine, reference = (ClippedSum(LossModule(module), 0.5, path=path) for path in ("fast", "vmap"))
            torch.testing.assert_close(engine.square_norms(x), reference.square_norms(x), rtol=1e-4, atol=1e-9)
            assert_equal(engine(x).value, reference(x).value)


def test_a_shift_is_added_to_each_gradient_before_its_clip():
    torch.manual_seed(0)
    module, x = Layer(nn.Linear(3, 2)), data(3, 3)
    engine = ClippedSum(LossModule(module), 0.5)
    shift = [0.3 * data(*p.shape, seed=8) for p in engine.parameters]
    expected = [torch.zeros_like(p) for p in engine.parameters]
    for row in (0, 2, 0):
        gradient = torch.autograd.grad(module(x[row : row + 1]).sum(), engine.parameters)
        moved = [g + s for g, s in zip(gradient, shift)]
        norm = float(sum(m.square().sum() for m in moved) ** 0.5)
        expected = [total + m * min(1.0, 0.5 / norm) for total, m in zip(expected, moved)]
    assert_equal(shifted(engine, x), expected)


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_a_shift_leaves_out_records_without_finite_gradient(path):
    torch.manual_seed(0)
    engine = ClippedSum(LossModule(Layer(nn.Linear(3, 2))), 0.5, path=path)
    x = data(4, 3)
    x[1] = torch.nan
    assert_equal(shifted(engine, x), shifted(engine, torch.cat([x[:1], data(1, 3), x[2:]])))


def test_a_shift_does_not_pass_through_hooks():
    torch.manual_seed(0)
    module, reference = (Layer(nn.Linear(3, 2)) for _ in range(2))
    reference.load_state_dict(module.state_dict())
    module.layer.register_forward_hook(lambda layer, args, output: 3 * output)
    reference.after = lambda out: torch.tanh(3 * out)
    assert_equal(*(shifted(ClippedSum(LossModule(m), 0.5), data(4, 3)) for m in (module, reference)))


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)])
def test_embedding_equals_reference(shape):
    torch.manual_seed(0)
    # four words and up to six places: the same word is looked up more than once
    module, x = Layer(nn.Embedding(4, 3, padding_idx=1)), data(5, *shape, integers=4)
    assert_equal(*both(module, x, slow="loop"))
    assert_equal(*(shifted(ClippedSum(LossModule(module), 0.5, path=path), x) for path in ("fast", "loop")))


def test_samples_folded_into_the_batch_equal_reference():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.linear = nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Linear(36, 3)

        def forward(self, x):  # x: (batch, samples, 2, 5, 5)
            h = self.linear(torch.tanh(self.norm(self.conv(x.flatten(0, 1)))).flatten(1))
            return (h.view(*x.shape[:2], 3) ** 3).sum(2).mean(1)

    torch.manual_seed(0)
    assert_equal(*both(Folded(), data(4, 3, 2, 5, 5)))


def test_deep_nets_with_inplace_activations_equal_reference():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(36, 8), nn.LayerNorm(8), nn.ELU(inplace=True), nn.Linear(8, 36), nn.Unflatten(1, (4, 3, 3)),
        nn.ConvTranspose2d(4, 1, 4, stride=2), nn.Flatten(),
    )  # fmt: skip
    assert_equal(*both(Layer(net), data(6, 1, 8, 8)))


def test_frozen_and_unused_parameters():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[0].weight.requires_grad_(False)
    net.unused = None
    module = Layer(net)
    module.extra = nn.Linear(2, 2)
    fast, reference = both(module, data(3, 4), slow="loop")
    assert_equal(fast, reference)
    assert len(fast) == 5
    assert all(not v.any() for v in fast[-2:])
    assert_equal(*(shifted(ClippedSum(LossModule(module), 0.5, path=path), data(3, 4)) for path in ("fast", "loop")))


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_empty_batch_gives_zero(path):
    module = Layer(nn.Linear(3, 2))
    engine = ClippedSum(LossModule(module), 1.0, path=path)
    engine(data(4, 3))  # buffers hold something
    assert all(not v.any() for v in engine(data(0, 3)).value)
    engine(data(4, 3))
    engine.reset()
    assert all(not v.any() for v in engine.result().value)
    mask = torch.zeros(4, dtype=torch.bool)
    assert all(not v.any() for v in engine(data(4, 3), mask=mask).value)


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_chunks_with_padding_add_up_to_the_batch(path):
    torch.manual_seed(0)
    module = Layer(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)))
    x = data(10, 3)
    engine = ClippedSum(LossModule(module), 0.3, path=path)
    whole = [v.clone() for v in engine(x).value]
    engine.reset()
    for i in range(0, 10, 4):
        chunk, mask = torch.zeros(4, 3), torch.arange(4) < 10 - i
        chunk[: len(x[i : i + 4])] = x[i : i + 4]
        engine.add(chunk, mask=mask)
    assert_equal(engine.result().value, whole)


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_clip_is_attained_and_never_exceeded(path):
    linear = nn.Linear(4, 3)
    engine = ClippedSum(LossModule(linear, lambda m, x: m(x).sum(1)), 0.7, path=path)
    huge = data(1, 4) * 1e6
    total = torch.cat([v.flatten() for v in engine(huge).value]).double()
    assert 0.699 < total.norm() <= 0.7 * (1 + 1e-6)
    # +C and -C: replacing a record by its opposite moves the sum by 2C
    flipped = ClippedSum(LossModule(linear, lambda m, x: -m(x).sum(1)), 0.7, path=path)
    change = total - torch.cat([v.flatten() for v in flipped(huge).value])
    assert 1.399 < change.norm() <= 1.4 * (1 + 1e-6)
    for seed in range(20):
        x = data(1, 4, seed=seed) * 10.0 ** (seed - 10)
        assert torch.cat([v.flatten() for v in engine(x).value]).norm() <= 0.7 * (1 + 1e-6)


def test_clip_holds_at_the_ends_of_float32():
    # clip factors near 1e-45 would be rounded to multiples of 1.4e-45
    linear = nn.Linear(2, 2, bias=False)
    for exponent in (-30, 20, 30, 37, 38):
        for scale in (1.0, 4.1e6, 1e10, 1e20, 3e37):
            x = torch.tensor([[1.0, 2.0]]) * 10.0**exponent
            engine = ClippedSum(LossModule(linear, lambda m, x: m(x).sum(1) * scale), 1.0)  # noqa: B023
            assert engine(x).value[0].double().norm() <= 1.001


@pytest.mark.parametrize("layer", ["linear", "linear on a sequence", "conv"])
def test_clip_holds_for_enormous_inputs_of_small_gradients(layer):
    # an output gradient times its factor near 1e-45 would be rounded to multiples of 1.4e-45
    make, shape = {
        "linear": (lambda: nn.Linear(1, 1, bias=False), (1,)),
        "linear on a sequence": (lambda: nn.Linear(2, 2, bias=False), (2, 2)),
        "conv": (lambda: conv(1, 1, 2, bias=False), (1, 3, 3)),
    }[layer]
    module, pattern = make(), data(1, *shape).sign()
    for bound in (1e-5, 2.5e-7, 2.4e-7, 5e-8, 1e-9):
        for size in (1e30, 1e36, 5e37, 1e38, 2e38, 3.4e38):
            for scale in (1e-42, 1e-30, 1e-16, 1e-2):
                losses = lambda m, x: m(x).flatten(1).mul(scale).sum(1)  # noqa: B023, E731
                units = ClippedSum(LossModule(module, losses), bound, weighting="rows")
                units.reset()
                units.add(pattern.expand(2, *shape) * size, units=[0, 0])
                whole = ClippedSum(LossModule(module, losses), bound)(pattern * size).value[0]
                for found in (whole, units.result().value[0]):
                    assert found.double().norm() <= bound * (1 + 1e-5)


def test_an_example_with_enormous_inputs_leaves_the_others_equal():
    linear = nn.Linear(3, 2)
    engine = ClippedSum(LossModule(linear, lambda m, x: m(x).sum(1) * 1e-20), 1e-7)
    x = data(4, 3)
    alone = [v.clone() for v in engine(x).value]
    assert_equal(engine(torch.cat([x[:2], torch.full((1, 3), 3e38), x[2:]])).value, alone)


def test_clip_factors_hold_over_the_range_of_float32():
    norms = torch.logspace(-45, 38.5, 2000, dtype=torch.float64).float()
    for bound in (1e-30, 1e-7, 3e-7, 1.0, 1e30):
        clipped = norms * clip_factors(norms.double(), bound).float()
        assert clipped.double().max() <= bound * (1 + 1e-6)
        kept = norms.double() <= bound * 1e29  # none is lost that could be clipped
        assert bool(
            (clipped[kept].double() >= 0.999999 * torch.minimum(norms.double(), torch.tensor(bound))[kept]).all()
        )
    bad = torch.tensor([float("nan"), float("inf")])
    assert clip_factors(bad, 1.0).tolist() == clip_factors(bad, float("inf")).tolist() == [0.0, 0.0]
    assert clip_factors(norms, float("inf")).min() == 1.0


def test_clip_holds_where_places_cancel():
    # two places of enormous opposite gradients, of which rounding leaves more than their true sum, zero
    linear = nn.Linear(64, 64, bias=False)
    weight = data(64, seed=1)
    x = data(1, 1, 64) * 1e4
    x = torch.cat([x, -x], dim=1)
    engine = ClippedSum(LossModule(linear, lambda m, x: (m(x) * weight).sum((1, 2)) * 1e4), 1.0)
    assert engine(x).value[0].double().norm() <= 1.01


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_inserting_a_record_leaves_the_others_equal(path):
    torch.manual_seed(0)
    module = Layer(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)))
    x = data(9, 6)
    engine = ClippedSum(LossModule(module), 0.3, path=path)
    without = torch.cat([v.flatten() for v in engine(x).value])
    for place in (0, 4, 9):
        joined = torch.cat([x[:place], data(1, 6, seed=5) * 100, x[place:]])
        both = torch.cat([v.flatten() for v in engine(joined).value])
        alone = torch.cat([v.flatten() for v in engine(joined[place : place + 1]).value])
        torch.testing.assert_close(both - alone, without, rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_record_without_finite_gradient_contributes_nothing(path, value):
    torch.manual_seed(0)
    module = Layer(nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 4)), after=lambda h: h**2)
    x = data(5, 1, 3, 3)
    engine = ClippedSum(LossModule(module), 0.3, path=path)
    without = [v.clone() for v in engine(x).value]
    bad = torch.full((1, 1, 3, 3), value)
    assert_equal(engine(torch.cat([x[:2], bad, x[2:]])).value, without)


def test_dropout_is_the_same_in_norms_and_sums_when_a_record_is_masked():
    # a second forward pass for the masked rows would draw other units, and clip factors would not fit them
    torch.manual_seed(0)
    module = Layer(nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1)), after=lambda h: h * 1e3)
    x = torch.cat([data(1, 4), torch.full((1, 4), torch.nan)])
    engine = ClippedSum(LossModule(module), 1.0)
    for _ in range(10):
        norm = torch.cat([v.flatten() for v in engine(x).value]).double().norm()
        assert 0.999 < norm <= 1 + 1e-6


def test_no_clipping_gives_the_ordinary_gradient():
    torch.manual_seed(0)
    module = Layer(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)))
    x = data(9, 6)
    engine = ClippedSum(LossModule(module), 1.0, clip_norm=float("inf"))
    total = engine(x).value
    module(x).sum().backward()
    assert_equal(total, [p.grad for p in module.parameters()])


def test_losses_of_the_wrong_shape_are_refused():
    engine = ClippedSum(LossModule(nn.Linear(3, 2)), 1.0)
    with pytest.raises(ValueError, match="one entry for each record"):
        engine(data(4, 3))


def test_course_that_depends_on_values_falls_back_to_the_same_sum():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            h = self.linear(x)
            if bool((x > 100).any()):
                h = self.linear(torch.tanh(h))
            return h.sum(1)

    torch.manual_seed(0)
    assert_equal(*both(Twice(), data(4, 3) * 1000, slow="loop"))
