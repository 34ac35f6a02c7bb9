"""Released moments from which networks start: their release, rows drawn from them, and the training on these."""

from __future__ import annotations

import numpy as np

from ..data.frames import FrameRows
from ..generators.components import spread_components
from ..mechanisms._gaussian import Count
from ..utils.progress import progress_bar
from ._array_model import ArrayModel, fit_array_model
from ._checkpoint import codec_of
from ._frame_model import FrameModel, fit_frame_model
from ._training import ClassCounts, learn_codec, release_class_counts

# Rows drawn from the released moments.
_ROWS = 40_000
# Ordinary training on them: the rate of Adam falls to a twentieth. And the records of a group of a divergence.
_BATCH, _RATE, _FALL = 128, 2e-3, 0.05
_GROUP_SIZE = 16
# Tables: weight of the loss of the autoencoder beside minus the log-likelihood of synthetic rows under the decoder at
# draws of the prior; rows of a step, and classes that they are of; draws for all of these, in number and in levels.
_LOSS_WEIGHT, _LIKELIHOOD_BATCH, _MOST_CLASSES = 0.3, 256, 4
_DRAWS, _DRAWN_LEVELS, _FEWEST_DRAWS = 512, 200_000, 32


def learn_facts(rows, fit, settings=None, **basis):
    """Make the releases before the training: facts that were not declared, and moments or counts of the classes.

    `fit`: one that goes on has these releases from its checkpoint.
    `settings`: of the moments from which the networks start; None: none are released.
    **basis: of images without moments: the cosines of `learn_codec`.
    Returns `codec`; `counts`, ClassCounts: released; ones where nothing had to be counted; `moments`: the model of the
        released moments.
    """
    return fit.facts(
        lambda: _release_counts(rows, fit, basis) if settings is None else _release_moments(rows, fit, settings),
        lambda facts: _facts_state(*facts),
        lambda state: _restore_facts(rows, state),
    )


def _release_counts(rows, fit, basis):
    codec = learn_codec(rows, fit, **basis)
    if isinstance(rows, FrameRows):
        classes, n_rows = codec.codes(rows.frame)[1], len(rows.frame)
    else:
        classes, n_rows = rows.codes, len(rows)
    return codec, release_class_counts(codec, n_rows, classes, fit, rows.unit_sizes), None


def _release_moments(rows, fit, settings):
    if isinstance(rows, FrameRows):
        moments = fit_frame_model(rows, settings, fit)
        counts = np.maximum(moments.latent_model.class_counts, 0.0)
        return moments.codec, ClassCounts(counts, 0.0), moments
    moments = fit_array_model(rows, settings, fit)
    return moments.codec, ClassCounts(moments.counted.value * moments.class_ratio, 0.0), moments


def model_of(state):
    """The model of arrays or of DataFrames that a file holds, of released moments."""
    return {"array": ArrayModel, "frame": FrameModel}[state["kind"]].from_state(state)


def _facts_state(codec, counts, moments):
    """What a checkpoint holds of the releases before the training; `moments` may be None."""
    own = {"codec": codec.to_state()} if moments is None else {"moments": moments_state(moments)}
    return {**counts.to_state(), **own}


def _restore_facts(rows, state):
    """The codec, the counts and the model of the moments, or None, by the releases in a checkpoint."""
    counts = ClassCounts.from_state(state)
    if "moments" in state:
        moments = restore_moments(rows, state["moments"])
        return moments.codec, counts, moments
    codec = codec_of(state["codec"])
    rows.follow(codec)
    return codec, counts, None


def moments_state(model):
    """What a checkpoint holds of the model of the moments: what its file does, and the count for the training."""
    return {**model.to_state(), "counted": list(model.counted)}


def restore_moments(rows, state):
    """The model of the moments, by the releases in a checkpoint (see `moments_state`)."""
    state = dict(state)
    counted = state.pop("counted", None)
    model = model_of(state)
    if counted is not None:
        value, most = counted if isinstance(counted, list) else (counted, counted)  # of an earlier version
        if model.kind == "array":
            model.counted = Count(value, most)
        else:
            model.most = most
    rows.follow(model.codec)
    return model


def draw_components(moments, stream, n_rows=None):
    """Components of the synthetic rows: classes, where there are any."""
    return spread_components(_ROWS if n_rows is None else n_rows, moments.component_weights, stream)


def draw_rows(moments, stream, n_rows=None):
    """Rows drawn from released moments, which are free to train on; 40,000 of them by default.

    Returns `x` (n_rows, n_features): scaled rows, or one-hot levels; `components` (n_rows,): their classes, 0 without
    any.
    """
    components = draw_components(moments, stream, n_rows)
    drawn = moments.draw(components, stream)
    return (moments.codec.one_hot(drawn) if isinstance(moments, FrameModel) else drawn), components


