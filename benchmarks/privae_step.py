"""What a term-wise step costs beside an ordinary step of the same loss."""

from __future__ import annotations

import statistics
import time

__all__ = ["privae_step_benchmark"]


def privae_step_benchmark(repeats=7, *, batch=300, n_groups=16, steps=6, quick=False):
    """Time term-wise steps and ordinary steps of one loss, alternating: reconstruction, KL, and MMD of each group.

    The net is the MLP 784-1000-10-1000-784, the optimiser Adam.

    Parameters
    ----------
    repeats : int, default=7
        Alternations; medians over them are reported.
    batch, n_groups : int, default=300, 16
    steps : int, default=6
        Steps of one method before the next one's turn, after one that is not timed.
    quick : bool, default=False
        Two alternations of two steps.

    Yields
    ------
    dict
        `method`, `noise`, `seconds` a step and `ratio` to the ordinary step (medians), with its extremes and `target`.
        Methods: "ordinary"; "sample-wise" (no divergence) and "term-wise" with either noise.
    """
    import torch

    if quick:
        repeats, steps = 2, 2
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((batch, 784), generator=generator)
    noise = torch.randn((batch, 1, 10), generator=generator)
    methods = {("ordinary", None): _ordinary(x, noise, n_groups)}
    sources = []
    for kind in ("fast", "secure"):
        for name in ("sample-wise", "term-wise"):
            methods[name, kind], source = _private(x, noise, n_groups if name == "term-wise" else None, kind)
            sources.append(source)
    seconds = {key: [] for key in methods}
    try:
        for _ in range(repeats):
            for key, step in methods.items():
                step()
                start = time.perf_counter()
                for _ in range(steps):
                    step()
                seconds[key].append((time.perf_counter() - start) / steps)
    finally:
        for source in sources:
            source.close()
    for (method, kind), times in seconds.items():
        ratios = [t / o for t, o in zip(times, seconds["ordinary", None])]
        yield {
            "method": method,
            "noise": kind,
            "batch": batch,
            "n_groups": n_groups,
            "threads": torch.get_num_threads(),
            "seconds": statistics.median(times),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "target": 2.0 if method == "term-wise" else None,
        }


def _module():
    from skdpgen.dpsgd._seeding import torch_seeded
    from skdpgen.nn import BernoulliLikelihood, PriVAEModule

    with torch_seeded(0):
        return PriVAEModule(784, 10, BernoulliLikelihood(), divergence="mmd", n_hidden=1000)


def _ordinary(x, noise, n_groups):
    import torch

    from skdpgen.dpsgd._termwise import draw_groups, gather_groups
    from skdpgen.utils.noise import make_noise_generator

    module, rng = _module(), make_noise_generator("fast")
    optimizer = torch.optim.Adam(module.parameters())
    mask = torch.ones(len(x), dtype=torch.bool)

    def step():
        from skdpgen.nn._divergences import GroupLatents
        from skdpgen.nn._priors import sample_with_log_prob

        optimizer.zero_grad()
        # the encoder runs once, for both terms: an ordinary loss needs no second pass
        mean, log_variance = module.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * noise[:, 0]
        reconstruction = module.likelihood.log_prob(module.decode(z), x)
        loss = (module.prior.kl(mean, log_variance) - reconstruction).mean()
        (z, mean, log_variance), members = gather_groups(
            (z, mean, log_variance), mask, draw_groups(len(x), n_groups, rng), n_groups
        )
        normals = torch.from_numpy(rng.standard_normal((n_groups, *module.group_noise_shape))).float()
        samples, log_prob = sample_with_log_prob(module.prior, normals)
        groups = module.divergence(GroupLatents(z, mean, log_variance, members), samples, log_prob)
        (loss + groups.mean()).backward()
        optimizer.step()

    return step


def _private(x, noise, n_groups, kind):
    import torch

    from skdpgen.dpsgd import DPSGDPlan, GradientNoise, TermwisePlan
    from skdpgen.nn import DPNet
    from skdpgen.nn._dp_net import NetGroupLoss, NetLoss
    from skdpgen.utils.noise import make_noise_generator

    module, rng = _module(), make_noise_generator(kind)
    net = DPNet(module, verbose=0)
    net.initialize()
    shared = {"sampling_rate": 0.005, "steps": 1, "noise_multiplier": 1.0, "expected_batch_size": float(len(x))}
    if n_groups is None:
        aggregate = DPSGDPlan(**shared, l2_bound=1.0).make_aggregate(NetLoss(net), rng)
    else:
        plan = TermwisePlan(**shared, n_groups=n_groups)
        shape = net.module_.group_noise_shape
        aggregate = plan.make_aggregate(NetLoss(net), rng, group_root=NetGroupLoss(net), group_noise_shape=shape)
    source = GradientNoise.like(aggregate.parameters, 1.0, rng)
    optimizer = torch.optim.Adam(aggregate.parameters)
    for p in aggregate.parameters:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in aggregate.parameters]
    mask = torch.ones(len(x), dtype=torch.bool)

    def step():
        source.release(aggregate(x, {"noise": noise}, mask=mask), divisor=len(x), out=gradients)
        optimizer.step()

    return step, source
