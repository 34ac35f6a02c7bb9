"""DP2-VAE's two stages: sensitivity, the state of encoders, chunks, likelihoods, what is refused."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pytest
import torch
from _charged import charged
from torch import nn

from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.nn import _dp2vae_training as stage_1
from skdpgen.nn import _dp2vae_training as stage_2
from skdpgen.nn._dp2vae import LIKELIHOODS, make_decoder, make_encoder
from skdpgen.nn._dp2vae_training import (
    EncoderStack,
    EncoderTraining,
    StackableNet,
    SubsetRows,
    _mean_gradients,
    _passes,
    clipped_subset_sum,
    pretrain_encoders,
    round_robin,
    train_decoder,
    train_on_pairs,
    train_together,
)
from skdpgen.utils.noise import make_noise_generator

KEY, N_FEATURES, N_CLASSES, LATENT = bytes(range(16)), 6, 2, 2
BERNOULLI = LIKELIHOODS["bernoulli"]()


def _data(n=60, n_subsets=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, N_FEATURES)).astype(np.float32)
    return x, rng.integers(0, N_CLASSES, n), rng.integers(0, n_subsets, n)


def _nets(seed=0):
    torch.manual_seed(seed)
    return (
        make_encoder("mlp", N_FEATURES, N_CLASSES, LATENT, n_hidden=4),
        make_decoder("mlp", N_FEATURES, N_CLASSES, LATENT, n_hidden=4),
    )


def _training(**changes):
    options = {"steps": 6, "batch_size": 4, "learning_rate": 0.01, "gradient_bound": 1.0, "refine_steps": 2, **changes}
    return EncoderTraining(KEY, **options)


def _pretrained(data=None, n_subsets=5, chunk=3, **changes):
    x, codes, subsets = _data() if data is None else data
    rows = SubsetRows(x, codes, N_CLASSES, subsets, n_subsets)
    trained = pretrain_encoders(*_nets(), rows, BERNOULLI, _training(**changes), chunk=chunk)
    return trained, rows


def _stack(policy="frozen", data=None, n_subsets=5, likelihood=BERNOULLI, **changes):
    parameters, rows = _pretrained(data, n_subsets)
    return EncoderStack(_nets()[0], parameters, rows, likelihood, _training(**changes), policy=policy)


def _sum(stack, units, plan=None, step=0, chunk=2, decoder=None):
    decoder = _nets(1)[1] if decoder is None else decoder
    plan = SubsetPlan(5, 10, 1.0, gradient_bound=0.25) if plan is None else plan
    weights = [p.detach() for p in decoder.parameters()]
    return clipped_subset_sum(stack, StackableNet(decoder), weights, np.asarray(units), step, plan, chunk=chunk)


def _flat(bounded):
    return torch.cat([v.flatten() for v in bounded.value]).double()


# ---- sensitivity --------------------------------------------------------------------------------------------------
class _BiasDecoder(nn.Module):
    """Its gradient is along one direction, and its sign is that of (1/2 - x)."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, z, label):
        return (self.bias * 1e3).expand(len(z), N_FEATURES) + 0 * z.sum()