def train_on_rows(module, x, steps, generator, loss_of, *, batch_size, rate, last_rate=1.0, progress=False):
    """Train a module in place on synthetic rows by Adam, without noise.

    `x` (n_rows, n_columns): a function of what was released.
    `generator`: of batches and `normals`; the draws of dropout follow its seed too.
    `loss_of`: ``loss_of(batch, normals)`` is the loss of some rows, where ``normals(*shape)`` draws standard normals.
    `rate`, `last_rate`: rate of Adam, and the share of it to which it falls.
    """
    import torch

    from ..dpsgd._seeding import torch_seeded

    device, seed = next(module.parameters()).device, generator.initial_seed()
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, last_rate, total_iters=steps)

    def normals(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    module.train()
    for step in progress_bar(range(steps), shown=progress, phase="start from released moments", unit="step"):
        batch = x[torch.randint(len(x), (batch_size,), generator=generator)].to(device)
        optimizer.zero_grad()
        with torch_seeded(seed + step, device):
            loss_of(batch, normals).backward()
        optimizer.step()
        schedule.step()


def start_autoencoder(module, x, steps, network):
    """Train an autoencoder in place on synthetic rows, by the loss of records and that of groups.

    Of a table, the decoder is also fitted to the likelihood of the rows under the prior (see `_PriorLikelihood`): the
    bound that the encoder gives is not tight, and the decoder that is best for it draws worse rows.

    `x` (n_rows, n_features [+ n_labels]): a function of what was released. `network`: its seed is that of all draws.
    """
    import torch

    from ..nn import TableLikelihood

    generator, x = torch.Generator().manual_seed(network.seed), torch.from_numpy(x)
    likelihood = _PriorLikelihood(module, x, generator) if isinstance(module.likelihood, TableLikelihood) else None
    groups = (_BATCH // _GROUP_SIZE, _GROUP_SIZE)

    def loss_of(batch, normals):
        noise = normals(_BATCH, *module.noise_shape)
        loss = module(batch, noise).mean()
        if module.divergence is not None:
            members, prior = torch.ones(groups, device=batch.device), normals(groups[0], *module.group_noise_shape)
            parts = (batch.view(*groups, -1), members, noise.view(*groups, *module.noise_shape), prior)
            loss = loss + module.group_losses(*parts).mean()
        return loss if likelihood is None else _LOSS_WEIGHT * loss - likelihood.estimate(normals)

    how = {"batch_size": _BATCH, "rate": _RATE, "last_rate": _FALL, "progress": network.progress}
    train_on_rows(module, x, steps, generator, loss_of, **how)


class _PriorLikelihood:
    """Log-likelihood of synthetic rows of a table under the decoder at draws of the prior.

    Given the latent, the blocks of a row are independent, so at n draws of the prior the decoder of a class is a
    mixture of n products, like the released one. The log-likelihood of a row under it is a lower bound of that under
    the model, in expectation (the bound of Burda, Grosse and Salakhutdinov with the prior as the proposal). All rows of
    a class share the draws, so many of them cost little.

    `x` (n_rows, n_features + n_labels): synthetic rows.
    """

    def __init__(self, module, x, generator):
        import torch

        self.module, self.generator, self.n_labels = module, generator, module.n_labels
        rows, classes = x, torch.zeros(len(x), dtype=torch.int64)
        if self.n_labels:
            rows, classes = x[:, : -self.n_labels], x[:, -self.n_labels :].argmax(1)
        self.of_class = {int(k): rows[classes == k] for k in classes.unique()}
        self.codes = list(self.of_class)
        self.shares = torch.tensor([len(part) for part in self.of_class.values()]) / len(x)
        levels = rows.shape[1] * min(len(self.codes), _MOST_CLASSES)
        self.n_draws = max(_FEWEST_DRAWS, min(_DRAWS, _DRAWN_LEVELS // levels))

    def estimate(self, normals):
        """Mean over the rows of a random batch, less a constant; at fresh draws."""
        import torch

        module = self.module
        z = module.prior.sample(normals(1, self.n_draws, 2, module.n_latent))[0]
        total = 0.0
        for code, share in self._classes():
            n = max(1, round(_LIKELIHOOD_BATCH * share))
            rows = self.of_class[code]
            rows = rows[torch.randint(len(rows), (n,), generator=self.generator)].to(z.device)
            labels = None
            if self.n_labels:
                labels = torch.zeros(self.n_draws, self.n_labels, device=z.device)
                labels[:, code] = 1.0
            scores = module.likelihood.log_scores(module.decode(z, labels), rows)
            total = total + share * torch.logsumexp(scores, dim=1).mean()
        return total

    def _classes(self):
        """Classes of a step and their weights: all with their shares, or a few drawn by these."""
        import torch

        if len(self.codes) <= _MOST_CLASSES:
            return zip(self.codes, self.shares.tolist())
        drawn = torch.multinomial(self.shares, _MOST_CLASSES, replacement=True, generator=self.generator)
        chosen, times = drawn.unique(return_counts=True)
        return [(self.codes[i], n / _MOST_CLASSES) for i, n in zip(chosen.tolist(), times.tolist())]
