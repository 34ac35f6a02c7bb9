"""DP-MERF's released model: random features, one noisy mean embedding a class, and a generator fitted to it."""

from __future__ import annotations

import functools
import sys

import numpy as np

from ..data.arrays import ArrayCodec
from ..data.frames import FrameCodec, FrameRows
from ..data.sources import add_sums
from ..mechanisms import add_gaussian, class_first_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT as COUNT_WEIGHT
from ..tabular import sample_levels
from ..utils.blocks import exact_product
from ..utils.file_checks import check_size, check_whole

__all__ = ["COUNT_WEIGHT", "MERFModel", "RandomFeatures", "embedding_sum", "fit_merf_model"]

# Rows at a time.
_CHUNK = 4096
# Numbers in the generator's batch: rows times blocks times frequencies.
_BATCH_NUMBERS = 1_000_000
_MOST_ROWS = 512
_LEAST_PER_CLASS = 4
# Seed of the frequencies.
_FREQUENCIES = 20210225
# Length scales about the one asked for: a kernel that sees both the coarse and the fine.
_SPREAD = (0.5, 1.0, 2.0)


class RandomFeatures:
    """Random Fourier features of a sum of Gaussian kernels; independent of the data.

    Parameters
    ----------
    frequencies : array of shape (n_features, n_frequencies)

    Notes
    -----
    Every row, wherever it lies, has features of norm 1: half of them are cosines and half sines of the same angles.
    """

    def __init__(self, frequencies):
        self.frequencies = np.asarray(frequencies, dtype=np.float64)

    @classmethod
    def draw(cls, n_features, n_frequencies, length_scale, rng):
        """Draw frequencies for Gaussian kernels of half, once and twice `length_scale`."""
        scales = length_scale * np.resize(_SPREAD, n_frequencies)
        return cls(rng.standard_normal((n_features, n_frequencies)) / scales)

    def __call__(self, rows):
        """Features of rows, shape (n_samples, 2 * n_frequencies)."""
        angles = exact_product(rows, self.frequencies)
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / angles.shape[1] ** 0.5