@pytest.mark.parametrize("update", ["frozen", "on_query"])
def test_a_record_moves_the_sum_by_twice_the_bound_and_never_by_more(update):
    """The subset of one record turns its mean gradient round when that record is replaced."""
    plan = SubsetPlan(5, 10, 1.0, gradient_bound=0.25, encoder_update=update)
    x, codes, _ = _data(5)
    x[:], subsets = 1.0, np.arange(5)
    totals = {}
    for value in (0.0, 1.0):
        changed = x.copy()
        changed[2] = value
        stack = _stack(data=(changed, codes, subsets))
        totals[value] = _sum(stack, np.arange(5), plan, decoder=_BiasDecoder())
    change = float((_flat(totals[0.0]) - _flat(totals[1.0])).norm())
    assert change >= 0.999 * 2 * plan.clip_norm
    assert change <= 2 * plan.gradient_bound
    # what the noise is a multiple of: both ends of the pair are C from the rest under Poisson draws, else 2 C apart
    assert totals[0.0].add_or_remove_one == (0.25 if update == "frozen" else 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_random_neighbours_never_move_the_sum_by_more_than_twice_the_bound(seed):
    plan = SubsetPlan(5, 10, 1.0, gradient_bound=0.05)
    x, codes, subsets = _data(seed=seed)
    whole = _flat(_sum(_stack("stateless", (x, codes, subsets)), np.arange(5), plan))
    for neighbour in ((x[1:], codes[1:], subsets[1:]), (np.vstack([1 - x[:1], x[1:]]), codes, subsets)):
        other = _flat(_sum(_stack("stateless", neighbour), np.arange(5), plan))
        assert 0 < float((whole - other).norm()) <= 2 * plan.gradient_bound


def test_a_record_that_joins_changes_its_own_subset_alone():
    x, codes, subsets = _data()
    parameters, _ = _pretrained((x, codes, subsets))
    joined = (np.vstack([x[:7], 1 - x[:1], x[7:]]), np.insert(codes, 7, 1), np.insert(subsets, 7, 3))
    others, _ = _pretrained(joined)
    for before, after in zip(parameters, others):
        assert not torch.equal(before[3], after[3])
        np.testing.assert_array_equal(np.delete(before.numpy(), 3, 0), np.delete(after.numpy(), 3, 0))
    one, other = _stack("stateless"), _stack("stateless", joined)
    for k in range(5):
        assert torch.equal(_flat(_sum(one, [k])), _flat(_sum(other, [k]))) == (k != 3)


@pytest.mark.parametrize("chunk", [2, 5])
def test_a_record_that_joins_an_empty_subset_changes_no_other_encoder(chunk):
    """To the last bit: neither draws nor sums depend on which of the other subsets have records."""
    x, codes, subsets = _data()
    others, rest = subsets != 1, np.array([0, 2, 3, 4])
    without = x[others], codes[others], subsets[others]
    joined = [np.concatenate([part, whole[~others][:1]]) for part, whole in zip(without, (x, codes, subsets))]
    (before, _), (after, _) = (_pretrained(data, chunk=chunk) for data in (without, joined))
    for one, other in zip(before, after):
        assert not torch.equal(one[1], other[1])
        assert torch.equal(one[rest], other[rest])
    one, other = _stack("stateless", without), _stack("stateless", joined)
    for k in rest:
        assert torch.equal(_flat(_sum(one, [k])), _flat(_sum(other, [k])))


def test_a_subset_that_is_not_finite_is_left_out_and_moves_no_other():
    x, codes, subsets = _data()
    bad = x.copy()
    bad[subsets == 1] = np.nan
    stack, clean = _stack("stateless", (bad, codes, subsets)), _stack("stateless")
    torch.testing.assert_close(_flat(_sum(stack, [0, 1, 2, 4])), _flat(_sum(clean, [0, 2, 4])), rtol=1e-5, atol=1e-7)
    assert torch.count_nonzero(_flat(_sum(stack, [1]))) == 0


def test_an_empty_subset_keeps_its_index_and_contributes_nothing():
    x, codes, subsets = _data()
    subsets[subsets == 2] = 3
    for policy in ("stateless", "round_robin", "on_query"):
        stack = _stack(policy, (x, codes, subsets))
        if policy != "stateless":
            weights = [p.detach() for p in _nets(1)[1].parameters()]
            stack.refresh(np.array([1, 2, 3]), 0, StackableNet(_nets(1)[1]), weights)
        assert torch.count_nonzero(_flat(_sum(stack, [2]))) == 0
        torch.testing.assert_close(_flat(_sum(stack, [0, 2, 3])), _flat(_sum(stack, [0, 3])))
    assert torch.count_nonzero(_flat(_sum(stack, []))) == 0


def test_all_drawn_subsets_in_one_pass_are_the_sum_of_single_ones_clipped_by_hand():
    stack, decoder, plan = _stack(), _nets(1)[1], SubsetPlan(5, 10, 1.0, gradient_bound=0.25)
    total = torch.zeros(sum(p.numel() for p in decoder.parameters()), dtype=torch.float64)
    for k in (0, 3, 4):
        latent, label, x = stack.encode(np.array([k]), 0, None, None)
        loss = nn.functional.binary_cross_entropy_with_logits(decoder(latent[0], label[0]), x[0], reduction="sum") / 4
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(decoder.parameters()))]).double()
        total += gradient * min(1.0, plan.clip_norm / float(gradient.norm()))
    for chunk in (1, 2, 5):
        torch.testing.assert_close(_flat(_sum(stack, [0, 3, 4], plan, chunk=chunk)), total, rtol=1e-4, atol=1e-6)


