"""PriVAE's losses are what they say: by hand, batched and one by one, and no group reaches another one's rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpgen.dpsgd import ClippedSum, LossModule
from skdpgen.nn import (
    BernoulliLikelihood,
    CauchyMMD,
    DPNet,
    GaussianLikelihood,
    GaussianMixturePrior,
    KLFromPrior,
    LaplaceLikelihood,
    NormalPrior,
    PriVAEModule,
    SparsePrior,
    UserDivergence,
    cauchy_mmd,
)
from skdpgen.nn._divergences import GroupLatents, check_divergence, make_divergence
from skdpgen.nn._networks import conv_decoder, conv_encoder
from skdpgen.nn._priors import check_prior, monte_carlo_kl

CORNERS = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
PRIORS = {
    "normal": NormalPrior,
    "sparse": SparsePrior,
    "mixture": lambda: GaussianMixturePrior(CORNERS, 0.03),
    "learned": lambda: GaussianMixturePrior(CORNERS, 0.5, learned=True),
}


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---- priors -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PRIORS)
def test_priors_have_the_density_they_sample_from(name):
    """The histogram of one coordinate agrees with the density, which integrates to 1."""
    prior = PRIORS[name]()
    drawn = prior.sample(rand(1, 40_000, 2, 2))[0].detach()
    edge = torch.linspace(-4.5, 5.5, 161)
    middle, width = (edge[1:] + edge[:-1]) / 2, float(edge[1] - edge[0])
    grid = torch.cartesian_prod(middle, middle)
    density = prior.log_prob(grid[None])[0].exp().detach().view(160, 160) * width**2
    assert float(density.sum()) == pytest.approx(1.0, abs=0.02)
    counts, _ = np.histogram(drawn[:, 0].numpy(), bins=edge.numpy())
    expected = density.sum(1).numpy()
    assert np.abs(counts / 40_000 - expected).sum() < 0.05
    corner = float(((drawn[:, 0] > 0.5) & (drawn[:, 1] > 0.5)).float().mean())
    assert corner == pytest.approx(float(density[middle > 0.5][:, middle > 0.5].sum()), abs=0.03)


def test_normal_and_sparse_densities_are_those_of_scipy():
    z = rand(3, 5, 4)
    np.testing.assert_allclose(NormalPrior().log_prob(z), stats.norm.logpdf(z).sum(-1), rtol=1e-5)
    mixed = 0.8 * stats.norm.pdf(z, scale=0.05**0.5) + 0.2 * stats.norm.pdf(z)
    np.testing.assert_allclose(SparsePrior().log_prob(z), np.log(mixed).sum(-1), rtol=1e-5)


def test_kl_by_monte_carlo_agrees_with_the_closed_form():
    prior, mean, log_variance = NormalPrior(), rand(3, 4), 0.3 * rand(3, 4, seed=1)
    z = mean[:, None] + (0.5 * log_variance).exp()[:, None] * rand(3, 20_000, 4, seed=2)
    torch.testing.assert_close(
        monte_carlo_kl(prior, z, mean, log_variance), prior.kl(mean, log_variance), atol=0.05, rtol=0
    )


def test_priors_of_another_dimension_are_refused():
    check_prior(SparsePrior(), 3)
    for prior in (GaussianMixturePrior(CORNERS), GaussianMixturePrior(CORNERS, learned=True)):
        check_prior(prior, 2)
        with pytest.raises(ValueError, match="3 dimensions"):
            check_prior(prior, 3)
    for bad in ({"sparsity": 1.0}, {"sparsity": 0.0}, {"spike_variance": 0.0}):
        with pytest.raises(ValueError, match="sparsity"):
            SparsePrior(**bad)
    for means, variance in (([1.0, 2.0], 1.0), (CORNERS, 0.0), ([[np.nan, 0.0]], 1.0)):
        with pytest.raises(ValueError, match="means"):
            GaussianMixturePrior(means, variance)


# ---- divergences ----------------------------------------------------------------------------------------------
def latents(sizes, d=2, length=8):
    members = (torch.arange(length) < torch.tensor(sizes)[:, None]).float()
    return GroupLatents(rand(len(sizes), length, d), rand(len(sizes), length, d, seed=1), 0.2 * rand(
        len(sizes), length, d, seed=2), members)  # fmt: skip


def kernel(x, y):
    square = (x[:, None] - y[None]) ** 2
    return sum(s**2 / (s**2 + square) for s in (0.2, 0.4, 1, 2, 4, 10)).mean(-1)


def test_mmd_is_the_unbiased_one_of_each_group():
    given, samples = latents([5, 2, 1, 0]), rand(4, 6, 2, seed=3)
    found = CauchyMMD()(given, samples, None)
    for j, size in enumerate([5, 2]):
        z, p = given.z[j, :size].numpy(), samples[j].numpy()
        within, prior = kernel(z, z), kernel(p, p)
        expected = (within.sum() - np.trace(within)) / (size * (size - 1)) - 2 * kernel(z, p).mean()
        expected += (prior.sum() - np.trace(prior)) / 30
        assert float(found[j]) == pytest.approx(expected, abs=1e-5)
    assert found[2:].tolist() == [0.0, 0.0]
    trained = given._replace(z=given.z.clone().requires_grad_())
    less = CauchyMMD()(trained, samples, None)  # without the term of the prior alone, which no parameter moves
    prior = [kernel(p, p) for p in samples[:2].numpy()]
    assert less[:2].tolist() == pytest.approx(
        [float(f) - (k.sum() - np.trace(k)) / 30 for f, k in zip(found, prior)], abs=1e-5
    )
    learned = samples.clone().requires_grad_()
    assert CauchyMMD()(trained, learned, None).tolist() == pytest.approx(found.tolist(), abs=1e-6)
    assert cauchy_mmd(rand(300, 2), rand(300, 2, seed=4)) < 0.1 < cauchy_mmd(rand(300, 2), rand(300, 2) + 2)


@pytest.mark.parametrize("piece", [1, 300, 2**17])
def test_mmd_has_the_derivatives_of_its_definition_for_groups_of_any_size(piece, monkeypatch):
    monkeypatch.setattr("skdpgen.nn._divergences._PIECE", piece)
    given, samples = latents([3, 8, 0, 2, 7, 1, 8, 16], length=16), rand(8, 6, 2, seed=3).double().requires_grad_()
    z = given.z.double().requires_grad_()

    def k(x, y):
        square = (x[:, None] - y[None]) ** 2
        return sum(s**2 / (s**2 + square) for s in (0.2, 0.4, 1, 2, 4, 10)).mean(-1)

    expected = []
    for x, member, p in zip(z, given.members > 0, samples):
        x, m, n = x[member], int(member.sum()), len(p)
        pairs = [(k(x, x).sum() - 6 * m) / (m * (m - 1)), (k(p, p).sum() - 6 * n) / (n * (n - 1))] if m > 1 else [0]
        expected.append(sum(pairs) - 2 * k(x, p).mean() if m > 1 else 0 * x.sum())
    expected = torch.stack(expected)
    found = CauchyMMD()(given._replace(z=z, members=given.members.double()), samples, None)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    weights = rand(8, seed=9).double()
    for own, derivative in zip(
        torch.autograd.grad((weights * found).sum(), (z, samples)),
        torch.autograd.grad((weights * expected).sum(), (z, samples)),
    ):
        assert torch.allclose(own, derivative, rtol=0, atol=1e-12)


@pytest.mark.parametrize("piece", [1, 300, 2**17])
@pytest.mark.parametrize("sizes", [[12, 4, 9, 11], [4, 4, 1, 0, 5, 4], [2, 2]])
def test_mmd_of_a_group_hangs_on_no_record_of_another(piece, sizes, monkeypatch):
    """To the last bit, whatever a record that joins holds, and however it changes the sizes."""
    monkeypatch.setattr("skdpgen.nn._divergences._PIECE", piece)
    given, samples = latents(sizes, length=16), rand(len(sizes), 6, 2, seed=3)

    def found(given):
        z, prior = given.z.clone().requires_grad_(), samples.clone().requires_grad_()
        value = CauchyMMD()(given._replace(z=z), prior, None)
        return value.detach(), *torch.autograd.grad(value.sum(), (z, prior))

    before = found(given)
    for joined, size in enumerate(sizes):
        others = [j for j in range(len(sizes)) if j != joined]
        for value in (1.0, 1e30, torch.nan, torch.inf):
            z, members = given.z.clone(), given.members.clone()
            z[joined, size], members[joined, size] = value, 1
            for one, other in zip(found(given._replace(z=z, members=members)), before):
                assert torch.equal(one[others], other[others])
                assert size == 0 or not torch.equal(one[joined], other[joined])


def test_mmd_refuses_samples_of_other_shapes_and_takes_other_dtypes():
    given = latents([3, 4])
    for shape in ((2, 5, 1), (1, 5, 2), (3, 5, 2), (2, 0, 2)):
        with pytest.raises(ValueError, match=r"must have shape \(2, n, 2\)"):
            CauchyMMD()(given, rand(*shape), None)
    samples = rand(2, 5, 2, seed=3)
    expected = CauchyMMD()(given, samples, None)
    for z, prior in ((given.z.double(), samples), (given.z, samples.double())):
        torch.testing.assert_close(CauchyMMD()(given._replace(z=z), prior, None), expected.double(), rtol=0, atol=1e-5)
    for one, other in (((6, 3), (5, 1)), ((6, 3), (0, 3)), ((6,), (6,))):
        with pytest.raises(ValueError, match="samples of one width"):
            cauchy_mmd(rand(*one), rand(*other))
    assert cauchy_mmd(rand(6, 3).requires_grad_(), rand(6, 3)) == pytest.approx(0.0, abs=1e-12)


def test_kl_from_the_prior_is_its_monte_carlo_estimate():
    given, samples, prior = latents([5, 1, 0]), rand(3, 6, 2, seed=3), NormalPrior()
    found = KLFromPrior(4.0)(given, samples, prior.log_prob(samples))
    for j, size in enumerate([5, 1]):
        spread = (0.5 * given.log_variance[j, :size]).exp().numpy()
        total = 0.0
        for z in samples[j].numpy():
            density = stats.norm.pdf(z, given.mean[j, :size].numpy(), spread).prod(1).sum() / 4.0
            total += stats.norm.logpdf(z).sum() - math.log(density)
        assert float(found[j]) == pytest.approx(total / 6, rel=1e-4)
    assert found[2] == 0


@pytest.mark.parametrize("name", ["mmd", "kl_prior", "own"])
def test_groups_have_the_gradients_they_have_alone(name):
    """Padding, empty groups and other groups change nothing; a group's gradient reaches its own members alone."""
    own = UserDivergence(lambda z, p: (z.mean(0) - p.mean(0)).square().sum() + z.var())
    divergence = own if name == "own" else make_divergence(name, 3.0)
    own.min_group_size = 2
    samples = rand(4, 6, 2, seed=3)

    def gradients(sizes, length, groups):
        given = latents(sizes, length=length)
        given = GroupLatents(*(t[groups].clone().requires_grad_() for t in given[:3]), given.members[groups])
        value = divergence(given, samples[groups], NormalPrior().log_prob(samples[groups]))
        found = torch.autograd.grad(value.sum(), given[:3], allow_unused=True)
        return value, [torch.zeros_like(given.z) if g is None else g for g in found]

    value, together = gradients([5, 3, 0, 2], 8, [0, 1, 2, 3])
    assert torch.isfinite(value).all()
    assert all(torch.isfinite(g).all() for g in together)
    assert any(g[0].abs().sum() > 0 for g in together)
    for j, size in enumerate([5, 3, 0, 2]):
        alone, found = gradients([5, 3, 0, 2], 8, [j])
        torch.testing.assert_close(alone[0], value[j])
        for a, b in zip(found, together):
            torch.testing.assert_close(a[0], b[j])
            assert not b[j, size:].any()


