"""Arrays in and out: the private rows of a fit, and the released codec that decodes samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np
from scipy.fft import idct
from scipy.linalg import block_diag

from ..accounting import Phase
from ..exceptions import InvalidInputError
from ..mechanisms import total
from ..mechanisms._gaussian import row_norms
from ..tabular import sample_levels
from ..utils.blocks import exact_product, map_blocks
from ..utils.callers import warn_user
from ..utils.file_checks import check_size, check_whole
from ..utils.printing import listed
from ..utils.validation import as_sizes
from .image_poses import HIGHEST, LOWEST, N_POSE, POSE_WEIGHT, posed, poses_of, stand_upright
from .labels import Labels, check_labels, class_for_all, is_numeric_target, label_codes, learn_classes
from .rows_per_unit import max_rows_phases, row_count_phases
from .scaling import RowScaling, check_bounds, check_inside, learn_scaling, scaling_phases
from .units import keep_rows, n_rows_of_units

# Pixels along a side from which models of images are better than models of columns (measured on MNIST: a classifier
# gains three hundredths with 28, and nothing with 14 or less).
_SMALLEST_SIDE = 16
# Images whose pose is measured, or restored, at a time.
_POSED_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class ArrayCodec:
    """The public or released map between rows and the vectors that are modelled."""

    scaling: RowScaling  # map to the unit box; a numeric y is the last column
    labels: Labels | None = None  # public or released facts about y; None without y
    image_shape: tuple | None = None
    n_frequencies: int | None = None  # cosines along each side of an image; see `lowpass_basis`
    # whether the model has one prior for each class; otherwise classes are one-hot columns at the end of the rows
    conditional: bool = True
    # cosines along each side of the differences between three channels; see `lowpass_basis`
    n_colour: int | None = None
    # whether the vectors are of upright images, with the pose of each in the columns at the end
    upright: bool = False

    @cached_property
    def lowpass(self):
        """Public orthonormal basis of images, shape (n_features, n_kept), or None."""
        if self.image_shape is None:
            return None
        basis = lowpass_basis(self.image_shape, self.n_frequencies, self.n_colour)
        extra = self.n_label_columns + self.n_pose_columns
        return basis if not extra else block_diag(basis, np.eye(extra))

    @property
    def n_label_columns(self):
        """Number of one-hot columns of the classes; 0 if the model is conditional on them."""
        return 0 if self.conditional or self.classes is None else len(self.classes)

    @property
    def n_pose_columns(self):
        """Number of columns of the pose of an image; 0 if images are modelled as they are."""
        return N_POSE if self.upright else 0

    @staticmethod
    def weights(n_pixels, upright):
        """Weight of each column in scaled rows, or of all; see `RowScaling`."""
        return np.repeat([1.0, POSE_WEIGHT], [n_pixels, N_POSE]) if upright else 1.0

    @property
    def n_features(self):
        """Number of columns of X, without those of y and of the pose."""
        numeric = self.labels is not None and self.labels.classes is None
        return len(self.scaling.lower) - self.n_label_columns - self.n_pose_columns - numeric

    @property
    def classes(self):
        """Classes of y, or None."""
        return None if self.labels is None else self.labels.classes

    @property
    def row_norm(self):
        """Norm to which encoded rows are clipped: at most that of a corner of the box, whatever was declared."""
        return float(np.clip(self.scaling.l2_bound, 1e-60, self.scaling.corner))  # its 4th power must not be 0

    @property
    def n_classes(self):
        """Number of classes of y if the model is conditional on them, else 0."""
        return len(self.classes) if self.conditional and self.classes is not None else 0

    @property
    def box(self):
        """The `Box` of scaled rows."""
        return self.scaling.box

    def with_poses(self, X):
        """Rows in their own units as they are modelled: with `upright`, upright images followed by their poses."""
        if not self.upright:
            return X
        found = np.empty((len(X), len(self.scaling.lower)))
        n, (low, width) = self.n_features, self._pixel_range
        for start in range(0, len(X), _POSED_ROWS):
            part = slice(start, start + _POSED_ROWS)
            unit = np.clip((np.asarray(X[part], dtype=np.float64) - low) / width, 0.0, 1.0)
            poses = poses_of(unit, self.image_shape)
            found[part, :n] = low + width * stand_upright(unit, poses, self.image_shape)
            found[part, n:] = poses
        return found

    def without_poses(self, rows):
        """Undo `with_poses`."""
        if not self.upright:
            return rows
        n, (low, width) = self.n_features, self._pixel_range
        return low + width * posed((rows[:, :n] - low) / width, rows[:, n:], self.image_shape)

    @property
    def _pixel_range(self):
        """Lowest value of each pixel, and the width of its range."""
        n = self.n_features
        return self.scaling.lower[:n], (self.scaling.upper - self.scaling.lower)[:n]

    def scale(self, X):
        """Rows in the unit box, shape (n_samples, n_features), of rows as they are modelled."""
        return self.scaling.transform(X)

    def encode(self, X):
        """Vectors that are modelled: scaled rows, low-pass filtered if they are images."""
        scaled = self.scaling.transform(X)
        return scaled if self.lowpass is None else exact_product(scaled, self.lowpass)

    def decode(self, scaled, codes, rng):
        """Rows, or (rows, y), from scaled rows and class codes."""
        rows = self.without_poses(self.scaling.inverse_transform(scaled))
        if self.labels is None:
            return rows
        if self.n_label_columns:
            codes = sample_levels(rows[:, -self.n_label_columns :], rng)
            rows = rows[:, : -self.n_label_columns]
        if self.labels.classes is None:
            return rows[:, :-1], self.labels.decode(rows[:, -1])
        return rows, self.labels.decode(codes)

    def class_codes(self, y):
        """Codes of the classes of `y`; ValueError for a class that the model does not have."""
        codes = label_codes(y, self.classes)
        if (codes < 0).any():
            raise ValueError(f"y contains a class that the model does not have; it has {listed(self.classes)}")
        return codes

    def to_state(self):
        """Return plain values and arrays for a release file."""
        return {
            "kind": "array",
            "lower": self.scaling.lower,
            "upper": self.scaling.upper,
            "l2_bound": self.scaling.l2_bound,
            "labels": None if self.labels is None else self.labels.to_state(),
            "image_shape": None if self.image_shape is None else list(self.image_shape),
            "n_frequencies": self.n_frequencies,
            "n_colour": self.n_colour,
            "conditional": self.conditional,
            "upright": self.upright,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        lower, upper = state["lower"], state["upper"]
        if lower.ndim != 1 or lower.shape != upper.shape or not (lower < upper).all() or not state["l2_bound"] > 0:
            raise ValueError("the bounds of the columns are not ordered")
        if state["image_shape"] is not None:
            check_size(len(lower), check_whole(state["n_frequencies"], "n_frequencies", 1, 10_000) ** 2)
            check_size(*state["image_shape"])
        if (n_colour := state.get("n_colour")) is not None:  # files of earlier versions have none
            if not in_colour(state["image_shape"] or ()):
                raise ValueError("only images of three channels have differences of colour")
            check_whole(n_colour, "n_colour", 1, state["n_frequencies"])
        upright = state.get("upright", False)  # files of earlier versions have images as they are
        if not isinstance(upright, bool) or (
            upright and len(lower) != math.prod(state["image_shape"] or (0,)) + N_POSE
        ):
            raise ValueError("the columns of upright images are those of their shape and of a pose")
        return cls(
            RowScaling(lower, upper, state["l2_bound"], cls.weights(len(lower) - N_POSE, upright)),
            None if state["labels"] is None else Labels.from_state(state["labels"]),
            None if state["image_shape"] is None else tuple(state["image_shape"]),
            state["n_frequencies"],
            state["conditional"],
            n_colour,
            upright,
        )


class ArrayRows:
    """The private rows of one fit, validated; dropped when the fit ends.

    `X` (n_samples, n_features): finite numbers, of any numeric dtype.
    `y`: shape (n_samples,).
    `bounds`, `l2_bound`, `classes`, `target_type`, `image_shape`, `on_invalid`: parameters of the synthesizer.
    `conditional`: see `ArrayCodec`.
    `ids`: where a row is not the unit: `choose` then comes before all queries.
    """

    unit_sizes = None  # where units count 1, the number of rows used of the unit of each row
    unit_codes = None  # where a row is not the unit, the number of the unit of each row used

    def __init__(
        self, X, y, *, bounds, l2_bound, classes, target_type, image_shape, on_invalid, conditional=True, ids=None
    ):
        self.n_features = X.shape[1]
        self.image_shape = fitting_shape(image_shape, self.n_features)
        pairs = check_bounds(bounds, self.n_features)
        if on_invalid == "raise":
            check_inside(X, pairs)
        if y is None and (classes is not None or target_type is not None):
            raise InvalidInputError("classes= and target_type= need y (or the target of a DataFrame)")
        self.codes = self.labels = self.y = self._n_per_unit = None
        self._ids, self.unit = ids, None if ids is None else ids.unit
        if y is not None:
            numeric = is_numeric_target(y, target_type)
            if numeric and classes is not None:
                raise InvalidInputError(
                    "classes= needs a categorical y: give y as integers or text, or leave classes= out"
                )
            self.y, self.labels = check_labels(y, len(X), numeric=numeric, classes=classes)
            if numeric:
                X = np.column_stack([X, self.y])
                pairs = None if pairs is None else tuple(np.append(side, np.nan) for side in pairs)
        self.X, self.bounds, self.l2_bound, self.conditional = X, pairs, l2_bound, conditional
        self.numeric_target = self.labels is not None and X.shape[1] != self.n_features

    @property
    def public_assumptions(self):
        """Facts that the fit takes for public, for the privacy card."""
        return [] if self.labels is None else ["kind (dtype) of y"]

    def __len__(self):
        return len(self.X)

    def choose(self, key):
        """Choose the rows that are used, where a row is not the unit; after the charge, before all queries."""
        if self.unit is None:
            return
        kept = keep_rows(self._ids, key)
        self.X, self.unit_sizes, self._n_per_unit = self.X[kept.rows], kept.unit_sizes, kept.n_per_unit
        self.unit_codes = kept.codes
        self.y, self._ids = None if self.y is None else self.y[kept.rows], None

    def rows_per_unit(self):
        """Yield the number of rows of each unit, before any is left out."""
        yield n_rows_of_units(self._ids.codes)

    def settle(self, unit):
        """Use as many rows of a unit as was learned; before they are chosen."""
        self.unit, self._ids = unit, replace(self._ids, unit=unit)

    def kept_rows(self):
        """Number of rows that are used: a BoundedSum of one contribution per unit."""
        return total(self._n_per_unit, self.unit.max_rows, of_units=True)

    def check_components(self, n_components):
        """Refuse more latent dimensions than there are columns."""
        limit = self.X.shape[1]
        if isinstance(n_components, Integral) and n_components > limit:
            raise InvalidInputError(f"n_components={n_components} must be at most {limit}")

    def network_shape(self, n_components):
        """Numbers of columns and latents of the network, and whether they are known before classes are learned."""
        width = self.X.shape[1]
        if not self.conditional and self.labels is not None and not self.numeric_target:
            width += len(self.labels.classes or ())
        latent = {"auto": 60, None: width}.get(n_components, n_components)
        return width, min(latent, width), self.image_shape is None and (self.conditional or not self.learns_classes)

    @property
    def learns_classes(self):
        """Whether classes are learned, so that the delta of a threshold is charged; public."""
        return self.labels is not None and self.labels.classes is None and not self.numeric_target

    @property
    def undeclared(self):
        """Parameters whose facts are learned, such as "bounds="; public."""
        open_ = {"bounds=": self.bounds is None, "l2_bound=": self.l2_bound is None, "classes=": self.learns_classes}
        return [name for name, learned in open_.items() if learned]

    def phases(self, share):
        """Return the releases that `learn` makes."""
        learned = scaling_phases(self.bounds, self.l2_bound, share)
        learned = [*max_rows_phases(self.unit, share), *learned, *row_count_phases(self.unit, share)]
        return [*learned, Phase("classes", share)] if self.learns_classes else learned

    def encoder_phases(self, share, *, class_norms=False):
        """Return the releases of the moments: class means, norms about them, second moments; grey pixels of images.

        One clip bound for all classes needs less budget than the norm distribution of each class (`class_norms`).
        """
        norm = 0.04 if class_norms else 0.01
        phases = [Phase("mean", 0.06 * share), Phase("norm", norm * share), Phase("moments", (0.94 - norm) * share)]
        return phases if self.image_shape is None else [*phases, Phase("greys", 0.005 * share)]

    may_have_triples = may_look_twice = may_count_again = False  # see `FrameRows`

    @property
    def may_have_class_norms(self):
        """Whether norms may be released class by class: rows of images have about equal norms; public."""
        return self.image_shape is None

    @property
    def may_have_subclusters(self):
        """Whether the rows are images of classes, which may be cut into sub-clusters; public."""
        return self.image_shape is not None and self.conditional and self.labels is not None

    def learn(
        self, noise_multipliers, extra_delta, rng, neighboring, *, n_frequencies=None, n_colour=None, upright=False
    ):
        """Release what was not declared, and return the codec.

        `n_frequencies`, `n_colour`, `upright`: see `ArrayCodec`; upright images need declared bounds.
        """
        labels = self.labels
        if self.learns_classes:
            noise = noise_multipliers["classes"]
            key = str if self.y.dtype == object else None
            options = {"key": key, "unit_sizes": self.unit_sizes}
            if self.image_shape is None:  # else y can be no quantity
                options["dtype"] = labels.dtype
            classes = learn_classes(self.y, noise, extra_delta, rng, neighboring, **options)
            classes = classes or class_for_all(labels.dtype)
            labels = Labels(classes, labels.dtype, labels.series, labels.name)
        self._follow(labels)
        blank = ArrayCodec(None, labels, self.image_shape, n_frequencies, self.conditional, n_colour, upright)
        if upright:
            self._stand_upright(blank)
        project = None if blank.lowpass is None else lambda rows: exact_product(rows, blank.lowpass)
        weight = ArrayCodec.weights(self.n_features, upright)
        options = {"project": project, "unit_sizes": self.unit_sizes, "weight": weight}
        scaling = learn_scaling(self.X, self.bounds, self.l2_bound, noise_multipliers, rng, neighboring, **options)
        return replace(blank, scaling=scaling)

    def _stand_upright(self, codec):
        """Replace the images by upright ones, and append their poses."""
        self.bounds = tuple(np.append(side, edge) for side, edge in zip(self.bounds, (LOWEST, HIGHEST)))
        self.X = replace(codec, scaling=RowScaling(*self.bounds, 1.0)).with_poses(self.X)

    def follow(self, codec):
        """Encode the rows by a codec that was released before: `learn` without its releases."""
        self._follow(codec.labels)

    def _follow(self, labels):
        if self._ids is not None:
            raise RuntimeError("rows of units are summed only after at most max_rows_per_unit of each were chosen")
        self.codes = np.zeros(len(self.X), dtype=np.int64)
        if labels is not None and labels.classes is not None:
            self._use_classes(label_codes(self.y, labels.classes), len(labels.classes))

    def _use_classes(self, codes, n_classes):
        if n_classes == 1:  # the class of all rows
            codes = np.zeros_like(codes)
        if self.conditional:
            self.codes = codes
            return
        self.X = np.column_stack([self.X, (codes[:, None] == np.arange(n_classes)).astype(np.float64)])
        if self.bounds is None:
            self.bounds = (np.full(self.n_features, np.nan),) * 2
        self.bounds = tuple(np.append(side, np.full(n_classes, edge)) for side, edge in zip(self.bounds, (0.0, 1.0)))

    def residual_norms(self, codec, centers):
        """Distance of each encoded row from the center of its class; of the first class, for a row of no class."""
        norms = np.empty(len(self.X))
        for part, rows in map_blocks(codec.encode, self.X):
            norms[part] = row_norms(rows - centers[np.maximum(self.codes[part], 0)])
        return norms

    def grey_pixels(self, codec):
        """Number of pixels of each image that are more than a tenth of the range away from both of its ends."""
        low, high = (side[: self.n_features] for side in (codec.scaling.lower, codec.scaling.upper))
        low, high = low + 0.1 * (high - low), high - 0.1 * (high - low)
        greys = np.empty(len(self.X), dtype=np.int64)
        pixels = self.X[:, : self.n_features]
        for part, count in map_blocks(lambda rows: ((rows > low) & (rows < high)).sum(axis=1), pixels):
            greys[part] = count
        return greys

    def scaled_with_labels(self, codec):
        """Scaled rows, float32, with one-hot classes if the model is conditional."""
        scaled = codec.scale(self.X).astype(np.float32)
        if not codec.n_classes:
            return scaled
        one_hot = self.codes[:, None] == np.arange(codec.n_classes)
        return np.concatenate([scaled, one_hot], axis=1, dtype=np.float32)


def fitting_shape(image_shape, n_features):
    """Return `image_shape` as a tuple of two or three positive integers whose product is `n_features`, or None."""
    if image_shape is None:
        return None
    shape = as_sizes(image_shape, "image_shape")
    if len(shape) not in (2, 3) or math.prod(shape) != n_features:
        raise InvalidInputError(
            f"image_shape={image_shape!r} does not fit rows of {n_features} values: give two or three sizes with this "
            "product"
        )
    return shape


def check_image_shape(image_shape, n_features):
    """`fitting_shape`, with a warning where the channels may come first: for one call in each fit."""
    shape = fitting_shape(image_shape, n_features)
    if shape is not None and len(shape) == 3 and shape[0] in (1, 3, 4) and min(shape[1:]) > 4:
        height, width = shape[1:]
        warn_user(
            f"image_shape={shape} stands for images of {shape[0]} x {height} pixels in {width} channels. If the "
            f"channels come first, as in torch, give X.reshape(-1, {shape[0]}, {height}, {width}).transpose(0, 2, 3, 1)"
            f".reshape(len(X), -1) and image_shape={(height, width) if shape[0] == 1 else (height, width, shape[0])}"
        )
    return shape


def point_out_pixels(dtype, bounds):
    """Warn of images without the range of their pixels, and of a range that does not fit their dtype; all public.

    `bounds`: as `check_bounds` returns them.
    """
    if bounds is None:
        warn_user(
            "image_shape= needs bounds=: the range of the pixels, such as (0, 255) or (0, 1). Learned bounds are those "
            "of each pixel by itself, and images with such pixels can rarely be recognized"
        )
    elif dtype.kind in "iu" and (bounds[1] <= 1).all():
        low, high = bounds[0].min(), bounds[1].max()
        warn_user(
            f"X holds integers ({dtype}), and bounds=({low:g}, {high:g}) clips each pixel to {high:g} at most. Declare "
            "the range of the pixels, such as bounds=(0, 255); give pixels that are 0 or 1 as X.astype(bool)"
        )


def point_out_truth_values(dtype):
    """Warn of rows of truth values that are no images: an array is modelled as numbers; its dtype is public."""
    if dtype.kind == "b":
        warn_user(
            "X is an array of truth values (bool), and samples of an array are floats, which are rarely exactly 0 or "
            "1: give pandas.DataFrame(X), of which samples have truth values too"
        )


def in_colour(image_shape):
    """Whether images have three channels, which are taken for red, green and blue; public."""
    return tuple(image_shape[2:]) == (3,)


def point_out_images(bounds, give="declare "):
    """Warn where rows may be images that nobody declared: by the number of columns and by their bounds, both public.

    `bounds` (n_features,): as declared; nan where they are not. `give`: what to do, before the parameter.
    """
    if bounds is None:
        return
    low, high = (np.asarray(side) for side in bounds)
    # nan differs from itself
    if not len(low) or (low != low[0]).any() or (high != high[0]).any():
        return
    for shape in _square_shapes(len(low)):
        warn_user(
            f"{len(low)} columns with one declared range, {low[0]:g} to {high[0]:g}: if the rows are images, "
            f"{give}image_shape={shape}, without which much of their quality is lost; else ignore this"
        )


def point_out_images_of_one_dtype(n_columns, dtype):
    """Warn where the columns of a table without declared bounds may be pixels, by their number and their dtype."""
    for shape in _square_shapes(n_columns):
        warn_user(
            f"{n_columns} columns of one dtype, {dtype}: if the rows are images, give them as an array (X.to_numpy()), "
            f"with the classes as y, and declare image_shape={shape} and bounds=, the range of the pixels, without "
            "which much of their quality is lost; else ignore this"
        )


def _square_shapes(n_columns):
    """Shapes of square images, grey or of three channels, that have so many values and are not tiny."""
    for channels in (1, 3):
        side = math.isqrt(n_columns // channels)
        if side >= _SMALLEST_SIDE and side * side * channels == n_columns:
            yield (side, side) if channels == 1 else (side, side, channels)


def lowpass_basis(image_shape, n_frequencies, n_colour=None):
    """Return a public orthonormal basis of smooth images: the lowest frequencies of the discrete cosine transform.

    The projection does not depend on the data and does not increase the norm of a row. It leaves fewer and larger
    coefficients: the noise in the principal components falls with the square root of their number.

    `n_frequencies`: cosines along each side, at most its length.
    `n_colour`: images of three channels: cosines along each side of the two differences between channels, at most
        `n_frequencies`; those of their sum are `n_frequencies`. None: `n_frequencies` of each channel.
    Returns an array of shape (height * width [* channels], n_kept): orthonormal columns. Images are flattened by rows,
        channels last.
    """
    basis = _cosines(image_shape, n_frequencies)
    if len(image_shape) == 2:
        return basis
    if n_colour is None:
        return np.kron(basis, np.eye(image_shape[2]))
    grey, *differences = idct(np.eye(3), norm="ortho", axis=0).T[:, :, None]
    return np.hstack([np.kron(basis, grey), np.kron(_cosines(image_shape, n_colour), np.hstack(differences))])


def _cosines(image_shape, n_frequencies):
    rows, columns = (idct(np.eye(side), norm="ortho", axis=0)[:, :n_frequencies] for side in image_shape[:2])
    return np.kron(rows, columns)
