"""Pictures of models: images, latent space, ledger, ROC curves, utility against epsilon."""

from __future__ import annotations

from numbers import Real
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from ..utils.validation import as_numbers
from ._display_rows import REAL, SYNTHETIC, SamplesDisplay, axes_grid, draw_samples, one_axes, short
from ._tstr import _split, encoded_for


class ImageGridDisplay(SamplesDisplay):
    """Real images beside synthetic ones; with labels, a row of each class.

    Parameters
    ----------
    real, synthetic : arrays of shape (n_rows, n_across, height, width) or (..., channels)
        NaN where there is no image. `real` may be None.
    value_range : (float, float)
        Darkest and lightest value.

    Attributes
    ----------
    figure_, axes_
        After `plot`.

    Notes
    -----
    **Leak.** Shows real images. For the data holder alone, unless they are public. With ``real=None`` it shows
    synthetic images alone, and may be published.
    """

    def __init__(self, real, synthetic, value_range):
        self.real, self.synthetic, self.value_range = real, synthetic, value_range

    @classmethod
    def from_samples(cls, real, synthetic, *, image_shape=None, n_across=10, n_rows=10, bounds=None, ax=None):
        """Take the first images (of each class) of both.

        Parameters
        ----------
        real, synthetic : array of shape (n_images, ...), or pair (X, y)
            ``real=None`` draws the synthetic images alone.
        image_shape : (height, width) or (height, width, channels), default=None
            None is the shape of the arrays, or a square.
        n_across : int, default=10
        n_rows : int, default=10
            Rows of images; with labels, of classes at most.
        bounds : (low, high), default=None
            Darkest and lightest value; None is the range of the real images, or else of the synthetic ones.
        ax : Axes, default=None
        """
        alone = real is None
        real = synthetic if alone else real
        (X, y), (Z, z) = (rows if isinstance(rows, tuple) else (rows, None) for rows in (real, synthetic))
        if (y is None) != (z is None):
            raise ValueError("give labels with both samples, or with neither")
        X, Z = (_images(as_numbers(rows, "images", ""), image_shape) for rows in (X, Z))
        if X.shape[1:] != Z.shape[1:]:
            raise ValueError(f"real and synthetic images must have one shape; got {X.shape[1:]} and {Z.shape[1:]}")
        groups = [None] * n_rows if y is None else list(np.unique(np.asarray(y)))[:n_rows]
        value_range = (float(X.min()), float(X.max())) if bounds is None else tuple(map(float, bounds))
        sheet = None if alone else _sheet(X, y, groups, n_across)
        return cls(sheet, _sheet(Z, z, groups, n_across), value_range).plot(ax=ax)

    def plot(self, ax=None, *, cmap="gray_r"):
        """Draw both sheets side by side, or that of synthetic images alone."""
        sheets = {"real": self.real, "synthetic": self.synthetic}
        sheets = {title: images for title, images in sheets.items() if images is not None}
        axes = axes_grid(self, ax, 1, len(sheets), (5.0, 5.0))[0]
        low, high = self.value_range
        for panel, (title, images) in zip(axes, sheets.items()):
            sheet = _tiles(images, low)
            if sheet.ndim == 3:
                sheet = np.clip((sheet - low) / ((high - low) or 1.0), 0, 1)
            panel.imshow(sheet, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
            panel.set_title(title, fontsize=10)
            panel.set_axis_off()
        return self


def _images(rows, image_shape):
    if image_shape is not None:
        return rows.reshape(len(rows), *image_shape).astype(float)
    if rows.ndim > 2:
        return rows.astype(float)
    side = round(rows.shape[1] ** 0.5)
    if side * side != rows.shape[1]:
        raise ValueError(f"image_shape= is needed for rows of {rows.shape[1]} values")
    return rows.reshape(len(rows), side, side).astype(float)


def _sheet(images, labels, groups, n_across):
    sheet = np.full((len(groups), n_across, *images.shape[1:]), np.nan)
    for k, group in enumerate(groups):
        chosen = images[k * n_across : (k + 1) * n_across] if labels is None else images[np.asarray(labels) == group]
        sheet[k, : len(chosen[:n_across])] = chosen[:n_across]
    return sheet


def _tiles(images, blank):
    n_rows, n_across, height, width, *channels = images.shape
    out = np.full((n_rows, height + 1, n_across, width + 1, *channels), blank)
    out[:, :height, :, :width] = np.nan_to_num(images, nan=blank).swapaxes(1, 2)
    return out.reshape(n_rows * (height + 1), n_across * (width + 1), *channels)[:-1, :-1]


class LatentSpaceDisplay:
    """Latents of real rows in two dimensions, with the ellipses of the released mixture.

    Parameters
    ----------
    latent : array of shape (n_rows, n_latent) or None
    mixture : object with `weights`, `means` and `covariances`
        Released; covariances full or diagonal.
    labels : array of shape (n_rows,) or None, default=None
    dimensions : (int, int), default=(0, 1)

    Attributes
    ----------
    figure_, ax_
        After `plot`.

    Notes
    -----
    **Leak.** Each point is a real row. The ellipses alone are released: leave out the rows (``X=None``) to show them.
    """

    def __init__(self, latent, mixture, labels=None, *, dimensions=(0, 1)):
        self.latent, self.mixture, self.labels, self.dimensions = latent, mixture, labels, dimensions

    @classmethod
    def from_samples(cls, latent, mixture, labels=None, *, dimensions=(0, 1), ax=None):
        """Draw latents and a mixture that are there."""
        return cls(latent, mixture, labels, dimensions=dimensions).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator, X=None, y=None, *, dimensions=(0, 1), ax=None):
        """Draw the latents that a fitted estimator gives to rows, and its mixture.

        Parameters
        ----------
        estimator : fitted estimator
            Of `DPGaussianMixture`, which lives in the space of its rows, or with `transform` and a released mixture: of
            tables without one, the Gaussians of the classes.
        X, y : rows to draw, and their labels, default=None
            None draws the released mixture alone.
        dimensions : (int, int), default=(0, 1)
        ax : Axes, default=None
        """
        mixture = released_mixture(estimator)
        latent = None
        if X is not None:
            latent = as_numbers(estimator.transform(X) if hasattr(estimator, "transform") else X, "X", "")
        return cls(latent, mixture, y, dimensions=dimensions).plot(ax=ax)

    def plot(self, ax=None):
        """Draw; ellipses at one and two standard deviations, the wider the line the heavier the component."""
        from matplotlib.patches import Ellipse

        ax = one_axes(self, ax)
        first, second = self.dimensions
        if max(first, second) >= self.mixture.means.shape[1]:
            raise ValueError(
                f"dimensions={self.dimensions} must be below the number of latents, {self.mixture.means.shape[1]}"
            )
        if self.latent is not None:
            for k, (name, rows) in enumerate(_groups(self.latent, self.labels)):
                style = REAL if name is None else {"color": f"C{k % 10}", "alpha": 0.4}
                ax.plot(
                    rows[:, first], rows[:, second], ".", ms=3, label=name and short(name), rasterized=True, **style
                )
        pair = [first, second]
        for weight, mean, covariance in zip(self.mixture.weights, self.mixture.means, self.mixture.covariances):
            if not weight > 0:
                continue
            full = covariance if np.ndim(covariance) == 2 else np.diag(covariance)
            values, vectors = np.linalg.eigh(full[np.ix_(pair, pair)])
            angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
            for deviations in (1, 2):
                width, height = 2 * deviations * np.sqrt(np.maximum(values[::-1], 0.0))
                line = {
                    "fill": False,
                    "edgecolor": "black",
                    "linewidth": 0.6 + 2.0 * float(weight) / deviations,
                    "alpha": 0.7,
                }
                ax.add_patch(Ellipse(mean[pair], width, height, angle=angle, **line))
            ax.plot(*mean[pair], "k+", ms=7)
        ax.autoscale_view()
        ax.set(xlabel=f"latent {first}", ylabel=f"latent {second}", title="released mixture (1 and 2 sd)")
        if self.labels is not None and self.latent is not None:
            ax.legend(fontsize=8, markerscale=3)
        return self