# Widths that are no multiples of the width of a register: float32 rounds products of theirs by their place in a batch.
ODD = {"n_features": 7, "n_hidden": 101, "batch_size": 2}


def no_gradient_depends_on_which_other_subsets_are_drawn(policy="stateless"):
    rng, k = np.random.default_rng(0), 60
    torch.manual_seed(0)
    encoder, decoder = (
        make("mlp", ODD["n_features"], N_CLASSES, LATENT, n_hidden=ODD["n_hidden"])
        for make in (make_encoder, make_decoder)
    )
    rows = SubsetRows(
        rng.random((3 * k, ODD["n_features"]), dtype=np.float32),
        rng.integers(N_CLASSES, size=3 * k), N_CLASSES, np.repeat(np.arange(k), 3), k,
    )  # fmt: skip
    parameters = [0.2 * torch.randn(k, *p.shape) for p in encoder.parameters()]
    training = _training(batch_size=ODD["batch_size"])
    stack = EncoderStack(encoder, parameters, rows, BERNOULLI, training, policy=policy)
    net, weights = StackableNet(decoder), [p.detach() for p in decoder.parameters()]
    plan, seen = SubsetPlan(k, 10, 1.0, per_step=20, encoder_update=policy), {}
    for _ in range(12):
        units = np.flatnonzero(rng.random(k) < 0.4)
        counted = []
        for part, drawn in _passes(units, plan, chunk=30):
            gradients = _mean_gradients(stack, net, weights, part, 0)
            for i in np.flatnonzero(drawn):
                counted.append(part[i])
                first = seen.setdefault(part[i], [g[i] for g in gradients])
                assert all(torch.equal(one, g[i]) for one, g in zip(first, gradients)), "rounded by the other subsets"
        assert sorted(counted) == units.tolist()
    assert len(seen) == k


@pytest.mark.parametrize("policy", ["stateless", "frozen"])
def test_no_gradient_depends_on_which_other_subsets_are_drawn(policy):
    no_gradient_depends_on_which_other_subsets_are_drawn(policy)


# ---- state --------------------------------------------------------------------------------------------------------
def _run(policy, draws):
    """Encoders, and the sum of subset 0 at the end, after some draws with the same released decoder."""
    stack, decoder = _stack(policy), StackableNet(_nets(1)[1])
    plan = SubsetPlan(5, len(draws), 1.0, per_step=2, encoder_update=policy)
    for step, units in enumerate(draws):
        weights = [p + 0.01 * step for p in decoder.initial]
        if policy == "round_robin":
            stack.refresh(round_robin(plan, step), step, decoder, weights)
        clipped_subset_sum(stack, decoder, weights, np.asarray(units), step, plan, chunk=3)
        if policy == "on_query":
            stack.refresh(np.asarray(units), step, decoder, weights)
    last = clipped_subset_sum(stack, decoder, decoder.initial, np.array([0]), len(draws), plan, chunk=3)
    return stack.parameters, _flat(last)