def test_a_users_divergence_cannot_reach_other_groups():
    """It is given copies: neither storage nor graph leads to the rest of the batch."""
    seen = []

    def curious(z, samples):
        seen.append((z._base, z.grad_fn, z.untyped_storage().nbytes(), samples.untyped_storage().nbytes()))
        return z.sum() * 0 + (z.mean(0) - samples.mean(0)).square().sum()

    given = latents([3, 5])
    UserDivergence(curious)(given, rand(2, 6, 2), None)
    assert seen == [(None, None, 3 * 2 * 4, 6 * 2 * 4), (None, None, 5 * 2 * 4, 6 * 2 * 4)]


def test_a_divergence_that_remembers_other_groups_is_refused_before_training():
    kept = []

    def remembers(z, samples):
        kept.append(z)
        return (torch.cat([k.detach().mean(0, keepdim=True) for k in kept]).sum() * z.mean()).square()

    net = make_net(remembers)
    with pytest.raises(ValueError, match=r"depends on the others|random"):
        net.check(np.zeros((9, 5), dtype=np.float32), groups=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z, p: z.mean(0), "one number"),
        (lambda z, p: 1.0, "one number"),
        (lambda z, p: torch.ones(()), "differentiable"),
        (lambda z, p: z.sum() * torch.nan, "not finite"),
        (lambda z, p: z.sum().abs().sqrt() / (len(z) - 12), "not finite"),
    ],
)
def test_divergences_that_are_no_finite_number_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        check_divergence(UserDivergence(function), 2)


