"""Conditional generators of synthesizers: how they are made, the rows that train them, and their released model."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from .._parameters import UNIT_CONSTRAINTS
from ..data.arrays import fitting_shape, lowpass_basis
from ..data.frames import FrameRows
from ..utils.file_checks import check_size, check_whole
from ..utils.progress import shows_bars
from ..utils.validation import Interval, as_sizes
from ._base import DATA_CONSTRAINTS
from ._released import CHUNK_ROWS, ReleasedModel
from ._training import learn_codec, release_class_counts, sizes_by_counts

# Cosines along each side of an image, by default. The noise grows with the root of the number of coordinates, and most
# of what tells classes of images apart is smooth.
FREQUENCIES = 8
# Of the generator's outputs, for rows that are no images: log-odds near the ends of the range are large.
_GAIN = 4.0
# Upper bound of the activations of a generator of images for each pixel of a coarse image; 50 to 55 were measured.
ACTIVATIONS_OF_A_PIXEL = 100
# Of the parameters that all generators of `CoordinateSettings` have.
GENERATOR_CONSTRAINTS = {
    **DATA_CONSTRAINTS,
    **UNIT_CONSTRAINTS,
    "hidden_layer_sizes": ["array-like"],
    "learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
    "average": [Interval(Real, 0, 1, closed="left")],
    "image_shape": [tuple, list, None],
    "n_frequencies": [Interval(Integral, 1, 1024, closed="both"), None],
}


@dataclass(frozen=True, eq=False, kw_only=True)
class CoordinateSettings:
    """A generator that learns in public coordinates, and its training."""

    n_components: int
    hidden_layer_sizes: tuple
    image_shape: tuple | None
    n_frequencies: int  # cosines along each side of an image
    learning_rate: float
    average: float
    training: object  # its steps, with a method `phase`
    seed: int
    progress: bool

    @classmethod
    def of(cls, given, seed, *, n_frequencies, **own):
        """From the parameters of a synthesizer, of which `own` takes the place; ValueError for those without effect."""
        if given["image_shape"] is None and given["n_frequencies"] is not None:
            raise ValueError("n_frequencies= is used only with image_shape=: leave it out")
        names = ("n_components", "image_shape", "learning_rate", "average")
        return cls(
            **{name: given[name] for name in names if name not in own},
            hidden_layer_sizes=as_sizes(given["hidden_layer_sizes"], "hidden_layer_sizes"),
            n_frequencies=given["n_frequencies"] or n_frequencies,
            seed=seed,
            progress=shows_bars(given["progress"]),
            **own,
        )

    def fitted_to(self, rows, n_frequencies=None):
        """The settings with a checked shape of images; ValueError where the shape does not fit the rows."""
        if self.image_shape is None:
            return self
        shape = fitting_shape(self.image_shape, rows.n_features)
        if (most := min(shape[:2])) < (n_frequencies or 1):
            raise ValueError(f"n_frequencies={n_frequencies} must be at most {most}, the side of an image")
        return replace(self, image_shape=shape)

    def make_generator(self, codec, width, n_levels):
        """Make the generator that is trained: a function of public and released facts alone.

        `width`: columns of `training_rows`. Returns `generator`; `coordinates`: the `basis` and `gains` of its outputs:
        see `GeneratedRows`.
        """
        from ..nn._generated_rows import emphasize_classes

        basis = None if self.image_shape is None else lowpass_basis(self.image_shape, self.n_frequencies)
        n_outputs = width if basis is None else basis.shape[1]
        layers = {"n_hidden": self.hidden_layer_sizes, "n_levels": n_levels}
        generator = make_generator(self.n_components, codec.n_classes, n_outputs, self.seed, **layers)
        emphasize_classes(generator)
        return generator, {"basis": basis, "gains": self._gains() if n_levels is None else 1.0}

    def _gains(self):
        """Public factors of the generator's outputs, for log-odds of pixels as large as those of images.

        The coordinates of images fall with their frequency, and the lowest ones sum over all pixels.
        """
        if self.image_shape is None:
            return _GAIN
        height, width, *channels = self.image_shape
        rows, columns = (np.arange(min(side, self.n_frequencies)) for side in (height, width))
        gains = (height * width) ** 0.5 / (1 + np.hypot(rows[:, None], columns))
        return np.repeat(gains.ravel(), channels[0] if channels else 1)


class GeneratorModel(ReleasedModel):
    """Released state of a GAN and its relatives: the codec, the counts of the classes, and the generator.

    `generator`: on the CPU, in evaluation mode. `component_weights` (n_components,): of classes, where the model is
    conditional on them, else one.
    """

    def __init__(self, codec, generator, row_count, component_weights):
        super().__init__(codec, row_count, component_weights)
        self.generator = generator

    @classmethod
    def of_coordinates(cls, codec, generator, row_count, component_weights, coordinates, noise):
        """The model of a trained generator in coordinates; `noise` is what the training returned of its noise."""
        from ..nn._generated_rows import to_rows

        generator = to_rows(generator, **coordinates) if generator.n_levels is None else generator
        model = cls(codec, generator.eval(), row_count, component_weights)
        model.gradient_noise = noise
        return model

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return self.generator.n_latent

    def draw(self, components, rng):
        """Scaled rows, or codes of levels, of given classes."""
        return self.draw_outputs(self._logits(np.asarray(components, dtype=np.int64), rng), rng)

    def _logits(self, classes, rng):
        import torch

        from ..nn._generators import one_hot

        latent = torch.from_numpy(rng.standard_normal((len(classes), self.n_latent)).astype(np.float32))
        labels = one_hot(classes, self.codec.n_classes)
        parts = []
        with torch.inference_mode():
            for i in range(0, len(latent), CHUNK_ROWS):
                here = slice(i, i + CHUNK_ROWS)
                parts.append(self.generator.logits(latent[here], None if labels is None else labels[here]).numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.generator.n_outputs), dtype=np.float32)

    def _state(self):
        return {"architecture": self.generator.architecture, "parameters": self.generator.arrays()}

    @classmethod
    def _restore(cls, codec, state):
        from ..nn._generators import ConditionalGenerator

        architecture = dict(state["architecture"])
        check_size(check_whole(architecture["n_latent"], "n_latent", 1), CHUNK_ROWS)
        width = int(codec.n_levels.sum()) if state["kind"] == "frame" else len(codec.scaling.lower)
        shape = architecture.get("image_shape")
        if shape is not None and math.prod(check_whole(side, "image_shape", 1) for side in shape) != width:
            raise ValueError("the image_shape of the generator does not fit the columns that the file describes")
        generator = ConditionalGenerator.restored(architecture, state["parameters"])
        if (generator.n_classes, generator.n_outputs) != (codec.n_classes, width):
            raise ValueError("the generator does not fit the columns that the file describes")
        return cls(codec, generator, state["row_count"], state["component_weights"])


def make_generator(n_components, n_classes, n_outputs, seed, device=(), **sizes):
    """Make a `ConditionalGenerator`, which these public arguments determine."""
    from ..dpsgd._seeding import torch_seeded
    from ..nn._generators import ConditionalGenerator

    with torch_seeded(seed, device):
        return ConditionalGenerator(n_components, n_classes, n_outputs, **sizes)


def n_weights(*widths):
    """Number of weights of dense layers between these widths, biases left out."""
    return sum(a * b for a, b in itertools.pairwise(widths))


def image_sizes(n_components, n_labels, image_shape):
    """Return the numbers of a coarse generator's parameters, and of the values and pixels of an averaged image.

    Nothing is allocated.
    """
    import torch

    from ..nn._generators import ConditionalGenerator
    from ..nn._networks import coarse_pixels

    with torch.device("meta"):
        generator = ConditionalGenerator(
            n_components, n_labels, math.prod(image_shape), image_shape=image_shape, coarse=True
        )
        n_seen = coarse_pixels(image_shape)[1]
    return sum(p.numel() for p in generator.parameters()), n_seen, n_seen // (*image_shape, 1)[2]


def learn_rows(rows, fit):
    """Make the releases before the training: facts that were not declared, and the counts of the classes.

    Returns the codec, then what `training_rows` returns of private rows, and `sizes_by_counts` of released counts.
    """
    codec = learn_codec(rows, fit)
    x, classes, n_levels = training_rows(rows, codec)
    counts = release_class_counts(codec, len(x), classes, fit, rows.unit_sizes)
    return codec, x, classes, n_levels, *sizes_by_counts(counts, rows, fit)


def training_rows(rows, codec):
    """Rows as the networks see them: in [0, 1], or the one-hot levels of a table; private.

    `codec`: released. Returns `x` (n_rows, width); `classes` (n_rows,): negative for rows of no class; zeros without
    classes; `n_levels`: levels of each column of a table.
    """
    if isinstance(rows, FrameRows):
        codes, classes = codec.codes(rows.frame)
        classes = np.zeros(len(codes), dtype=np.int64) if classes is None else np.asarray(classes)
        return codec.one_hot(codes).astype(np.float32, copy=False), classes, codec.n_levels.tolist()
    return codec.box.to_unit(codec.scale(rows.X)).astype(np.float32), rows.codes, None
