"""Where files come from: a folder on this machine, else scikit-learn's own fetcher."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "SKDPGEN_DATA"


def local_file(name, data_dir=None):
    """Path of the file `name` in the data folder, or None when there is no folder to look in.

    `name`: file name, for example "adult.csv.gz".
    `data_dir`: folder to read; None reads the environment variable SKDPGEN_DATA.
    Returns `path`: None when neither `data_dir` nor SKDPGEN_DATA names a folder: the caller then fetches.
    Raises FileNotFoundError: a folder was named and does not hold the file. Fetching silently instead would hide a
        mistyped folder behind a download.
    """
    origin = "data_dir"
    if data_dir is None:
        data_dir = os.environ.get(DATA_VARIABLE) or None
        origin = DATA_VARIABLE
    if data_dir is None:
        return None
    path = Path(data_dir).expanduser() / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not in the folder {str(data_dir)!r} named by {origin}")
    return path