def two_index_sequences_give_equal_encoders(policy):
    one, other = _run(policy, [[0, 1], [2], [0, 3, 4]]), _run(policy, [[4], [0, 2], [1]])
    for a, b in zip(one[0], other[0]):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    torch.testing.assert_close(one[1], other[1], rtol=0, atol=0)


@pytest.mark.parametrize("policy", ["stateless", "frozen", "round_robin"])
def test_two_index_sequences_with_equal_released_history_give_equal_encoders(policy):
    two_index_sequences_give_equal_encoders(policy)


def test_a_round_robin_refreshes_whatever_was_drawn():
    plan = charged(SubsetPlan(5, 6, 1.0, per_step=2, encoder_update="round_robin"))
    stack, refreshed = _stack("round_robin"), []
    refresh = stack.refresh
    stack.refresh = lambda units, *rest: (refreshed.append(units.tolist()), refresh(units, *rest))
    train_decoder(_nets(1)[1], stack, plan, make_noise_generator(), learning_rate=0.01, averaging=0.0, chunk=5)
    assert refreshed == [sorted({2 * step % 5, (2 * step + 1) % 5}) for step in range(6)]


def test_on_query_encoders_depend_on_the_hidden_draws():
    with pytest.raises(AssertionError):
        two_index_sequences_give_equal_encoders("on_query")


def test_encoders_are_refined_and_those_of_a_round_robin_stay_refined():
    start, _ = _pretrained()
    refreshed, _ = _run("round_robin", [[], [], []])
    assert not any(torch.equal(a, b) for a, b in zip(start, refreshed))
    stateless, _ = _run("stateless", [[0], [1]])
    assert all(torch.equal(a, b) for a, b in zip(start, stateless))
    assert not torch.equal(_flat(_sum(_stack("stateless"), [0])), _flat(_sum(_stack("frozen"), [0])))


def test_encoders_are_not_pickled():
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(_stack())


# ---- stage 1 ------------------------------------------------------------------------------------------------------
def test_encoders_do_not_depend_on_chunks_or_jobs():
    whole, _ = _pretrained(chunk=5)
    for chunk in (1, 2):
        for one, other in zip(whole, _pretrained(chunk=chunk)[0]):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    with joblib.parallel_config("threading"):
        threaded, _ = _pretrained(chunk=2, n_jobs=2)
    for one, other in zip(whole, threaded):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_encoders_train_on_a_dask_cluster():
    distributed = pytest.importorskip("distributed")
    whole, _ = _pretrained(chunk=5)
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        spread, _ = _pretrained(chunk=2, n_jobs=-1)
    for one, other in zip(whole, spread):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_stage_1_is_what_training_one_encoder_after_another_gives():
    """Against a loop over ordinary modules with torch's own clipping and Adam."""
    (x, codes, subsets), trained = _data(), _pretrained()[0]
    stream = stage_1.KeyedStream(KEY)
    for k in (1, 4):
        encoder, decoder = _nets()
        parameters = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        own, own_codes = torch.from_numpy(x[subsets == k]), torch.from_numpy(codes[subsets == k])
        for step in range(6):
            index = (stream.uniform(stage_1.PRETRAIN, np.array([k]), step, 4)[0] * len(own)).astype(int)
            rows, label = own[index], torch.eye(N_CLASSES)[own_codes[index]]
            mean, log_variance = encoder(rows, label).chunk(2, dim=1)
            normals = torch.from_numpy(stream.normal(stage_1.PRETRAIN + 1, np.array([k]), step, 4 * LATENT))
            latent = mean + torch.exp(0.5 * log_variance) * normals.reshape(4, LATENT)
            loss = nn.functional.binary_cross_entropy_with_logits(decoder(latent, label), rows, reduction="sum")
            loss = loss + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
            optimizer.zero_grad()
            (loss / 4).backward()
            for net in (encoder, decoder):
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        for whole, p in zip(trained, encoder.parameters()):
            torch.testing.assert_close(whole[k], p.detach(), rtol=1e-3, atol=1e-5)


