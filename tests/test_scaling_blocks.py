"""What BLAS returns for one row must not hang on how many other rows there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from skdpgen.data.arrays import ArrayCodec, lowpass_basis
from skdpgen.data.scaling import RowScaling, _norms, learn_norm_bound
from skdpgen.mechanisms import class_first_moments, class_moments, exact_value, lattice_rows
from skdpgen.mixture import GaussianMixtureParameters, dp_em
from skdpgen.synthesizers._dp_merf import RandomFeatures
from skdpgen.testing import seeded_noise
from skdpgen.utils.blocks import exact_product, map_blocks
from skdpgen.utils.noise import make_noise_generator

BASIS = lowpass_basis((28, 28), 14)


def _project(rows):
    return rows @ BASIS


@pytest.mark.parametrize("n", [1, 2, 3, 5, 17, 40, 4095, 4096, 4097, 4100, 4120])
def test_a_joining_row_leaves_the_norms_of_the_others_bit_for_bit(n):
    # constant images: their norms are exactly 28, on what would be an edge of the public grid
    X = np.full((n + 1, 784), 255, dtype=np.uint8)
    scaling = RowScaling(np.zeros(784), np.full(784, 255.0), 1.0)
    np.testing.assert_array_equal(_norms(X, scaling, _project)[:n], _norms(X[:n], scaling, _project))


@pytest.mark.parametrize("n", [3, 100, 5000])
def test_a_joining_row_moves_projected_moments_by_its_own_contribution_alone(n, rng):
    X = rng.normal(size=(n + 1, 784)) / 28
    codes = np.arange(n + 1) % 3
    query = {"transform": _project, "chunk_rows": 512}
    moved = class_moments(X, codes, 3, **query).value - class_moments(X[:n], codes[:n], 3, **query).value
    alone = class_moments(X[n:], codes[n:], 3, **query).value
    np.testing.assert_array_equal(moved, alone)


@pytest.mark.parametrize("d", [1, 5, 784, 4096, 4097, 9216, 20_000])
def a_norm_is_one_function_of_its_row(d):
    rows = np.random.default_rng(0).normal(size=(40, d))
    beside = lattice_rows(rows, 1.0, None)
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(lattice_rows(row[None], 1.0, None)[0], beside[number])


test_a_norm_is_one_function_of_its_row = a_norm_is_one_function_of_its_row


def test_norms_do_not_follow_the_layout_of_the_rows():
    """A frame of one dtype lies column by column; the last block of its rows, which is padded, does not."""
    X = np.random.default_rng(0).normal(size=(5000, 30))
    scaling = RowScaling(np.full(30, -5.0), np.full(30, 5.0), 1.0)
    np.testing.assert_array_equal(_norms(np.asfortranarray(X), scaling, None), _norms(X, scaling, None))


def test_a_second_row_of_a_class_leaves_the_steps_of_the_first():
    """Rows whose clipped values lie on the edge of a step of the lattice, to the last bit."""
    d, rest, step = 9216, 4608, 2.0**-18
    edge, limit = 2000 * step, 1 - 1e-12 - d * 2.0**-52
    for seed, ulps in itertools.product((2, 5, 9, 13), range(-8, 9)):
        row = np.random.default_rng(seed).normal(size=d) / 10
        row[:rest] = edge * (row[rest:] @ row[rest:] / (limit**2 - rest * edge**2)) ** 0.5 * (1 + ulps * 2.0**-52)
        X, codes = np.stack([row, np.eye(d)[0]]), np.zeros(2, dtype=np.int64)
        moved = class_first_moments(X, codes, 1).value - class_first_moments(X[:1], codes[:1], 1).value
        np.testing.assert_array_equal(moved, class_first_moments(X[1:], codes[1:], 1).value)


class _Watched(GaussianMixtureParameters):
    """A mixture that keeps how EM computes the responsibilities of rows under it."""

    def responsibilities(self, X, **how):
        self.__dict__["how"] = how
        return super().responsibilities(X, **how)


def whitened_rows_of_em_follow_no_order_of_addition(d):
    rng = np.random.default_rng(0)
    rows, spread = rng.normal(size=(200, d)), rng.normal(size=(2, d, 2 * d))
    start = _Watched(np.full(2, 0.5), rng.normal(size=(2, d)) / d, spread @ spread.transpose(0, 2, 1), "full")
    with seeded_noise(quiet=True):
        how = {"noise_multiplier": 1.0, "rng": make_noise_generator(), "neighboring": "add_or_remove_one"}
        dp_em(rows, start, n_iter=1, radius=3.0, **how)
    product, matrix = start.how["product"], start._whitening[0][0].T
    rows *= 3 / np.linalg.norm(rows, axis=1, keepdims=True)
    found = product(rows, matrix)
    np.testing.assert_array_equal(product(rows[:, ::-1], matrix[::-1]), found)
    np.testing.assert_allclose(found, rows @ matrix, atol=1e-4 * np.abs(matrix).max())


test_whitened_rows_of_em_follow_no_order_of_addition = pytest.mark.parametrize("d", [3, 30, 300])(
    whitened_rows_of_em_follow_no_order_of_addition
)


@pytest.mark.parametrize("d", [60, 197])
def test_the_place_of_a_row_leaves_its_responsibilities(d):
    """BLAS takes another kernel for the last rows of some blocks, also of blocks of one shape."""
    rng = np.random.default_rng(0)
    rows, spread = rng.normal(size=(8192, d)) / 20, rng.normal(size=(2, d, 2 * d)) / 10 / (2 * d) ** 0.5
    start = _Watched(np.full(2, 0.5), rng.normal(size=(2, d)) / 100, spread @ spread.transpose(0, 2, 1), "full")
    with seeded_noise(quiet=True):
        how = {"noise_multiplier": 1.0, "rng": make_noise_generator(), "neighboring": "add_or_remove_one"}
        dp_em(rows, start, n_iter=1, **how)
    found = start.responsibilities(rows, **start.how)
    for places in range(8, 200, 8):  # the last rows of a block are other ones each time
        rolled = start.responsibilities(np.roll(rows, places, axis=0), **start.how)
        np.testing.assert_array_equal(np.roll(rolled, -places, axis=0), found)


def test_responsibilities_of_em_are_computed_in_parts_of_one_shape():
    """Few rows at once stay in the cache; how many stand beside a row still does not show."""
    rng = np.random.default_rng(0)
    rows, seen = rng.normal(size=(9000, 3)) / 9, []

    class Counted(_Watched):
        def responsibilities(self, X, **how):
            seen.append(len(X))
            return super().responsibilities(X, **how)

    start = Counted(np.full(2, 0.5), rng.normal(size=(2, 3)) / 9, np.array([np.eye(3), np.eye(3) / 4]), "full")
    with seeded_noise(quiet=True):
        how = {"noise_multiplier": 1.0, "rng": make_noise_generator(), "neighboring": "add_or_remove_one"}
        dp_em(rows, start, n_iter=1, **how)
    assert len(seen) > 2
    assert len(set(seen)) == 1


def test_unpadded_blocks_would_be_seen(rng):
    """The claim is about padding: without it, the last rows of a chunk are rounded otherwise on this machine or not."""
    X = rng.normal(size=(4100, 50))
    padded = np.concatenate([image for _, image in map_blocks(lambda block: block, X)])
    np.testing.assert_array_equal(padded, X)
    shapes = []
    list(map_blocks(lambda block: shapes.append(block.shape) or block, X))
    assert shapes == [(4096, 50)] * 2


def test_edges_of_the_norm_histogram_are_at_a_random_place():
    norms = np.full(5000, 28.0)
    with seeded_noise(quiet=True):
        bounds = {learn_norm_bound(norms, 28.0, 1.0, make_noise_generator(), "add_or_remove_one") for _ in range(5)}
    assert len(bounds) == 5
    assert all(28.0 <= bound <= 28.0 * 2**0.125 for bound in bounds)


def test_without_noise_no_row_is_clipped(rng):
    norms = rng.random(500) * 3
    for _ in range(20):
        assert learn_norm_bound(norms, 5.0, 0.0, rng, "add_or_remove_one") >= norms.max()


def test_exact_values_do_not_depend_on_the_chunks(rng):
    X = rng.normal(size=(700, 784)) / 28
    codes = np.zeros(700, dtype=int)
    whole, parts = (exact_value(class_moments(X, codes, 1, chunk_rows=c)) for c in (700, 64))
    np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("shape", [(3, 2), (14, 9), (104, 20), (784, 196)])
def test_an_exact_product_does_not_depend_on_the_place_of_a_row(rng, shape):
    matrix, _ = np.linalg.qr(rng.standard_normal(shape))
    X = rng.uniform(-1, 1, (5000, shape[0]))

    def image(rows):
        return np.concatenate([part for _, part in map_blocks(lambda block: exact_product(block, matrix), rows)])

    whole = image(X)
    np.testing.assert_allclose(whole, X @ matrix, atol=2.0**-18 * shape[0] ** 0.5)
    for joined in (1, 2, 3, 5, 16, 77):
        more = np.concatenate([rng.uniform(-1, 1, (joined, shape[0])), X])
        np.testing.assert_array_equal(image(more)[joined:], whole)
    order = rng.permutation(shape[0])
    np.testing.assert_array_equal(exact_product(X[:, order], matrix[order]), whole)


def an_exact_product_of_many_terms_is_one_function_of_each_row():
    """Entries as large as they may be: the sums of 2**11 products reach 2**53 steps, and those of more lie beyond."""
    draws = np.random.default_rng(0)
    for n_terms in (2**11, 20_000):
        matrix = draws.uniform(0.9, 1.0, (n_terms, 3))
        X = draws.uniform(3.9, 4.5, (40, n_terms))
        whole = exact_product(X, matrix)
        for n in (1, 2, 3, 17):
            np.testing.assert_array_equal(exact_product(X[-n:], matrix), whole[-n:])
        steps = np.rint(np.minimum(X, 4.0) * 2.0**18).astype(np.int64), np.rint(matrix * 2.0**22).astype(np.int64)
        expected = np.zeros((40, 3))
        for first in range(0, n_terms, 2**11):  # by whole numbers of 64 bits, which are never rounded
            expected += (steps[0][:, first : first + 2**11] @ steps[1][first : first + 2**11]).astype(np.float64)
        np.testing.assert_array_equal(whole, expected * 2.0**-40)


def test_an_exact_product_of_many_terms_is_one_function_of_each_row():
    an_exact_product_of_many_terms_is_one_function_of_each_row()


def test_images_are_filtered_by_sums_that_are_not_rounded(rng):
    """All are whole numbers of one step, below 2**53 of them: no order of additions shows."""
    public = RowScaling(np.zeros(784), np.full(784, 255.0), 28.0)
    encoded = ArrayCodec(public, image_shape=(28, 28), n_frequencies=14).encode(rng.uniform(0, 255, (50, 784)))
    step = 2.0 ** (np.ceil(np.log2(np.abs(BASIS).max())) - 22 - 18)
    np.testing.assert_array_equal(encoded / step, np.rint(encoded / step))
    assert 784 * np.abs(BASIS).max() < step * 2.0**53


def test_angles_of_an_embedding_do_not_depend_on_the_order_of_additions(rng):
    X, frequencies = rng.uniform(-1, 1, (300, 104)), rng.standard_normal((104, 50))
    whole = RandomFeatures(frequencies)(X)
    for _ in range(5):
        order = rng.permutation(104)
        np.testing.assert_array_equal(RandomFeatures(frequencies[order])(X[:, order]), whole)


def test_an_exact_product_keeps_the_scale_of_its_matrix(rng):
    rows, matrix = rng.uniform(-1, 1, (20, 5)), rng.standard_normal((5, 4))
    for scale in (1e-9, 1.0, 1e9):
        np.testing.assert_allclose(exact_product(rows, scale * matrix) / scale, rows @ matrix, atol=1e-4)