def embedding_sum(rows, class_codes, n_classes, features, *, encode=None, exact=True):
    """Sum (1, features) over the rows of each class: one query, for a row is in one class alone.

    Parameters
    ----------
    rows : array of shape (n_samples, ...)
    class_codes : array of int of shape (n_samples,)
        Rows with a code outside the classes are left out.
    n_classes : int
    features : RandomFeatures
    encode : callable, default=None
        Public or released map of a chunk of rows to what the features are of.
    exact : bool, default=True
        On a lattice on which sums are exact; False only without noise.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, 1 + 2 * n_frequencies). With w = `COUNT_WEIGHT`, adding a row moves it by at most
        sqrt(w^2 + 1), which every row attains; replacing one by at most max(2, sqrt(2 (w^2 + 1))).
    """
    transform = features if encode is None else lambda chunk: features(encode(chunk))
    # an embedding is far wider than a row: 32 MB of them at a time
    chunk_rows = max(16, min(_CHUNK, (1 << 21) // features.frequencies.shape[1]))
    return class_first_moments(
        rows, class_codes, n_classes, count_weight=COUNT_WEIGHT, transform=transform, exact=exact, chunk_rows=chunk_rows
    )


class MERFModel:
    """Released state of DP-MERF: the codec, the classes' counts, and the generator.

    Parameters
    ----------
    codec : ArrayCodec or FrameCodec
    layers : list of (weight, bias), float32
        From a standard normal latent beside the one-hot class to rows (logits of levels for tables); ReLU between.
    n_latent : int
    row_count : float
    component_weights : array of shape (n_components,)
        Released counts of the classes; one without classes.
    """

    gradient_noise = None

    def __init__(self, codec, layers, n_latent, row_count, component_weights):
        self.codec, self.layers, self.n_latent = codec, layers, n_latent
        self.row_count, self.component_weights = row_count, component_weights

    @property
    def kind(self):
        """Whether DataFrames or arrays were fitted."""
        return "frame" if isinstance(self.codec, FrameCodec) else "array"

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / self.component_weights.sum()

    def sample(self, components, rng):
        """Rows, or (rows, y), of given classes."""
        components = np.asarray(components, dtype=np.int64)
        output = np.concatenate(
            [self._generate(components[i : i + _CHUNK], rng) for i in range(0, len(components), _CHUNK)]
        )
        if self.kind == "array":
            low, high = self.codec.box
            return self.codec.decode(low + (high - low) / (1 + np.exp(-output.astype(np.float64))), components, rng)
        blocks = np.split(output, np.cumsum(self.codec.n_levels)[:-1], axis=1)
        codes = [sample_levels(_softmax(block), rng) for block in blocks]
        codes = np.stack(codes, axis=1) if codes else np.zeros((len(components), 0), dtype=np.int64)
        return self.codec.decode(codes, components if self.codec.n_classes else None, rng)

    def _generate(self, components, rng):
        latent = rng.standard_normal((len(components), self.n_latent)).astype(np.float32)
        output = np.concatenate([latent, np.eye(len(self.component_weights), dtype=np.float32)[components]], axis=1)
        for k, (weight, bias) in enumerate(self.layers):
            output = (np.maximum(output, 0.0) if k else output) @ weight.T + bias
        return output

    def to_state(self):
        """Return plain values and arrays for a release file."""
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "layers": {str(k): {"weight": w, "bias": b} for k, (w, b) in enumerate(self.layers)},
            "n_latent": self.n_latent,
            "row_count": self.row_count,
            "component_weights": self.component_weights,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        check_size(check_whole(state["n_latent"], "n_latent", 1), _CHUNK)
        layers = sorted(state["layers"].items(), key=lambda item: int(item[0]))
        return cls(
            {"array": ArrayCodec, "frame": FrameCodec}[state["kind"]].from_state(state["codec"]),
            [(layer["weight"], layer["bias"]) for _, layer in layers],
            state["n_latent"],
            state["row_count"],
            state["component_weights"],
        )


def fit_merf_model(rows, settings, plan, rng, neighboring):
    """Make all releases of the fit, after its charge, and fit the generator to them.

    Parameters
    ----------
    rows : FrameRows or ArrayRows
    settings : dict
        Parameters of the synthesizer, and `seed`.
    plan : FitPlan
        Charged.
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    MERFModel
    """
    noise = plan.noise_multipliers
    # public, and the same in every fit: two fits can then be compared release by release
    public = np.random.default_rng(_FREQUENCIES)
    if isinstance(rows, FrameRows):
        codec, _ = rows.learn({**noise, "moments": noise["embedding"]}, plan.extra_delta, rng, neighboring)
        width, unit = int(codec.n_levels.sum()), max(1.0, len(codec.n_levels)) ** 0.5
    else:
        codec = rows.learn(noise, plan.extra_delta, rng, neighboring)
        width, unit = len(codec.scaling.lower), codec.row_norm
    n_classes = max(codec.n_classes, 1)
    features = RandomFeatures.draw(width, settings["n_frequencies"], settings["length_scale"] * unit, public)
    bounded = _sum_of(rows, codec, n_classes, features, exact=noise["embedding"] > 0)
    released = add_gaussian(bounded, noise["embedding"], rng, neighboring)
    counts = np.maximum(released[:, 0], max(1.0, 0.05 * float(np.mean(released[:, 0]))))
    row_count = float(len(rows)) if neighboring == "replace_one" else float(counts.sum())
    layers = _fit_generator(
        released[:, 1:] / counts[:, None], features, codec, settings, np.random.default_rng(settings["seed"])
    )
    return MERFModel(codec, layers, settings["n_latent"], row_count, counts)


def _sum_of(rows, codec, n_classes, features, *, exact):
    if not isinstance(rows, FrameRows):
        return embedding_sum(rows.X, rows.codes, n_classes, features, encode=codec.scale, exact=exact)
    query = functools.partial(_chunk_sum, codec=codec, n_classes=n_classes, features=features, exact=exact)
    return rows.source.reduce(query, add_sums)


def _chunk_sum(chunk, codec, n_classes, features, exact):
    codes, class_codes = codec.codes(chunk)
    class_codes = np.zeros(len(codes), dtype=np.int64) if class_codes is None else class_codes

    def encode(part):  # of any numeric dtype
        return codec.one_hot(np.asarray(part, dtype=np.int64))

    return embedding_sum(codes, class_codes, n_classes, features, encode=encode, exact=exact)


# ---- after the release: post-processing -------------------------------------------------------------------------
def _fit_generator(target, features, codec, settings, rng):
    """Fit the generator to the released mean embeddings by their squared distance, the maximum mean discrepancy.

    Parameters
    ----------
    target : array of shape (n_classes, 2 * n_frequencies)
        Released.

    Returns
    -------
    list of (weight, bias), float32
    """
    import torch
    from tqdm import tqdm

    n_classes, width = len(target), features.frequencies.shape[0]
    sizes = [settings["n_latent"] + n_classes, *[int(n) for n in settings["hidden_layer_sizes"]], width]
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:]):  # noqa: RUF007
        weight = rng.standard_normal((n_out, n_in)) * (2 / n_in) ** 0.5
        layers.append([torch.tensor(p, dtype=torch.float32, requires_grad=True) for p in (weight, np.zeros(n_out))])
    near = (np.ones(width), np.zeros(width)) if isinstance(codec, FrameCodec) else _near_the_rows(codec)
    gain, middle = (torch.tensor(side, dtype=torch.float32) for side in near)
    levels = codec.n_levels.tolist() if isinstance(codec, FrameCodec) else None
    embed = _embedder(features, levels, None if levels is not None else codec.box)
    wanted = torch.tensor(target, dtype=torch.float32)
    numbers = features.frequencies.shape[1] * (len(levels) if levels else 1)
    per_class = max(_LEAST_PER_CLASS, min(_MOST_ROWS, _BATCH_NUMBERS // numbers) // n_classes)
    classes = torch.eye(n_classes).repeat_interleave(per_class, dim=0)
    draws = torch.Generator().manual_seed(int(settings["seed"]))
    steps = settings["steps"]
    optimizer = torch.optim.Adam([p for layer in layers for p in layer], lr=settings["learning_rate"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    bar = tqdm(total=steps, desc="generator", unit="step", disable=not settings["progress"], file=sys.stderr)
    with bar, torch.enable_grad():
        for _ in range(steps):
            output = torch.cat([torch.randn(len(classes), settings["n_latent"], generator=draws), classes], dim=1)
            for k, (weight, bias) in enumerate(layers):
                output = torch.nn.functional.linear(torch.relu(output) if k else output, weight, bias)
            optimizer.zero_grad()
            _discrepancy(embed(output * gain + middle), wanted, per_class).backward()
            optimizer.step()
            schedule.step()
            bar.update()
    with torch.no_grad():
        weight, bias = layers[-1]
        layers[-1] = [weight * gain[:, None], bias * gain + middle]
    return [tuple(p.detach().numpy().copy() for p in layer) for layer in layers]


def _near_the_rows(codec):
    """Gain and offset of the generator's output, for which its first rows are about as long as the norm bound allows.

    Features of rows that are many length scales away are unlike all others: no gradient leads from there to the rows.
    Neither does one where a step moves rows by many length scales.
    """
    low, high = codec.box
    center, width = (low + high) / 2, high - low
    reach = 0.5 * codec.row_norm
    step = np.clip(reach / len(low) ** 0.5 / width, 1e-6, 0.25)
    share = np.clip((center * min(1.0, reach / max(np.linalg.norm(center), 1e-300)) - low) / width, step, 1 - step)
    gain = step / (share * (1 - share))
    return np.minimum(gain, 1.0), np.log(share / (1 - share))


def _embedder(features, levels, box):
    """Map of the generator's output to the mean features of the rows that are sampled from it, (n, 2 n_frequencies)."""
    import torch

    W = torch.tensor(features.frequencies, dtype=torch.float32)
    scale = W.shape[1] ** -0.5
    if levels is None:
        low, high = (torch.tensor(side, dtype=torch.float32) for side in box)

        def embed_rows(output):
            angles = (low + (high - low) * torch.sigmoid(output)) @ W
            return torch.cat([angles.cos(), angles.sin()], dim=1) * scale

        return embed_rows
    cosines, sines = W.cos().split(levels), W.sin().split(levels)

    def embed_levels(output):
        # levels are drawn independently given the latent, so the characteristic function is a product over the blocks:
        # exact for the rows that are sampled, where features of the probabilities themselves would not be
        real, imaginary = torch.ones(len(output), W.shape[1]), torch.zeros(len(output), W.shape[1])
        for logits, c, s in zip(output.split(levels, dim=1), cosines, sines):
            p = torch.softmax(logits, dim=1)
            a, b = p @ c, p @ s
            real, imaginary = real * a - imaginary * b, real * b + imaginary * a
        return torch.cat([real, imaginary], dim=1) * scale

    return embed_levels


def _discrepancy(embedded, wanted, per_class):
    """Unbiased squared distance of each class's mean features to the wanted ones, up to a constant; their mean.

    With few rows the plain square counts their scatter as an error, and rewards a generator that collapses.
    """
    rows = embedded.view(len(wanted), per_class, -1)
    total = rows.sum(dim=1)
    pairs = total.square().sum(dim=1) - rows.square().sum(dim=(1, 2))
    return (pairs / (per_class * (per_class - 1)) - 2 * (total * wanted).sum(dim=1) / per_class).mean()


def _softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