class Remembering:
    """Keeps what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, z, samples):
        self.seen.append(z)
        return z.square().sum()


def test_what_a_divergence_remembers_is_not_the_callers():
    mine = Remembering()
    divergence = make_divergence(mine, 3.0)
    divergence(latents([3, 5]), rand(2, 6, 2), None)
    assert not mine.seen
    assert divergence.function.seen


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (torch.nn.BatchNorm1d(2), "mixes the records"),
        (torch.nn.InstanceNorm1d(2, track_running_stats=True), "running statistics"),
        (torch.nn.Linear(2, 1), "not trained"),
    ],
)
def test_a_module_that_would_keep_or_learn_from_what_it_sees_is_no_divergence(function, message):
    with pytest.raises(ValueError, match=message):
        UserDivergence(function)


def test_a_divergence_that_needs_no_record_is_refused():
    def nothing(z, samples):
        return z.sum()

    nothing.min_group_size = 0
    with pytest.raises(ValueError, match="min_group_size"):
        UserDivergence(nothing)


@pytest.mark.parametrize(
    "error", [RuntimeError, ValueError, LookupError, ZeroDivisionError, AssertionError, MemoryError]
)
def test_an_error_on_some_group_counts_as_zero_and_is_told_before_training_alone(error):
    def fragile(z, samples):
        if len(z) == 5:
            raise error("a group of five")
        return z.square().sum()

    try:
        values = UserDivergence(fragile)(latents([3, 5]), rand(2, 6, 2), None)
    except error:
        pytest.fail("a training that ends reveals that there was a group of five")
    assert values[0] > 0
    assert values[1] == 0
    with pytest.raises(error, match="a group of five"):
        check_divergence(UserDivergence(fragile), 2)


# ---- the module -----------------------------------------------------------------------------------------------
def make_module(divergence="mmd", n_labels=0, **options):
    torch.manual_seed(0)
    options = {"n_hidden": 7, "n_monte_carlo": 3, "n_prior_samples": 6, **options}
    return PriVAEModule(5, 2, GaussianLikelihood(0.5), divergence=divergence, n_labels=n_labels, **options)


def make_net(divergence="mmd", **options):
    options = {f"module__{k}": v for k, v in {"divergence": divergence, "n_hidden": 7, **options}.items()}
    return DPNet(
        PriVAEModule, module__n_features=5, module__n_latent=2, module__likelihood=GaussianLikelihood(), verbose=0,
        random_state=0, **options,
    )  # fmt: skip


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("divergence", ["mmd", "kl_prior", lambda z, p: (z.mean(0) - p.mean(0)).square().sum()])
def test_every_prior_and_divergence_takes_the_fast_path(prior, divergence):
    net = make_net(divergence, prior=PRIORS[prior](), n_monte_carlo=2)
    net.check(np.random.default_rng(0).random((9, 5), dtype=np.float32), groups=True)
    assert (net.path_, net.group_path_) == ("fast", "fast")


def test_convolutional_nets_keep_shapes_and_take_the_fast_path():
    for shape in ((8, 8), (9, 7, 3), (28, 28)):
        x = torch.rand(2, int(np.prod(shape)))
        assert conv_encoder(shape, 6, 4)(x).shape == (2, 6)
        assert conv_decoder(shape, 5, 4)(torch.rand(2, 5)).shape == x.shape
    net = DPNet(
        PriVAEModule, module__n_features=64, module__n_latent=2, module__likelihood=LaplaceLikelihood(), verbose=0,
        module__image_shape=(8, 8), module__n_channels=4, module__divergence="mmd", module__n_monte_carlo=2,
        random_state=0,
    )  # fmt: skip
    net.check(np.zeros((9, 64), dtype=np.float32), groups=True)
    assert (net.path_, net.group_path_) == ("fast", "fast")


def test_colours_of_an_image_stay_with_their_pixel():
    from skdpgen.nn._networks import FromImage, ToImage

    x = torch.arange(2 * 5 * 3 * 3.0).view(2, 45)
    image = ToImage((5, 3, 3))(x)
    assert image.shape == (2, 3, 8, 8)
    assert torch.equal(FromImage((5, 3, 3))(image), x)
    assert torch.equal(image[0, :, 1, 2], torch.tensor([0.0, 1.0, 2.0]))


def test_losses_are_those_of_the_paper_by_hand():
    module = make_module(beta=0.3, prior=SparsePrior())
    x, noise = rand(4, 5), rand(4, 3, 2, seed=1)
    found = module(x, noise)
    mean, log_variance = module.encoder(x).chunk(2, dim=1)
    for i in range(4):
        total = 0.0
        for k in range(3):
            z = mean[i] + (0.5 * log_variance[i]).exp() * noise[i, k]
            z = z.detach()
            q = stats.norm.logpdf(z, mean[i].detach(), (0.5 * log_variance[i]).exp().detach()).sum()
            out = module.decoder(z[None])[0].detach()
            total += 0.3 * (q - float(module.prior.log_prob(z[None, None]))) - stats.norm.logpdf(x[i], out, 0.5).sum()
        assert float(found[i].detach()) == pytest.approx(total / 3, rel=1e-4)


def test_labels_reach_the_decoder_alone():
    module = make_module(n_labels=3)
    x = rand(4, 5)
    one, other = (torch.cat([x, torch.eye(3)[labels]], 1) for labels in ([0, 0, 1, 2], [2, 1, 1, 0]))
    noise = rand(4, 3, 2, seed=1)
    (a, kl), (b, same) = module.terms(one, noise), module.terms(other, noise)
    torch.testing.assert_close(kl, same)
    assert (a != b).tolist() == [True, True, False, True]
    members, group_noise = torch.ones(1, 4), rand(1, 6, 2, 2, seed=2)
    groups = [module.group_losses(rows[None], members, noise[None], group_noise) for rows in (one, other)]
    torch.testing.assert_close(*groups)


def test_alpha_and_beta_weigh_their_terms():
    x, noise = rand(4, 5), rand(4, 3, 2, seed=1)
    given = (x[None], torch.ones(1, 4), noise[None], rand(1, 6, 2, 2, seed=2))
    torch.testing.assert_close(
        make_module(alpha=5.0).group_losses(*given), 5 * make_module(alpha=1.0).group_losses(*given)
    )
    reconstruction, kl = make_module(beta=2.0).terms(x, noise)
    torch.testing.assert_close(make_module(beta=2.0)(x, noise), 2 * kl - reconstruction)
    torch.testing.assert_close(make_module(beta=0.0)(x, noise), -reconstruction)


def test_more_samples_a_record_cost_no_sensitivity():
    """Whatever L is, a record's gradient is clipped as a whole."""
    for n in (1, 20):
        module = make_module(n_monte_carlo=n)
        total = ClippedSum(LossModule(module), 0.3)(1e3 * rand(1, 5), rand(1, n, 2)).value
        assert float(torch.cat([v.flatten() for v in total]).norm()) == pytest.approx(0.3, rel=1e-4)