def test_an_empty_subset_is_given_no_record_of_another():
    x, codes = np.ones((6, 3), dtype=np.float32), np.zeros(6, dtype=np.int64)
    rows = SubsetRows(x, codes, N_CLASSES, np.array([0, 0, 0, 2, 2, 2]), 4)
    given, labels = rows.batch(np.arange(4), np.full((4, 5), 0.5), "cpu")
    assert given.sum((1, 2)).tolist() == [15.0, 0.0, 15.0, 0.0]
    assert labels.sum((1, 2)).tolist() == [5.0, 0.0, 5.0, 0.0]


def test_a_bar_counts_the_chunks(capsys, monkeypatch):
    _pretrained(chunk=2)
    assert capsys.readouterr() == ("", "")
    x, codes, subsets = _data()
    rows = SubsetRows(x, codes, N_CLASSES, subsets, 5)
    monkeypatch.setattr("skdpgen.utils.progress._DELAY", 0)
    pretrain_encoders(*_nets(), rows, BERNOULLI, _training(), chunk=2, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert "DP2-VAE encoders" in told.err
    assert "/3" in told.err


def test_the_chunk_is_bounded_by_memory():
    chosen, most = stage_1.default_chunk(10_000, 10_000, "cpu", 2**30, 8, 100)
    assert 16 <= chosen <= most
    assert most * 20 * 20_000 <= 2**30
    assert stage_1.default_chunk(10_000, 10_000, "cpu", 10**6, 8, 100) == (2, 2)
    assert stage_1.default_chunk(10_000, 10_000, "cuda", 2**30, 8, 100)[0] == most


# ---- noise and release --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [("poisson", "frozen"), ("one_of_k", "frozen"), ("balanced", "on_query")])
def test_a_steps_noise_has_the_scale_of_its_plan(policy, monkeypatch):
    """Every release's noise, seen from outside: gradient times m, less the clipped sum."""
    sampler, update = policy
    plan = charged(SubsetPlan(5, 40, 1.3, gradient_bound=0.25, sampler=sampler, encoder_update=update))
    sums, noise, release = [], [], stage_2.GradientNoise.release

    def seen(self, bounded, divisor=1.0, out=None):
        sums.append(_flat(bounded))
        result = release(self, bounded, divisor, out)
        noise.append(torch.cat([g.flatten() for g in out]).double() * divisor - sums[-1])
        return result

    monkeypatch.setattr(stage_2.GradientNoise, "release", seen)
    decoder = make_decoder("mlp", N_FEATURES, N_CLASSES, LATENT, n_hidden=300)
    train_decoder(decoder, _stack(update), plan, make_noise_generator(), learning_rate=1e-3, averaging=0.9, chunk=5)
    assert len(noise) == plan.steps
    drawn = torch.cat(noise)
    expected = 1.3 * 0.25 * (1 if sampler == "poisson" else 2)
    assert len(drawn) >= 100_000
    assert float(drawn.std()) == pytest.approx(expected, rel=0.015)
    assert plan.noise_std == pytest.approx(expected)
    assert max(float(s.norm()) for s in sums) <= 0.25 * 5


def test_steps_run_are_steps_planned_and_the_decoder_keeps_no_gradients():
    plan, decoder = charged(SubsetPlan(5, 7, 1.0, per_step=2)), _nets(1)[1]
    before = [p.detach().clone() for p in decoder.parameters()]
    said, private = train_decoder(
        decoder, _stack(), plan, make_noise_generator(), learning_rate=0.01, averaging=0.0, chunk=5
    )
    assert private == make_noise_generator().private
    assert "AES" in said
    assert all(p.grad is None for p in decoder.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(before, decoder.parameters()))


def test_a_plan_charged_once_trains_one_decoder():
    plan, stack = charged(SubsetPlan(5, 2, 1.0)), _stack()
    settings = {"learning_rate": 0.01, "averaging": 0.0, "chunk": 5}
    train_decoder(_nets(1)[1], stack, plan, make_noise_generator(), **settings)
    decoder = _nets(1)[1]
    before = [p.detach().clone() for p in decoder.parameters()]
    with pytest.raises(RuntimeError, match="one charge is one training"):
        train_decoder(decoder, stack, plan, make_noise_generator(), **settings)
    assert all(torch.equal(a, b) for a, b in zip(before, decoder.parameters())), "the second training released a step"


def test_without_noise_the_decoder_learns_the_rows():
    x, codes, subsets = _data(400)
    x = np.where(codes[:, None] == 0, np.tile([0.9, 0.1], 3), np.tile([0.1, 0.9], 3)).astype(np.float32)
    decoder = _nets(1)[1]
    plan = SubsetPlan(5, 120, 0.0, per_step=3)
    train_decoder(
        decoder,
        _stack("stateless", (x, codes, subsets)),
        plan,
        make_noise_generator(),
        learning_rate=0.06,
        averaging=0.9,
        chunk=5,
    )
    with torch.no_grad():
        means = torch.sigmoid(decoder(torch.randn(200, LATENT), torch.eye(2).repeat_interleave(100, 0)))
    expected = np.repeat([np.tile([0.9, 0.1], 3), np.tile([0.1, 0.9], 3)], 100, axis=0)
    assert np.abs(means.numpy() - expected).mean() < 0.1


def test_training_on_rows_that_may_be_read_fits_both_networks():
    x, codes, _ = _data(200)
    x = np.where(codes[:, None] == 0, 0.9, 0.1).astype(np.float32) + np.zeros_like(x)
    encoder, decoder = _nets()
    train_together(
        encoder, decoder, x, codes, N_CLASSES, BERNOULLI, steps=200, learning_rate=0.03, seed=0, batch_size=32
    )
    with torch.no_grad():
        means = torch.sigmoid(decoder(torch.randn(4, LATENT), torch.eye(2)[[0, 0, 1, 1]])).mean(1)
    assert (means[:2] > 0.8).all()
    assert (means[2:] < 0.2).all()


def test_training_on_pairs_teaches_what_a_latent_draws_and_where_a_row_came_from():
    """Rows linear in one latent, of two classes: both directions are learned, and what no latent tells is not."""
    rng = np.random.default_rng(0)
    latents, codes = rng.normal(size=(2000, LATENT)).astype(np.float32), rng.integers(0, 2, 2000)
    x = np.repeat(0.5 + 0.15 * latents[:, :1] * np.where(codes, 1, -1)[:, None], N_FEATURES, axis=1).clip(0, 1)
    x = x.astype(np.float32)
    torch.manual_seed(0)
    encoder = make_encoder("mlp", N_FEATURES, N_CLASSES, LATENT, n_hidden=32)
    decoder, other = (make_decoder("mlp", N_FEATURES, N_CLASSES, LATENT, n_hidden=n) for n in (32, 16))
    train_on_pairs(
        encoder, [decoder, other], (x, latents, codes), N_CLASSES, BERNOULLI, steps=400, learning_rate=0.03, seed=0
    )
    z, label = torch.from_numpy(latents[:500]), torch.eye(2)[codes[:500]]
    with torch.no_grad():
        for net in (decoder, other):
            assert np.abs(torch.sigmoid(net(z, label)).numpy() - x[:500]).mean() < 0.05
        mean, log_variance = encoder(torch.from_numpy(x[:500]), label).chunk(2, dim=1)
    assert float((mean[:, 0] - z[:, 0]).abs().mean()) < 0.3
    assert float(log_variance[:, 0].mean()) < -1.5
    assert abs(float(log_variance[:, 1].mean())) < 0.3  # nothing in the row tells of it: its law is the prior
    assert all(p.grad is None for net in (encoder, decoder, other) for p in net.parameters())
