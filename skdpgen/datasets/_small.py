"""Small data that need no file: two tables that ship with scikit-learn, and a generated pinwheel."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.utils import Bunch, check_random_state

# The published summary table of the data set (Wolberg, Street and Mangasarian, UCI; also scikit-learn's
# documentation), each maximum rounded up; every measure is non-negative. Order: mean, error, worst.
_BREAST_CANCER_UPPER = {
    "radius": (30, 3, 40),
    "texture": (40, 5, 50),
    "perimeter": (200, 25, 300),
    "area": (3_000, 600, 5_000),
    "smoothness": (0.2, 0.05, 0.3),
    "compactness": (0.4, 0.2, 1.5),
    "concavity": (0.5, 0.5, 1.5),
    "concave points": (0.3, 0.1, 0.3),
    "symmetry": (0.4, 0.1, 0.8),
    "fractal dimension": (0.1, 0.05, 0.3),
}


def load_breast_cancer_table():
    """Load the Wisconsin breast cancer table of scikit-learn with public bounds.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``: DataFrame (569, 31), 30 float columns and "diagnosis"; ``schema``: public
        facts about the columns; ``target``: "diagnosis"; ``positive``: "malignant"; ``DESCR``.
    """
    from ..tabular import Categorical, Numeric, Schema

    raw = load_breast_cancer()
    frame = pd.DataFrame(raw.data, columns=[str(name) for name in raw.feature_names])
    frame["diagnosis"] = np.asarray(raw.target_names)[raw.target].astype(object)
    columns = [Numeric(name, bounds=(0.0, float(_upper_bound(name)))) for name in frame.columns[:-1]]
    columns.append(Categorical("diagnosis", categories=("malignant", "benign")))
    return Bunch(frame=frame, schema=Schema(columns), target="diagnosis", positive="malignant", DESCR=raw.DESCR)


def _upper_bound(name):
    """Public upper bound of one column; names are "mean radius", "radius error", "worst radius"."""
    first, _, rest = name.partition(" ")
    if first == "mean":
        return _BREAST_CANCER_UPPER[rest][0]
    if first == "worst":
        return _BREAST_CANCER_UPPER[rest][2]
    return _BREAST_CANCER_UPPER[name.removesuffix(" error")][1]


def load_digits_table():
    """Load scikit-learn's 8 x 8 handwritten digits as arrays with public bounds.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``data`` float64 (1797, 64) with values 0..16; ``target`` int64 (1797,); ``frame``:
        the same as a DataFrame with integer columns and "digit"; ``schema``: public facts
        about `frame`; ``bounds`` (0, 16); ``classes`` 0..9; ``image_shape`` (8, 8); ``DESCR``.
    """
    from ..tabular import Categorical, Numeric, Schema

    raw = load_digits()
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    frame = pd.DataFrame(raw.data.astype(np.int64), columns=names)
    frame["digit"] = raw.target.astype(np.int64)
    columns = [Numeric(name, bounds=(0, 16), integer=True) for name in names]
    columns.append(Categorical("digit", categories=tuple(range(10))))
    return Bunch(
        data=raw.data,
        target=raw.target.astype(np.int64),
        frame=frame,
        schema=Schema(columns),
        target_name="digit",
        bounds=(0.0, 16.0),
        classes=np.arange(10),
        image_shape=(8, 8),
        DESCR=raw.DESCR,
    )


def make_pinwheel(n_samples=400, *, n_arms=4, radial_noise=0.3, tangential_noise=0.05, twist=0.25, random_state=None):
    """Draw points on the bent arms of a pinwheel, as many on each arm as on any other (within one).

    Generated data, not private: for examples and tests of models that find clusters.

    Parameters
    ----------
    n_samples : int, default=400
    n_arms : int, default=4
    radial_noise, tangential_noise : float, default=0.3, 0.05
        Standard deviations along an arm and across it; an arm lies around the distance 1.
    twist : float, default=0.25
        How far an arm is turned, in radians: ``twist * exp(position along the arm)``.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : array of shape (n_samples, 2)
        Nearly all of it within (-2, 2).
    y : array of int of shape (n_samples,)
        Arm of each point.

    References
    ----------
    Johnson, Duvenaud, Wiltschko, Adams, Datta, "Composing graphical models with neural networks for structured
    representations and fast inference", NeurIPS 2016.

    Examples
    --------
    >>> from skdpgen.datasets import make_pinwheel
    >>> X, y = make_pinwheel(100, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((100, 2), [0, 1, 2, 3])
    """
    if n_samples < 1 or n_arms < 1:
        raise ValueError("n_samples and n_arms must be at least 1")
    rng = check_random_state(random_state)
    y = rng.permutation(np.arange(n_samples) % n_arms)
    along = 1 + radial_noise * rng.standard_normal(n_samples)
    across = tangential_noise * rng.standard_normal(n_samples)
    angle = 2 * np.pi * y / n_arms + twist * np.exp(along)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.stack([along * cosine - across * sine, along * sine + across * cosine], axis=1), y