def test_importance_bound_rises_to_the_likelihood():
    """Of a linear decoder with unit noise, whose likelihood is known."""
    module = PriVAEModule(1, 1, GaussianLikelihood(1.0), encoder=nn.Linear(1, 2), decoder=nn.Linear(1, 1))
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
        module.decoder.weight.fill_(2.0)
    x = torch.tensor([[0.5], [-1.0]])
    exact = stats.norm.logpdf(x[:, 0], 0, 5**0.5)
    bound = module.importance_bound(x, rand(2, 20_000, 1)).detach().numpy()
    np.testing.assert_allclose(bound, exact, atol=0.05)
    few = np.mean([module.importance_bound(x, rand(2, 2, 1, seed=s)).detach().numpy() for s in range(200)], axis=0)
    assert (few < bound).all()


def test_likelihoods_are_densities():
    x, out = rand(3, 4), rand(3, 4, seed=1)
    np.testing.assert_allclose(
        LaplaceLikelihood(0.3).log_prob(out, x), stats.laplace.logpdf(x, out, 0.3).sum(1), rtol=1e-5
    )
    assert torch.equal(LaplaceLikelihood().mean(out), out)
    assert BernoulliLikelihood().log_prob(out, (x > 0).float()).shape == (3,)


def test_a_class_derived_from_one_that_sees_all_groups_is_refused():
    class Mixed(CauchyMMD):
        def __call__(self, latents, samples, log_prob):
            return super().__call__(latents, samples, log_prob) * latents.z.sum()

    with pytest.raises(ValueError, match="Mixed, a subclass of a divergence that gets all groups at once"):
        make_module(Mixed())


def test_dummy_groups_are_large_enough_for_the_divergence():
    sizes = []

    def told(z, prior):
        sizes.append(len(z))
        return z.var(0).sum()

    told.min_group_size = 7
    make_net(told).check(np.zeros((20, 5), dtype=np.float32), groups=True)
    assert set(sizes) == {7, 8, 9}
