"""DP-MERF: one noisy mean embedding in random features, and a generator fitted to it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from .._parameters import UNIT_CONSTRAINTS
from ..accounting import Phase
from ..data.arrays import fitting_shape
from ..data.frame_codec import FrameCodec
from ..data.frames import FrameRows
from ..data.sources import add_sums
from ..data.validation import validate_input
from ..generators.layers import apply_layers, layers_of, layers_state
from ..mechanisms import add_gaussian, class_first_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT
from ..utils.blocks import exact_product
from ..utils.file_checks import check_size, check_whole
from ..utils.progress import progress_bar, shows_bars
from ..utils.validation import MOST_UNITS, Interval, as_sizes, check_model_size
from ._base import DATA_CONSTRAINTS, BaseSynthesizer
from ._generator_model import ACTIVATIONS_OF_A_PIXEL, GeneratorModel, image_sizes, make_generator, n_weights
from ._phases import remaining_share
from ._released import CHUNK_ROWS, ReleasedModel
from ._training import network_shape

# Numbers in the generator's batch: rows times columns of a table times frequencies. Steps of 200 images are as good as
# steps of 500, and faster.
_BATCH_NUMBERS = 1_000_000
_MOST_ROWS, _MOST_IMAGES = 512, 200
_LEAST_PER_CLASS = 4
# Default steps of the training. A classifier that is trained on generated images of MNIST has .835 after 1,000 steps,
# .848 after 2,000 and .866 after 4,000.
_STEPS, _STEPS_OF_IMAGES = 1000, 4000
# Parameters that act under some values of another alone.
_ACTS = {"hidden_layer_sizes": ("image_shape", (None,))}
# Numbers in memory for each parameter of the generator of images: itself, its gradient, two averages of Adam.
_COPIES = 4
# Seed of the frequencies.
_FREQUENCIES = 20210225
# Length scales about the one asked for: a kernel that sees both the coarse and the fine.
_SPREAD = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class GeneratorSettings:
    """The random features, and the generator that is fitted to their released means."""

    n_frequencies: int
    length_scale: float
    n_components: int
    hidden_layer_sizes: tuple
    image_shape: tuple | None
    steps: int
    learning_rate: float
    seed: int
    progress: bool


class DPMERFSynthesizer(BaseSynthesizer):
    """DP-MERF: a generator fitted to noisy kernel mean embeddings of the classes with random features.

    Releases, for each class, the noisy sum of random Fourier features of its rows, and nothing else: a network is
    fitted to it by the maximum mean discrepancy, as post-processing.

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` there is one embedding a
        class; a numeric one is a column like the others.
    l2_bound : float or None, default=None
        Arrays: approximate largest norm of a row after its columns are scaled to the unit box; it is the unit of
        `length_scale`, and no row is clipped to it. None: learned.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default. Half of it is for the row norm.
    n_frequencies : int, default=500
        Number of random frequencies, the same in every fit; there are twice as many features.
    length_scale : float, default=1.0
        Length scale of the kernel, relative to the norm of a row (tables: to the root of the number of columns).
    n_components : int, default=10
        Number of latent dimensions of the generator.
    hidden_layer_sizes : sequence of int, default=(200, 200)
        Widths of the hidden layers of the generator; without `image_shape`.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. The generator is then convolutional. The release is the same. A
        row has its pixels line by line, and the channels of a pixel side by side.
    steps : int or None, default=None
        Training steps of the generator on released values; they cost no privacy. None is 1000, and 4000 with
        `image_shape`: one to two minutes of a core for 60,000 images of 28 x 28.
    learning_rate : float, default=0.003
        Initial learning rate of Adam.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
    random_state : int, RandomState instance or None, default=None
        Seed of the generator and the sampling stream. It never seeds the noise: two fits with one seed differ.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the embeddings of all classes.

    Against the paper: sums and counts in one query in place of means by a public number of rows, a length scale that
    does not follow from the data, bounds and bins that are charged, an unbiased discrepancy, and for tables the exact
    features of the levels that are drawn.

    References
    ----------
    .. [1] F. Harder, K. Adamczewski, M. Park, DP-MERF: Differentially private mean embeddings with random features for
       practical privacy-preserving data generation, AISTATS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPMERFSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DPMERFSynthesizer(3.0, bounds=(0, 16), l2_bound=4.5, classes=range(10), steps=20).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **DATA_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "l2_bound": [Interval(Real, 1e-12, 1e12, closed="both"), None],
        "n_frequencies": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "length_scale": [Interval(Real, 1e-6, 1e6, closed="both")],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "hidden_layer_sizes": ["array-like"],
        "image_shape": [tuple, list, None],
        "steps": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        l2_bound=None,
        budget_split=None,
        on_invalid="clip",
        n_frequencies=500,
        length_scale=1.0,
        n_components=10,
        hidden_layer_sizes=(200, 200),
        image_shape=None,
        steps=None,
        learning_rate=0.003,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.l2_bound = bounds, l2_bound
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components = n_components
        self.n_frequencies, self.length_scale, self.hidden_layer_sizes = n_frequencies, length_scale, hidden_layer_sizes
        self.image_shape, self.steps, self.learning_rate = image_shape, steps, learning_rate
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        self._resolve(acts=_ACTS)
        sizes = as_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        rows = validate_input(self, X, y, groups, images=False)
        shape = None if isinstance(rows, FrameRows) else fitting_shape(self.image_shape, rows.n_features)
        settings = GeneratorSettings(
            self.n_frequencies, self.length_scale, self.n_components, sizes, shape,
            self.steps or (_STEPS if shape is None else _STEPS_OF_IMAGES), self.learning_rate, self._seed(),
            shows_bars(self.progress),
        )  # fmt: skip
        _check_size(settings, rows)
        learned = list(rows.phases(self._share("bounds")))
        rest = remaining_share(
            learned, f'"bounds": {self._share("bounds"):g} of budget_split leaves nothing to the embedding'
        )
        return (rows, settings), self._calibrate_phases(accountant, rows, [*learned, Phase("embedding", rest)])

    def _release(self, rows, settings, fit):
        return fit_merf_model(rows, settings, fit)

    @staticmethod
    def _model_from_state(state):
        return (GeneratorModel if "architecture" in state else MERFModel).from_state(state)


def _check_size(settings, rows):
    """Refuse features or a generator too large for memory.

    Sizes are public; where levels or classes are learned, they are the least that there may be.
    """
    width, n_classes, _ = network_shape(rows)
    n_inputs, n_frequencies = settings.n_components + n_classes, settings.n_frequencies
    check_model_size((width + 2 * max(n_classes, 1)) * n_frequencies, n_frequencies=n_frequencies)
    if settings.image_shape is None:
        sizes = settings.hidden_layer_sizes
        numbers = n_weights(n_inputs, *sizes, width)
        check_model_size(numbers, n_components=settings.n_components, hidden_layer_sizes=sizes)
        return
    parameters, _, pixels = image_sizes(settings.n_components, n_classes, settings.image_shape)
    n_images = max(_MOST_IMAGES, _LEAST_PER_CLASS * n_classes)
    numbers = _COPIES * parameters + n_images * ACTIVATIONS_OF_A_PIXEL * pixels
    check_model_size(numbers, n_components=settings.n_components, image_shape=settings.image_shape)


# ---- random features, and their sum over the rows -----------------------------------------------------------------
class RandomFeatures:
    """Random Fourier features of a sum of Gaussian kernels; independent of the data.

    `frequencies`: shape (n_features, n_frequencies).

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


def embedding_sum(rows, class_codes, n_classes, features, *, encode=None, exact=True, unit_sizes=None):
    """Sum (1, features) over the rows of each class: one query, for a row is in one class alone.

    `rows`: shape (n_samples, ...).
    `class_codes` (n_samples,): rows with a code outside the classes are left out.
    `encode`: public or released map of a chunk of rows to what the features are of.
    `exact`: on a lattice on which sums are exact; False only without noise.
    `unit_sizes` (n_samples,): as in `moments`.
    Returns: `value` of shape (n_classes, 1 + 2 * n_frequencies). With w = `CLASS_COUNT_WEIGHT`, adding a row moves it
        by at most sqrt(w^2 + 1), which every row attains; replacing one by at most max(2, sqrt(2 (w^2 + 1))).
    """
    transform = features if encode is None else lambda chunk: features(encode(chunk))
    # an embedding is far wider than a row: 32 MB of them at a time
    chunk_rows = max(16, min(CHUNK_ROWS, (1 << 21) // features.frequencies.shape[1]))
    return class_first_moments(
        rows,
        class_codes,
        n_classes,
        count_weight=CLASS_COUNT_WEIGHT,
        transform=transform,
        exact=exact,
        chunk_rows=chunk_rows,
        unit_sizes=unit_sizes,
    )


# ---- the released model -------------------------------------------------------------------------------------------
class MERFModel(ReleasedModel):
    """Released state of DP-MERF: the codec, the classes' counts, and the generator.

    `layers`: from a standard normal latent beside the one-hot class to rows (logits of levels for tables); ReLU
    between. `component_weights` (n_components,): released counts of the classes; one without classes.
    """

    def __init__(self, codec, layers, n_latent, row_count, component_weights):
        super().__init__(codec, row_count, component_weights)
        self.layers, self.n_latent = layers, n_latent

    def draw(self, components, rng):
        """Scaled rows, or codes of levels, of given classes."""
        components = np.asarray(components, dtype=np.int64)
        output = np.concatenate(
            [self._generate(components[i : i + CHUNK_ROWS], rng) for i in range(0, len(components), CHUNK_ROWS)]
        )
        return self.draw_outputs(output, rng)

    def _generate(self, components, rng):
        latent = rng.standard_normal((len(components), self.n_latent)).astype(np.float32)
        classes = np.eye(len(self.component_weights), dtype=np.float32)[components]
        return apply_layers(self.layers, np.concatenate([latent, classes], axis=1))

    def _state(self):
        return {"layers": layers_state(self.layers), "n_latent": self.n_latent}

    @classmethod
    def _restore(cls, codec, state):
        check_size(check_whole(state["n_latent"], "n_latent", 1), CHUNK_ROWS)
        rest = (state["n_latent"], state["row_count"], state["component_weights"])
        return cls(codec, layers_of(state["layers"]), *rest)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_merf_model(rows, settings, fit):
    """Make all releases of DP-MERF, facts that were not declared and the embeddings; fit the generator to them."""
    noise, rng, neighboring = fit.noise, fit.rng, fit.neighboring
    # public, and the same in every fit: two fits can then be compared release by release
    public = np.random.default_rng(_FREQUENCIES)
    if isinstance(rows, FrameRows):
        # bins are as fine as the noise of the embedding allows
        options = {"noise_of_model": noise["embedding"]}
        codec = rows.learn(noise, fit.plan.extra_delta, rng, neighboring, **options).codec
        width, unit = int(codec.n_levels.sum()), max(1.0, len(codec.n_levels)) ** 0.5
    else:
        codec = rows.learn(noise, fit.plan.extra_delta, rng, neighboring)
        width, unit = len(codec.scaling.lower), codec.row_norm
    n_classes = max(codec.n_classes, 1)
    features = RandomFeatures.draw(width, settings.n_frequencies, settings.length_scale * unit, public)
    bounded = _sum_of(rows, codec, n_classes, features, exact=noise["embedding"] > 0)
    released = add_gaussian(bounded, noise["embedding"], rng, neighboring)
    counts = np.maximum(released[:, 0], max(1.0, 0.05 * float(np.mean(released[:, 0]))))
    row_count = fit.sample_size(rows, counts.sum())
    target = released[:, 1:] / counts[:, None]
    if settings.image_shape is not None:
        return GeneratorModel(codec, _fit_image_generator(target, features, codec, settings), row_count, counts)
    layers = _fit_generator(target, features, codec, settings, np.random.default_rng(settings.seed))
    return MERFModel(codec, layers, settings.n_components, row_count, counts)


def _sum_of(rows, codec, n_classes, features, *, exact):
    if not isinstance(rows, FrameRows):
        options = {"encode": codec.scale, "exact": exact, "unit_sizes": rows.unit_sizes}
        return embedding_sum(rows.X, rows.codes, n_classes, features, **options)
    query = functools.partial(_chunk_sum, codec=codec, n_classes=n_classes, features=features, exact=exact)
    return rows.source.reduce(query, add_sums)


def _chunk_sum(chunk, codec, n_classes, features, exact, unit_sizes=None):
    codes, class_codes = codec.codes(chunk)
    class_codes = np.zeros(len(codes), dtype=np.int64) if class_codes is None else class_codes

    def encode(part):  # of any numeric dtype
        return codec.one_hot(np.asarray(part, dtype=np.int64))

    options = {"encode": encode, "exact": exact, "unit_sizes": unit_sizes}
    return embedding_sum(codes, class_codes, n_classes, features, **options)


# ---- after the release: post-processing ------------------------------------------------------------------------
def _fit_generator(target, features, codec, settings, rng):
    """Fit the generator to the released mean embeddings by their squared distance, the maximum mean discrepancy.

    `target` (n_classes, 2 * n_frequencies): released.
    """
    import torch

    n_classes, width = len(target), features.frequencies.shape[0]
    sizes = [settings.n_components + n_classes, *[int(n) for n in settings.hidden_layer_sizes], width]
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:]):  # noqa: RUF007
        weight = rng.standard_normal((n_out, n_in)) * (2 / n_in) ** 0.5
        layers.append([torch.tensor(p, dtype=torch.float32, requires_grad=True) for p in (weight, np.zeros(n_out))])
    near = (np.ones(width), np.zeros(width)) if isinstance(codec, FrameCodec) else _near_the_rows(codec)
    gain, middle = (torch.tensor(side, dtype=torch.float32) for side in near)
    levels = codec.n_levels.tolist() if isinstance(codec, FrameCodec) else None
    embed = _embedder(features, levels, None if levels is not None else codec.box)

    def generate(latents, classes):
        output = torch.cat([latents, classes], dim=1)
        for k, (weight, bias) in enumerate(layers):
            output = torch.nn.functional.linear(torch.relu(output) if k else output, weight, bias)
        return output * gain + middle

    _descend([p for layer in layers for p in layer], generate, embed, target, settings, len(levels) if levels else 1)
    with torch.no_grad():
        weight, bias = layers[-1]
        layers[-1] = [weight * gain[:, None], bias * gain + middle]
    return [tuple(p.detach().numpy().copy() for p in layer) for layer in layers]


def _fit_image_generator(target, features, codec, settings):
    """Fit a convolutional generator to the released mean embeddings, as `_fit_generator` does a dense one."""
    import torch

    width, n_classes = features.frequencies.shape[0], codec.n_classes
    shape = settings.image_shape
    generator = make_generator(settings.n_components, n_classes, width, settings.seed, image_shape=shape, coarse=True)
    # one gain and one offset for all pixels, which become part of the last convolution
    gain, middle = (float(side.mean()) for side in _near_the_rows(codec))

    def generate(latents, classes):
        return generator.logits(latents, classes if n_classes else None) * gain + middle

    embed = _embedder(features, None, codec.box)
    _descend(list(generator.parameters()), generate, embed, target, settings)
    with torch.no_grad():
        last = [layer for layer in generator.network if isinstance(layer, torch.nn.Conv2d)][-1]
        last.weight.mul_(gain)
        last.bias.mul_(gain).add_(middle)
    for p in generator.parameters():
        p.grad = None
    return generator.eval()


def _descend(parameters, generate, embed, target, settings, n_blocks=1):
    """Move parameters of a generator until the mean features of its rows are near the released ones of their class.

    `generate`: latents and one-hot classes to outputs of the generator.
    `embed`: those to features.
    `target` (n_classes, 2 * n_frequencies): released.
    `n_blocks`: of columns, each of which has its own features before they are multiplied.
    """
    import torch

    wanted, n_classes = torch.tensor(target, dtype=torch.float32), len(target)
    most = _MOST_ROWS if settings.image_shape is None else _MOST_IMAGES
    per_class = max(_LEAST_PER_CLASS, min(most, _BATCH_NUMBERS // (settings.n_frequencies * n_blocks)) // n_classes)
    classes = torch.eye(n_classes).repeat_interleave(per_class, dim=0)
    draws = torch.Generator().manual_seed(int(settings.seed))
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    bar = progress_bar(total=settings.steps, phase="generator", shown=settings.progress)
    with bar, torch.enable_grad():
        for _ in range(settings.steps):
            latents = torch.randn(len(classes), settings.n_components, generator=draws)
            optimizer.zero_grad()
            _discrepancy(embed(generate(latents, classes)), wanted, per_class).backward()
            optimizer.step()
            schedule.step()
            bar.update()


def _near_the_rows(codec):
    """Gain and offset of the generator's output, for which its first rows are about as long as the norm bound allows.

    Features of rows that are many length scales away are unlike all others: no gradient leads from there to the rows.
    Neither does one where a step moves rows by many length scales.
    """
    low, high = codec.box
    center, width = (low + high) / 2, codec.box.width
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
