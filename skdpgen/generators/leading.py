"""Latents along the widest directions of each released Gaussian; the other directions are drawn at random."""

from __future__ import annotations

import numpy as np

from ..utils.blocks import exact_product
from ..utils.file_checks import check_size
from .gaussians import LinearGenerator, full_covariances
from .refined_images import RefinedImages

# Numbers of the slopes of released Gaussians: those of all latents, columns and components. And the largest entry of
# their directions in a file; rows are scaled to a box of at most 1.
MOST_SLOPES, _LARGEST_DIRECTION = 1 << 28, 1e6
# Generators by their name in a release file.
_KINDS = {"linear": LinearGenerator, "refined": RefinedImages}

# Rows that are decoded at a time.
CHUNK_ROWS = 8192


class LeadingDirections:
    """A `LinearGenerator` whose rows are functions of a few latents and of further random draws.

    `directions` (n_components, d, n_latent): widest directions of each component in the generator's latent space, times
    their standard deviations, widest first. Directions beyond the d that there are are zero.
    """

    def __init__(self, generator, directions):
        self.generator, self.directions, self._roots = generator, directions, {}

    def __getstate__(self):
        return {**self.__dict__, "_roots": {}}

    @classmethod
    def of(cls, generator, n_latent):
        """Choose the directions: eigenvectors of the covariances, each with its largest entry positive."""
        covariances = full_covariances(generator.mixture)
        directions = np.zeros((*covariances.shape[:2], n_latent))
        kept = min(n_latent, covariances.shape[1])
        for k, covariance in enumerate(covariances):
            values, vectors = np.linalg.eigh(covariance)
            values, vectors = values[::-1][:kept], vectors[:, ::-1][:, :kept]
            # the sign of an eigenvector is arbitrary, and may differ between machines
            signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(kept)])
            directions[k, :, :kept] = vectors * signs * np.sqrt(np.maximum(values, 0.0))
        return cls(generator, directions)

    @property
    def n_latent(self):
        """Number of latents."""
        return self.directions.shape[2]

    @property
    def n_components(self):
        """Number of Gaussians: those of a class are consecutive."""
        return len(self.directions)

    def n_labels(self, n_classes):
        """Width of the one-hot labels of a network that goes with the Gaussians of so many classes; 0 without any."""
        return self.n_components if n_classes else 0

    def nearest(self, unit_rows, classes):
        """Component of each row: of those of its class, the one whose mean is nearest; one function of each row.

        `unit_rows` (n_rows, n_features): rows whose columns are scaled from their box to [0, 1]. `classes` (n_rows,):
        negative for rows of no class, which have no component either. Returns an array of shape (n_rows,).
        """
        generator, each = self.generator, self.generator.per_class
        if each == 1:
            return classes
        means = np.clip(generator.box.to_unit(generator.component_means), 0.0, 1.0)
        offsets = (0.5 * np.square(means).sum(axis=1)).reshape(-1, each)
        found = np.array(classes, dtype=np.int64)
        for start in range(0, len(found), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            of_class = np.maximum(found[part], 0)
            along = exact_product(unit_rows[part], means.T).reshape(len(of_class), -1, each)
            nearest = (along[np.arange(len(of_class)), of_class] - offsets[of_class]).argmax(axis=1)
            found[part] = np.where(found[part] < 0, -1, of_class * each + nearest)
        return found

    def encode(self, unit_rows, components):
        """Latents of rows under the Gaussian of their component, zeros without one; one function of each row.

        `unit_rows` (n_rows, n_features): as for `nearest`. `components`: shape (n_rows,). Returns an array of shape
        (n_rows, n_latent): the coordinates of a row along the directions, in their standard deviations.
        """
        generator, space = self.generator, self.generator.space
        width = generator.box.width
        origin = (generator.box.low - space.center) @ space.basis
        found = np.zeros((len(unit_rows), self.n_latent), dtype=np.float32)
        for k in range(self.n_components):
            along = self.directions[k] / np.maximum(np.square(self.directions[k]).sum(axis=0), 1e-300)
            matrix, shift = width[:, None] * (space.basis @ along), (origin - generator.mixture.means[k]) @ along
            for part in _chunks(np.flatnonzero(components == k)):
                found[part] = exact_product(unit_rows[part], matrix) + shift
        return found

    def sample(self, classes, rng, shift=None):
        """Draw rows of given classes, as the generator does, and the latents that gave them.

        `classes`: shape (n_rows,).
        `shift`: ``shift(latents, k)`` is added to the scaled rows of component k before they are clipped; None adds
            nothing.
        Returns `x` (n_rows, n_features): scaled rows; `latents` (n_rows, n_latent): independent standard normals;
            `components` (n_rows,).
        """
        generator = self.generator
        components = generator.draw_components(classes, rng)
        latents = rng.standard_normal((len(components), self.n_latent)).astype(np.float32)
        x = np.empty((len(components), len(generator.box.low)))
        with generator.bar(len(x)) as bar:
            for k in np.unique(components):
                rest = self._root_of(int(k))
                where = np.flatnonzero(components == k)
                for part in _chunks(where):
                    along = latents[part] @ self.directions[k].T + rng.standard_normal((len(part), len(rest))) @ rest
                    more = 0.0 if shift is None else shift(latents[part], int(k))
                    x[part] = generator.decode_clipped(k, along, rng, more)
                    bar.update(len(part))
        return x, latents, components

    def unmoved(self):
        """The same without the moves of a `RefinedImages`."""
        return LeadingDirections(self.generator.unmoved(), self.directions)

    def columns(self):
        """What a column is before it is clipped, in units of its box: a normal distribution given the latents.

        Returns `location` (n_components, n_features); `slopes` (n_components, n_latent, n_features): the mean of the
        distribution is ``location + latent @ slopes``; `deviation` (n_components, n_features).
        """
        generator = self.generator
        width, basis = generator.box.width, generator.space.basis
        slopes = np.empty((self.n_components, self.n_latent, len(width)), dtype=np.float32)
        deviation = np.empty((self.n_components, len(width)), dtype=np.float32)
        for k, directions in enumerate(self.directions):  # one after the other: in double precision they are large
            gain = generator.gain[k] / width
            slopes[k] = (basis @ directions).T * gain
            variance = ((basis @ self._left_out(k)) * basis).sum(axis=1) * gain**2
            deviation[k] = np.sqrt(np.maximum(variance, 0.0) + (generator.dither[k] / width) ** 2)
        return generator.box.to_unit(generator.location).astype(np.float32), slopes, deviation

    def to_state(self):
        """Return arrays for a release file."""
        kind = next(name for name, kind in _KINDS.items() if type(self.generator) is kind)
        return {"generator_kind": kind, "generator": self.generator.to_state(), "directions": self.directions}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`; ValueError where the parts do not fit one another, or are too large for memory."""
        if state["generator_kind"] not in _KINDS:
            raise ValueError("the released Gaussians are of an unknown kind")
        generator = _KINDS[state["generator_kind"]].from_state(state["generator"])
        directions = np.asarray(state["directions"], dtype=np.float64)
        if directions.ndim != 3 or directions.shape[:2] != generator.mixture.means.shape:
            raise ValueError("the directions do not fit the released Gaussians")
        if not np.abs(directions).max(initial=0.0) <= _LARGEST_DIRECTION:
            raise ValueError("the directions of the released Gaussians are too large")
        check_size(len(directions), directions.shape[2], len(generator.box.low), most=MOST_SLOPES)
        return cls(generator, directions)

    def _root_of(self, k):
        """Root of what the latents leave out of component `k`; kept, as rows are often drawn in chunks."""
        if k not in self._roots:
            self._roots[k] = _root(self._left_out(k))
        return self._roots[k]

    def _left_out(self, k):
        """Covariance of component `k` without the directions of the latents."""
        own = self.directions[k]
        return full_covariances(self.generator.mixture)[k] - own @ own.T


def _chunks(places):
    """Parts of some rows that are handled at a time, of about equal lengths."""
    return np.array_split(places, -(-len(places) // CHUNK_ROWS)) if len(places) else []


def _root(covariance):
    """Symmetric root of a covariance: one and the same whatever signs the eigenvectors have."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
