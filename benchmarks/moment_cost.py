"""What a fit of MomentSynthesizer costs: seconds and peak memory over rows, in chunks, and over columns."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np
import pandas as pd

__all__ = ["cost_benchmark", "cost_of_fit", "peak_mib", "random_chunks"]

ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (15, 100, 1_000)
_CHUNK = 100_000
_LEVELS = ("a", "b", "c", "d", "e")


def random_chunks(n_rows, n_columns, chunk_rows=_CHUNK):
    """Chunks of a random table, the same each time: a third of the columns text, the others numbers.

    Parameters
    ----------
    n_rows, n_columns : int
    chunk_rows : int, default=100_000

    Yields
    ------
    DataFrame of at most `chunk_rows` rows
        Columns c0, c1, ...: every third of five levels, the others normal; each follows one of five hidden factors.
    """
    for start in range(0, n_rows, chunk_rows):
        n = min(chunk_rows, n_rows - start)
        rng = np.random.default_rng((start, n_columns))
        factors = rng.standard_normal((n, 5))
        columns = {}
        for j in range(n_columns):
            value = 0.7 * factors[:, j % 5] + 0.7 * rng.standard_normal(n)
            if j % 3 == 0:
                codes = np.searchsorted([-1.0, -0.3, 0.3, 1.0], value)
                columns[f"c{j}"] = pd.Categorical.from_codes(codes, _LEVELS)
            else:
                columns[f"c{j}"] = value
        yield pd.DataFrame(columns)


def cost_of_fit(n_rows, n_columns, epsilon=1.0):
    """Fit in a separate process, and return its seconds and its peak memory.

    Parameters
    ----------
    n_rows, n_columns : int
    epsilon : float, default=1.0

    Returns
    -------
    dict
        ``fit_seconds``, ``cpu_seconds`` (of the fit, over all cores), ``chunk_seconds`` (of the fit, what making the
        chunks took), ``sample_seconds`` (of 10,000 rows), ``peak_mib``, and ``start_mib``, what the process held before
        the fit.
    """
    context = multiprocessing.get_context("spawn")  # a fork would begin with its parent's memory
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(sender, n_rows, n_columns, epsilon))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        raise RuntimeError(f"the fit of {n_rows} rows of {n_columns} columns ended without a result") from None
    finally:
        process.join()


def _measure(sender, n_rows, n_columns, epsilon):
    from skdpgen.synthesizers import MomentSynthesizer
    from skdpgen.tabular import Categorical, Numeric, Schema

    columns = [
        Categorical(f"c{j}", _LEVELS, dtype="category") if j % 3 == 0 else Numeric(f"c{j}", (-4, 4))
        for j in range(n_columns)
    ]
    spent = [0.0]

    def chunks():
        made = random_chunks(n_rows, n_columns, max(1_000, min(_CHUNK, 15 * _CHUNK // n_columns)))
        while True:
            start = time.perf_counter()
            chunk = next(made, None)
            spent[0] += time.perf_counter() - start
            if chunk is None:
                return
            yield chunk

    next(chunks())
    before, spent[0] = peak_mib(), 0.0
    start, cpu = time.perf_counter(), time.process_time()
    synthesizer = MomentSynthesizer(epsilon, target="c0", schema=Schema(columns)).fit(chunks)
    fitted, cpu = time.perf_counter(), time.process_time() - cpu
    synthesizer.sample(10_000)
    sampled = time.perf_counter()
    sender.send(
        {
            "fit_seconds": fitted - start,
            "cpu_seconds": cpu,
            "chunk_seconds": spent[0],
            "sample_seconds": sampled - fitted,
            "peak_mib": peak_mib(),
            "start_mib": before,
        }
    )
    sender.close()


def peak_mib():
    """Largest resident size of this process so far."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def cost_benchmark(*, epsilon=1.0, quick=False):
    """Yield the cost of fits over rows, at 15 columns, and over columns, at 100,000 rows.

    Parameters
    ----------
    epsilon : float, default=1.0
    quick : bool, default=False
        Up to 100,000 rows of 15 columns, and 2,000 rows of 100 columns.

    Yields
    ------
    dict
        model, rows, columns, and the figures of `cost_of_fit`.
    """
    sizes = [(rows, 15) for rows in ROWS] + [(100_000, columns) for columns in COLUMNS[1:]]
    if quick:
        sizes = [(10_000, 15), (100_000, 15), (2_000, 100)]
    for rows, columns in sizes:
        figures = cost_of_fit(rows, columns, epsilon)
        yield {"model": "MomentSynthesizer", "rows": rows, "columns": columns, **figures}
