"""`skdpgen demo`: a private fit of real data that ship with scikit-learn."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

from ._arguments import add_budget, add_quiet, add_seed

# Default epsilon of each data set: with a few hundred rows at epsilon 1, noise hides most of the signal.
_EPSILON = {"digits": 3.0, "breast_cancer": 3.0, "adult": 1.0}
_HELD_OUT = 0.2
_ADVICE = """
What to try next. The noise depends on epsilon and hardly on the number of rows: twice the rows help about as much as
twice the epsilon.
  skdpgen demo --epsilon 1 --output weaker     # the same few rows, a third of the budget
  skdpgen demo --epsilon 10 --output stronger  # little noise, and a weak guarantee
  skdpgen demo --dataset adult                 # 45,222 rows of a census: good at epsilon 1
                                               # (fetched, or read from the folder named by SKDPGEN_DATA)
  skdpgen verify {card}
The pictures and the scores are computed from real rows without protection. These data are public. For private data,
publish the synthetic rows, the model and the card, and nothing else."""


def add(command):
    """Register the options."""
    command.add_argument(
        "--dataset",
        default="all",
        choices=["all", "digits", "breast_cancer", "adult"],
        help="data to fit (default: all, which is digits and breast_cancer)",
    )
    add_budget(command, None, "3 for the small tables, 1 for Adult")
    command.add_argument("--data", metavar="DIR", help="folder of adult.csv.gz (default: SKDPGEN_DATA)")
    add_seed(command)
    add_quiet(command)
    command.add_argument(
        "--output", default="skdpgen-demo", metavar="DIR", help="folder to write (default: skdpgen-demo)"
    )


def run(arguments):
    """Fit P3GM, write synthetic rows, a picture and a privacy card, and print the ledger and a score on real rows."""
    if arguments.data is not None and arguments.dataset != "adult":
        raise ValueError(f"--data is the folder of Adult, and --dataset {arguments.dataset} comes with scikit-learn")
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in ("digits", "breast_cancer") if arguments.dataset == "all" else (arguments.dataset,):
        budget = {
            "epsilon": _EPSILON[name] if arguments.epsilon is None else arguments.epsilon,
            "delta": 1e-5 if arguments.delta is None else arguments.delta,
            "neighboring": arguments.neighboring,
            "random_state": arguments.seed,
            "progress": False if arguments.quiet else "auto",
        }
        written += _run(name, budget, folder, arguments.data)
    print(_ADVICE.format(card=next(path for path in written if path.name.endswith(".card.json"))))


def _run(name, budget, folder, data_dir):
    import numpy as np

    from ..data.table_writing import write_table

    rng = np.random.default_rng(budget["random_state"])
    run = _Images(rng) if name == "digits" else _Table(rng, name, data_dir)
    start = perf_counter()
    synthesizer = run.fit(budget)
    seconds = perf_counter() - start
    synthetic = synthesizer.sample()
    paths = [folder / f"{name}{suffix}" for suffix in (".csv", ".card.json", ".safetensors", ".png")]
    synthesizer.save(paths[2])
    write_table(synthesizer.as_frame(synthetic), paths[0])
    synthesizer.card_.with_files(synthetic=paths[0], model=paths[2]).save(paths[1])
    accountant = synthesizer.accountant_
    print(f"\n{name}: {run.describe()}, fitted in {seconds:.1f} s")
    print(_ledger(accountant))
    for remark in synthesizer.card_.remarks:
        print(f"  {remark}")
    print(
        f"  spent: epsilon {accountant.epsilon_spent():.4f} at delta {accountant.delta:g} "
        f"({accountant.neighboring}; the unit is one row)"
    )
    scores = {"synthetic": run.score(synthetic), "real": run.score(run.train[0] if run.single else run.train)}
    print(
        f"  {run.metric} of a logistic regression on {len(run.test[-1]):,} real rows held out: "
        f"{scores['synthetic']:.3f} trained on the synthetic rows, {scores['real']:.3f} on the real ones"
    )
    title = "epsilon {:g}: {} {:.2f} (real: {:.2f})".format(budget["epsilon"], run.metric, *scores.values())
    if not _draw(run, synthetic, paths[3], title):
        paths.pop()
    print("\n".join(f"  wrote {path}" for path in paths))
    return paths


def _ledger(accountant):
    """The ledger, one line a release."""
    report = accountant.report()
    table = report[["release", "mechanism", "noise_multiplier", "count", "share"]]
    columns = {"noise_multiplier": "noise multiplier", "share": "share of what was spent"}
    text = table.rename(columns=columns).to_string(
        index=False, formatters={"noise multiplier": "{:.2f}".format, "share of what was spent": "{:.1%}".format}
    )
    return "\n".join("  " + line for line in text.splitlines())


class _Images:
    """The digits: arrays with labels."""

    metric, single = "accuracy", False

    def __init__(self, rng):
        from ..datasets import load_digits_table

        self.data = load_digits_table()
        held_out = _held_out(len(self.data.data), rng)
        self.train, self.test = ((self.data.data[rows], self.data.target[rows]) for rows in (~held_out, held_out))

    def describe(self):
        return f"P3GM on {len(self.train[0]):,} real images of 8 x 8 pixels with their labels"

    def fit(self, budget):
        from .. import P3GMSynthesizer

        data = self.data
        public = {"bounds": data.bounds, "classes": data.classes, "image_shape": data.image_shape}
        return P3GMSynthesizer(**budget, **public).fit(*self.train)

    def score(self, rows):
        import numpy as np

        X, y = rows
        if len(np.unique(y)) < 2:
            return float(np.mean(self.test[1] == y[0]))
        return float(_classifier().fit(X / 16, y).score(self.test[0] / 16, self.test[1]))

    def draw(self, synthetic, figure, title):
        axes = figure.subplots(1, 2)
        for ax, rows, name in zip(axes, (self.train, synthetic), ("real", f"synthetic, {title}")):
            ax.imshow(_sheet(*rows, self.data.classes), cmap="gray_r", vmin=0, vmax=16)
            ax.set_title(name, fontsize=11)
            ax.set_axis_off()


class _Table:
    """A table with a target of two classes."""

    metric, single = "AUROC", True

    def __init__(self, rng, name, data_dir):
        from .. import datasets

        self.data = datasets.load_adult(data_dir) if name == "adult" else datasets.load_breast_cancer_table()
        frame, held_out = self.data.frame, _held_out(len(self.data.frame), rng)
        self.train, self.test = ([frame[rows].reset_index(drop=True)] for rows in (~held_out, held_out))

    def describe(self):
        n_rows, n_columns = self.train[0].shape
        return f"P3GM on {n_rows:,} real rows of {n_columns} columns"

    def fit(self, budget):
        from .. import P3GMSynthesizer

        data = self.data
        return P3GMSynthesizer(**budget, schema=data.schema, target=data.target).fit(self.train[0])

    def score(self, rows):
        from ..metrics import tstr_report

        data, classifiers = self.data, {"logistic": _classifier()}
        report = tstr_report(rows, self.test[0], target=data.target, positive=data.positive, classifiers=classifiers)
        return report["logistic"]["auroc"]

    def draw(self, synthetic, figure, title, n_columns=8):
        """Marginals of the first columns and of the target, side by side."""
        import pandas as pd

        names = [name for name in self.data.schema.names if name != self.data.target][: n_columns - 1]
        for ax, name in zip(figure.subplots(2, n_columns // 2).flat, [*names, self.data.target]):
            draw = _draw_numbers if pd.api.types.is_numeric_dtype(synthetic[name]) else _draw_levels
            draw(ax, self.train[0][name], synthetic[name])
            ax.set_title(str(name), fontsize=10)
            ax.set_yticks([])
            ax.tick_params(labelsize=8)
            ax.spines[["top", "right", "left"]].set_visible(False)
        figure.axes[0].legend(fontsize=8, frameon=False)
        figure.suptitle(f"real and synthetic rows, {title}", fontsize=11)


def _held_out(n_rows, rng):
    """Rows held out for the score, by an independent draw for each row: a row that joins moves no other row."""
    return rng.random(n_rows) < _HELD_OUT


def _classifier():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=5000)


def _draw(run, synthetic, path, title):
    """Write the picture; return False, with a line on stderr, if matplotlib is not installed."""
    from ..utils.atomic import save_figure

    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return False
    figure = Figure(figsize=(11, 5.2), layout="constrained")  # without pyplot: no window system is asked for
    run.draw(synthetic, figure, title)
    save_figure(figure, path, dpi=110)
    return True


def _sheet(X, y, classes, n_shown=10, gap=1):
    """One array of pixels: a row of images for each class, white between them and where there are too few."""
    import numpy as np

    side = round(X.shape[1] ** 0.5)
    sheet = np.zeros((len(classes), side + gap, n_shown, side + gap))
    for row, label in enumerate(classes):
        images = X[y == label][:n_shown].reshape(-1, side, side)
        sheet[row, :side, : len(images), :side] = images.transpose(1, 0, 2)
    return sheet.reshape(len(classes) * (side + gap), -1)


def _draw_numbers(ax, real, synthetic):
    """Histograms over the middle 99 % of both."""
    import numpy as np

    values = [column.dropna().to_numpy(dtype=float) for column in (real, synthetic)]
    edges = np.quantile(np.concatenate(values), (0.005, 0.995))
    grid = np.linspace(edges[0], max(edges[1], edges[0] + 1e-9), 21)
    for column, name, style in zip(values, ("real", "synthetic"), ({"alpha": 0.4}, {"histtype": "step", "lw": 1.8})):
        ax.hist(column, grid, density=True, label=name, **style)
    ax.locator_params(axis="x", nbins=4)


def _draw_levels(ax, real, synthetic):
    """Shares of the categories that are most frequent in the real rows."""
    import numpy as np

    shares = [column.astype(str).value_counts(normalize=True) for column in (real, synthetic)]
    levels = shares[0].index[:8]
    at, heights = np.arange(len(levels)), [share.reindex(levels, fill_value=0.0) for share in shares]
    ax.bar(at, heights[0], 0.8, alpha=0.4, label="real")
    ax.bar(at, heights[1], 0.8, fill=False, edgecolor="C1", linewidth=1.8, label="synthetic")
    ax.set_xticks(at, [str(level)[:14] for level in levels], rotation=35, ha="right")
