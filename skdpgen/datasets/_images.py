"""MNIST and Fashion-MNIST in their standard split."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from ._tables import local_file

# Of the standard split: these rows come first, the 10,000 for testing after them.
N_TRAIN = 60_000


def load_mnist(data_dir=None):
    """Load the MNIST handwritten digits.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``mnist.npz``; None reads the environment variable SKDPGEN_DATA,
        and without it the images are fetched by ``sklearn.datasets.fetch_openml``.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``data`` uint8 (60000, 784) and ``target`` uint8 (60000,), the standard training rows;
        ``data_test`` and ``target_test``, the standard 10,000 test rows; ``bounds`` (0, 255);
        ``classes`` 0..9; ``image_shape`` (28, 28); ``DESCR``. Bounds, classes and shape are public.
    """
    descr = "MNIST handwritten digits (Y. LeCun, C. Cortes, C. Burges): 70,000 grey images of 28 x 28 pixels."
    return _load("mnist.npz", "mnist_784", data_dir, descr)


def load_fashion_mnist(data_dir=None):
    """Load the Fashion-MNIST images of clothes.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``fashion_mnist.npz``; None reads the environment variable SKDPGEN_DATA,
        and without it the images are fetched by ``sklearn.datasets.fetch_openml``.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        As ``load_mnist``.
    """
    descr = "Fashion-MNIST (Zalando SE, MIT licence): 70,000 grey images of clothes, 28 x 28 pixels, 10 classes."
    return _load("fashion_mnist.npz", "Fashion-MNIST", data_dir, descr)


def _load(file_name, openml_name, data_dir, descr):
    path = local_file(file_name, data_dir)
    if path is not None:
        with np.load(path, allow_pickle=False) as arrays:
            parts = [arrays[key] for key in ("X_train", "y_train", "X_test", "y_test")]
    else:
        X, y = fetch_openml(openml_name, version=1, as_frame=False, return_X_y=True)
        parts = [X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]]
    X, y, X_test, y_test = (np.asarray(part).astype(np.uint8) for part in parts)
    return Bunch(
        data=X.reshape(len(X), -1),
        target=y,
        data_test=X_test.reshape(len(X_test), -1),
        target_test=y_test,
        bounds=(0.0, 255.0),
        classes=np.arange(10, dtype=np.uint8),
        image_shape=(28, 28),
        DESCR=descr,
    )
