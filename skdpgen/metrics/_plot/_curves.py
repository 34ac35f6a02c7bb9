"""Curves: ROC and precision-recall of classifiers trained on synthetic and on real rows; utility against epsilon."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from .._tstr import _encoder, _split
from ._drawing import REAL, SYNTHETIC, axes_grid, draw_samples, one_axes

__all__ = ["Curves", "TSTRCurveDisplay", "UtilityCurveDisplay"]


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
            raise ValueError("the test rows need both classes")
        curves = {}
        for name, rows in (("real rows", real), ("synthetic rows", synthetic)):
            X, y = _split(rows, target)
            y = np.asarray(y) == positive
            encode = _encoder(X)
            Z = encode.fit_transform(X)
            if y.all() or not y.any():  # one class alone: nothing is told
                score = np.zeros(len(y_test))
            else:
                score = clone(classifier).fit(Z, y).predict_proba(encode.transform(X_test))[:, 1]
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
            Name of the column that tells lines apart.
        ax : Axes, default=None
        """
        frame = pd.DataFrame(results)
        if absent := [name for name in (score, epsilon, model) if name is not None and name not in frame]:
            raise ValueError(f"the results have no {absent}")
        names = "" if model is None else frame[model].astype(str)
        table = {"model": names, "epsilon": frame[epsilon].astype(float), "score": frame[score].astype(float)}
        return cls(pd.DataFrame(table), ylabel=score).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator, X, y=None, *, epsilons, scoring, X_test=None, y_test=None, n_repeats=1, ax=None):
        """Fit clones at each epsilon, score them, and draw.

        Every fit is charged: to the estimator's accountant, or to books of its own. Together they cost more than any.

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
