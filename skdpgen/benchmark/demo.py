"""`skdpgen demo`: the main job on real data, from nothing but the package."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["run_demo"]


def run_demo(
    dataset="all", output="skdpgen-demo", *, epsilon=1.0, delta=1e-5, neighboring=None, data_dir=None, random_state=None
):
    """Fit P3GM, write synthetic rows, a picture and a privacy card, and print the ledger.

    Parameters
    ----------
    dataset : {"all", "digits", "breast_cancer", "adult"}, default="all"
        "all" is the two that ship inside scikit-learn.
    output : str or path, default="skdpgen-demo"
        Folder, made if it is not there.
    epsilon, delta, neighboring
        Budget of each data set and its neighbouring relation.
    data_dir : str or path, default=None
        Folder of adult.csv.gz.
    random_state : int, default=None
        Of initialisation and sampling; never of the noise.

    Returns
    -------
    list of Path
        The files written.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    budget = {"epsilon": epsilon, "delta": delta, "neighboring": neighboring, "random_state": random_state}
    written = []
    for name in ("digits", "breast_cancer") if dataset == "all" else (dataset,):
        synthesizer, real, synthetic, picture = _RUNS[name](budget, data_dir)
        paths = [folder / f"{name}{suffix}" for suffix in (".csv", ".card.json", ".safetensors")]
        synthesizer.as_frame(synthetic).to_csv(paths[0], index=False)
        synthesizer.card_.save(paths[1])
        synthesizer.save(paths[2])
        figure = _draw(picture, real, synthetic, folder / f"{name}.png")
        paths += [figure] if figure else []
        spent = synthesizer.accountant_.epsilon_spent()
        print(f"\n{name}: {_size(real)} real rows, epsilon {spent:.4f} at delta {delta:g}, one row the unit")
        print(synthesizer.accountant_.report().to_string(index=False))
        print("\n".join(f"  wrote {path}" for path in paths))
        written += paths
    return written


def _digits(budget, data_dir):
    from skdpgen import P3GMSynthesizer
    from skdpgen.datasets import load_digits_table

    digits = load_digits_table()
    synthesizer = P3GMSynthesizer(**budget, bounds=digits.bounds, classes=digits.classes, image_shape=digits.image_shape)
    synthesizer.set_params(progress=True).fit(digits.data, digits.target)
    return synthesizer, (digits.data, digits.target), synthesizer.sample(len(digits.data)), "images"


def _breast_cancer(budget, data_dir):
    from skdpgen.datasets import load_breast_cancer_table

    return _table(load_breast_cancer_table(), budget)


def _adult(budget, data_dir):
    from skdpgen.datasets import load_adult

    return _table(load_adult(data_dir), budget)


def _table(data, budget):
    from skdpgen import P3GMSynthesizer

    synthesizer = P3GMSynthesizer(**budget, schema=data.schema, target=data.target, progress=True).fit(data.frame)
    return synthesizer, data.frame, synthesizer.sample(len(data.frame)), "table"


_RUNS = {"digits": _digits, "breast_cancer": _breast_cancer, "adult": _adult}


def _size(data):
    return len(data[0]) if isinstance(data, tuple) else len(data)


def _draw(kind, real, synthetic, path):
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no picture", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    (_draw_images if kind == "images" else _draw_table)(real, synthetic, path)
    return path


def _draw_images(real, synthetic, path, per_class=8):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4.8), layout="constrained")
    for ax, (X, y), title in zip(axes, (real, synthetic), ("real (never published)", "synthetic")):
        side = round(X.shape[1] ** 0.5)
        rows = [X[y == label][:per_class] for label in np.unique(real[1])]
        blank = np.zeros((per_class, X.shape[1]))
        grid = np.stack([np.concatenate([row, blank])[:per_class] for row in rows]).reshape(-1, per_class, side, side)
        ax.imshow(grid.transpose(1, 2, 0, 3).reshape(per_class * side, -1), cmap="gray_r", vmin=0, vmax=16)
        ax.set(title=title, xlabel="digit", xticks=np.arange(len(rows)) * side + side / 2 - 0.5, yticks=[])
        ax.set_xticklabels(range(len(rows)))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_table(real, synthetic, path, n_columns=8):
    """Marginals of the first columns side by side, real and synthetic."""
    import matplotlib.pyplot as plt

    names = list(real.columns[: n_columns - 1]) + [real.columns[-1]]
    figure, axes = plt.subplots(2, (len(names) + 1) // 2, figsize=(12, 5.2), layout="constrained")
    for ax, name in zip(axes.flat, names):
        if pd.api.types.is_numeric_dtype(real[name]):
            edges = np.histogram_bin_edges(np.concatenate([real[name], synthetic[name]]).astype(float), 20)
            for frame, label, style in ((real, "real", {"alpha": 0.45}), (synthetic, "synthetic", {"histtype": "step", "lw": 1.8})):
                ax.hist(frame[name].astype(float), edges, density=True, label=label, **style)
        else:
            shares = [frame[name].astype(str).value_counts(normalize=True) for frame in (real, synthetic)]
            levels = shares[0].index[:8]
            for offset, share, label in ((-0.2, shares[0], "real"), (0.2, shares[1], "synthetic")):
                ax.bar(np.arange(len(levels)) + offset, share.reindex(levels, fill_value=0.0), 0.4, label=label)
            ax.set_xticks(np.arange(len(levels)), [str(level)[:12] for level in levels], rotation=40, ha="right", fontsize=7)
        ax.set_title(str(name), fontsize=9)
        ax.set_yticks([])
    axes.flat[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
