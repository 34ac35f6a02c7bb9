from __future__ import annotations

import itertools

import numpy as np

from skdpgen.mechanisms import N_OCTAVE_CELLS, octave_cells, octave_edges


def test_every_number_lies_in_its_cell():
    values = np.concatenate([[0.0, -0.0, 1.0, -1.0, 2.0, 1e-300, -5e-324, 3e9, -1e14], np.geomspace(1e-9, 1e14, 500)])
    values = np.concatenate([values, -values])
    for value, cell in zip(values, octave_cells(values)):
        low, high = octave_edges(cell)
        assert low <= value <= high


def test_cells_are_in_the_order_of_the_numbers_and_cover_the_line():
    edges = [octave_edges(cell) for cell in range(N_OCTAVE_CELLS)]
    for (_, above), (below, _) in itertools.pairwise(edges):
        assert above == below
    assert (np.diff(octave_cells(np.linspace(-1e3, 1e3, 2001))) >= 0).all()


def test_numbers_beyond_the_grid_count_at_its_ends():
    assert octave_cells([-1e300, 1e300]).tolist() == [0, N_OCTAVE_CELLS - 1]