def _groups(latent, labels):
    if labels is None:
        return [(None, latent)]
    labels = np.asarray(labels)
    return [(str(label), latent[labels == label]) for label in np.unique(labels)]


def released_mixture(estimator):
    """Return weights, means and covariances of the Gaussians that an estimator has released; ValueError without any."""
    if hasattr(estimator, "weights_") and hasattr(estimator, "covariances_"):
        return SimpleNamespace(weights=estimator.weights_, means=estimator.means_, covariances=estimator.covariances_)
    model = getattr(estimator, "model_", None)
    for holder in (estimator, model, getattr(model, "generator", None)):
        for name in ("mixture_", "prior_", "mixture", "prior"):
            found = getattr(holder, name, None)
            if all(hasattr(found, part) for part in ("weights", "means", "covariances")):
                return found
    moments = getattr(model, "latent_model", None)  # of a table without a mixture: the released moments of each class
    if hasattr(moments, "class_means") and hasattr(estimator, "transform"):
        weights = moments.class_counts / max(float(moments.class_counts.sum()), 1e-12)
        return SimpleNamespace(weights=weights, means=moments.class_means, covariances=moments.class_covariances)
    raise ValueError(f"{type(estimator).__name__} has no released mixture: pass one to from_samples")


class LedgerDisplay:
    """The ledger as one stacked bar: the epsilon spent, divided by the share of each release of what was spent.

    Parameters
    ----------
    report : DataFrame
        As ``PrivacyAccountant.report()`` gives it.

    Attributes
    ----------
    figure_, ax_
        After `plot`.

    Notes
    -----
    **Leak.** Nothing: what was charged is public, as on the privacy card.
    """

    def __init__(self, report):
        self.report = report

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Draw the ledger of a fitted estimator."""
        return cls.from_accountant(estimator.accountant_, ax=ax)

    @classmethod
    def from_accountant(cls, accountant, *, ax=None):
        """Draw the ledger of an accountant."""
        return cls(accountant.report()).plot(ax=ax)

    @classmethod
    def from_card(cls, card, *, ax=None):
        """Draw the ledger on a privacy card."""
        return cls(card.accountant().report()).plot(ax=ax)

    def shares(self):
        """Return the length of the segment of each release: names, and floats that sum to epsilon spent over budget.

        The epsilon spent is divided by the share of each release of what was spent. These shares are those of a plan:
        of the squared Gaussian-DP parameter mu, which adds up as epsilons do not.
        """
        totals = self.report.attrs
        names = [
            f"{label}: {release}" if release else str(label)
            for label, release in zip(self.report["label"], self.report["release"])
        ]
        spent = totals["epsilon_spent"] / totals["budget_epsilon"] if np.isfinite(totals["budget_epsilon"]) else np.nan
        return names, self.report["share"].to_numpy(dtype=float) * min(spent, 1.0)

    def plot(self, ax=None):
        """Draw one horizontal bar; what is left of the budget is hatched."""
        ax = one_axes(self, ax, (7.2, 2.6))
        totals = self.report.attrs
        names, shares = self.shares()
        if not totals["private"] or not np.isfinite(shares).all():
            ax.barh([0], [1.0], color="white", edgecolor="black", hatch="xx")
            ax.set_title("not private: a release without noise was charged", fontsize=10)
        else:
            left = 0.0
            for k, (name, share, of_spent) in enumerate(zip(names, shares, self.report["share"])):
                style = {"color": f"C{k % 10}", "edgecolor": "white", "hatch": ("", "//", "..")[k // 10 % 3]}
                ax.barh([0], [share], left=left, label=f"{short(name, 44)}: {of_spent:.1%}", **style)
                left += share
            if left < 0.9995:
                label = f"left: {1 - left:.1%} of the budget"
                ax.barh([0], [1 - left], left=left, fill=False, hatch="//", edgecolor="0.6", label=label)
            ax.set_title(
                "epsilon {:.4g} of {:.4g} at delta {:g}, {}".format(
                    totals["epsilon_spent"], totals["budget_epsilon"], totals["budget_delta"], totals["neighboring"]
                ),
                fontsize=10,
            )
            # below the axis and its label, whatever the height of the axes: the pad is in letters
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.5}
            ax.legend(title="share of what was spent", fontsize=8, title_fontsize=8, ncols=2, frameon=False, **below)
        ax.set(xlim=(0, 1), ylim=(-0.5, 0.5), yticks=[], xlabel="epsilon spent, as part of the budget")
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        return self


# ---- curves --------------------------------------------------------------------------------------------------------
class Curves(NamedTuple):
    """ROC and precision-recall curve of one classifier: arrays of points, and the areas."""

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    recall: np.ndarray
    precision: np.ndarray
    auroc: float
    auprc: float


class TSTRCurveDisplay:
    """ROC and precision-recall curves on real test rows, trained on synthetic and on real rows.

    Parameters
    ----------
    curves : dict of str to Curves
        By what the classifier was trained on.
    base_rate : float
        Share of positive test rows: the precision of a guess.

    Attributes
    ----------
    figure_, axes_
        After `plot`.

    Notes
    -----
    **Leak.** Curves are exact functions of the real test rows: each step is a row. For the data holder alone.
    """

    def __init__(self, curves, base_rate):
        self.curves, self.base_rate = curves, base_rate

    @classmethod
    def from_samples(cls, real, synthetic, test, *, target=None, positive, classifier=None, ax=None):
        """Train on either sample, test on `test`, and draw.

        Parameters
        ----------
        real, synthetic, test : DataFrame with the column `target`, or pair (X, y)
            `test`: real rows that are in neither.
        target : column name, default=None
            None with pairs.
        positive : scalar
            The positive class; all others are negative.
        classifier : classifier with `predict_proba`, default=None
            None is histogram gradient boosting.
        ax : Axes, default=None

        Returns
        -------
        display
        """
        classifier = HistGradientBoostingClassifier(random_state=0) if classifier is None else classifier
        X_test, y_test = _split(test, target)
        y_test = np.asarray(y_test) == positive
        if y_test.all() or not y_test.any():
            raise ValueError(
                "the test rows must contain both classes of the target: give more test rows, or another positive="
            )
        curves = {}
        for name, rows in (("real rows", real), ("synthetic rows", synthetic)):
            X, y = _split(rows, target)
            y = np.asarray(y) == positive
            if y.all() or not y.any():  # one class alone: a constant score
                score = np.zeros(len(y_test))
            else:
                fitted, encode = encoded_for(classifier, X)
                score = fitted.fit(encode(X), y).predict_proba(encode(X_test))[:, 1]
            roc, pr = roc_curve(y_test, score), precision_recall_curve(y_test, score)
            areas = float(roc_auc_score(y_test, score)), float(average_precision_score(y_test, score))
            curves[name] = Curves(roc[0], roc[1], pr[1], pr[0], *areas)
        return cls(curves, float(y_test.mean())).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator, X, y=None, *, test, n_samples=None, random_state=None, ax=None, **options):
        """Sample a fitted estimator; `X`, `y` are the real training rows, `options` those of `from_samples`."""
        real, synthetic = draw_samples(estimator, X, y, n_samples=n_samples, random_state=random_state)
        if y is None and options.get("target") is None:
            options["target"] = getattr(estimator, "target", None)
        return cls.from_samples(real, synthetic, test, ax=ax, **options)

    def plot(self, ax=None):
        """Draw both kinds of curves side by side."""
        axes = axes_grid(self, ax, 1, 2, (4.4, 4.0))[0]
        for (name, curve), style in zip(self.curves.items(), ({**REAL, "alpha": 1, "ls": "--"}, SYNTHETIC)):
            area = f"{name}: {curve.auroc:.3f}", f"{name}: {curve.auprc:.3f}"
            axes[0].plot(curve.false_positive_rate, curve.true_positive_rate, label=area[0], **style)
            axes[1].plot(curve.recall, curve.precision, drawstyle="steps-post", label=area[1], **style)
        axes[0].plot([0, 1], [0, 1], ":", color="0.5", label="guess: .500")
        axes[1].axhline(self.base_rate, ls=":", color="0.5", label=f"guess: {self.base_rate:.3f}")
        axes[0].set(xlabel="false positive rate", ylabel="true positive rate", title="ROC, trained on (area)")
        axes[1].set(xlabel="recall", ylabel="precision", title="precision and recall, trained on (area)")
        for panel in axes:
            panel.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
            panel.legend(fontsize=8, loc="lower right" if panel is axes[0] else "best")
        return self


class UtilityCurveDisplay:
    """A score against epsilon: mean and standard deviation over repeats, one line a model.

    Parameters
    ----------
    results : DataFrame
        Columns "model", "epsilon", "score"; one row a fit. Results of an infinite epsilon are drawn as a level.
    ylabel : str, default="score"

    Attributes
    ----------
    figure_, ax_
        After `plot`.

    Notes
    -----
    **Leak.** Scores are exact functions of real rows, and so is whatever is chosen by them. For the data holder alone,
    unless the rows are public.
    """

    def __init__(self, results, *, ylabel="score"):
        self.results, self.ylabel = results, ylabel

    @classmethod
    def from_results(cls, results, *, score, epsilon="epsilon", model=None, ax=None):
        """Draw results that are there, for example lines of ``skdpgen bench``.

        Parameters
        ----------
        results : DataFrame or list of dict
        score, epsilon : str
            Names of the columns to draw.
        model : str, default=None
            Name of the column with one value a line.
        ax : Axes, default=None
        """
        frame = pd.DataFrame(results)
        if absent := [name for name in (score, epsilon, model) if name is not None and name not in frame]:
            raise ValueError(f"the results lack the columns {absent}: name other ones by score=, epsilon= and model=")
        names = "" if model is None else frame[model].astype(str)
        table = {"model": names, "epsilon": frame[epsilon].astype(float), "score": frame[score].astype(float)}
        return cls(pd.DataFrame(table), ylabel=score).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator, X, y=None, *, epsilons, scoring, X_test=None, y_test=None, n_repeats=1, ax=None):
        """Fit clones at each epsilon, score them, and draw.

        Every fit is charged: to the estimator's accountant, or to a separate ledger. Together they cost more than each.

        Parameters
        ----------
        estimator : private estimator
        X, y : rows to fit
        epsilons : sequence of float
        scoring : callable
            ``scoring(estimator, X_test, y_test) -> float``, for example ``make_tstr_scorer(...)``.
        X_test, y_test : rows to judge by, default=None
            None is the rows that were fitted, which flatters.
        n_repeats : int, default=1
            Fits at each epsilon.
        ax : Axes, default=None
        """
        if not all(isinstance(epsilon, Real) and epsilon > 0 for epsilon in epsilons):
            raise ValueError("epsilons must be positive numbers")
        X_test, y_test = (X, y) if X_test is None else (X_test, y_test)
        rows = []
        for epsilon in epsilons:
            for _ in range(n_repeats):
                fitted = clone(estimator).set_params(epsilon=epsilon)
                fitted = fitted.fit(X) if y is None else fitted.fit(X, y)
                rows.append((type(estimator).__name__, float(epsilon), float(scoring(fitted, X_test, y_test))))
        return cls(pd.DataFrame(rows, columns=["model", "epsilon", "score"])).plot(ax=ax)

    def plot(self, ax=None):
        """Draw on a logarithmic axis of epsilon."""
        ax = one_axes(self, ax)
        markers = "osD^vPX*"
        for k, (name, rows) in enumerate(self.results.groupby("model", sort=False)):
            finite = rows[np.isfinite(rows["epsilon"])]
            table = finite.groupby("epsilon")["score"].agg(["mean", "std"]).sort_index()
            if len(table):
                marks = {"marker": markers[k % len(markers)], "capsize": 3, "label": name or None, "color": f"C{k}"}
                mean, deviation = table["mean"].to_numpy(), table["std"].fillna(0.0).to_numpy()
                ax.errorbar(table.index.to_numpy(), mean, yerr=deviation, **marks)
            level = rows.loc[np.isinf(rows["epsilon"]), "score"]
            if len(level):
                ax.axhline(level.mean(), ls="--", color=f"C{k}", label=f"{name}, no privacy".lstrip(", "))
        if np.isfinite(self.results["epsilon"]).any():
            ax.set_xscale("log")
        ax.set(xlabel="epsilon", ylabel=self.ylabel)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=8)
        return self
