"""Figures 4 to 9 of P3GM's paper, drawn from the results of their benchmarks."""

from __future__ import annotations

import numpy as np

from .summary import value_of

__all__ = [
    "draw_accounting",
    "draw_components",
    "draw_curve_epsilon",
    "draw_curve_rows",
    "draw_dimensions",
    "draw_epsilon",
    "draw_lines",
    "draw_split",
    "draw_steps",
    "new_figure",
    "save_figure",
]


def new_figure(size):
    """Return an empty figure of matplotlib, of `size` in inches, without a window system."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install matplotlib") from None
    return Figure(figsize=size, layout="constrained")


def save_figure(figure, path, dpi=110):
    """Write a figure in the format of the suffix of `path`."""
    figure.savefig(path, dpi=dpi)


def draw_lines(results, path, x, fields, *, log=False, labels=None):
    """One panel a figure, one line a model: means and standard deviations over the seeds.

    What has no place on the horizontal axis (the real data, an infinite budget) is a dashed line at its mean.

    Parameters
    ----------
    results : list of dict
    path : str or path
        Of the image to write.
    x : str
        Field on the horizontal axis.
    fields : sequence of str
        Figures to draw.
    log : bool, default=False
        Whether the horizontal axis is logarithmic.
    labels : dict, default=None
        Words in place of names of fields.
    """
    labels = labels or {}
    panels_of = [(data, field) for data in _values(results, "data") for field in fields if _has(results, data, field)]
    canvas = new_figure((4.4 * max(1, len(panels_of)), 3.4))
    panels = canvas.subplots(1, max(1, len(panels_of)), squeeze=False)[0]
    for panel, (data, field) in zip(panels, panels_of):
        for k, model in enumerate(_values(results, "model")):
            points = {}
            for result in results:
                if result.get("data") == data and result.get("model") == model and _number(result, field) is not None:
                    points.setdefault(_number(result, x), []).append(_number(result, field))
            reference = points.pop(None, None)
            if reference is not None:
                panel.axhline(np.mean(reference), color="0.5", linestyle="--", linewidth=1, label=model)
            if not points:
                continue
            at = sorted(points)
            mean, spread = (np.array([f(points[value]) for value in at]) for f in (np.mean, np.std))
            panel.errorbar(at, mean, yerr=spread, marker="osD^vPX*"[k % 8], markersize=4, capsize=2, label=model)
        if log:
            panel.set_xscale("log")
        panel.set(xlabel=labels.get(x, x), ylabel=labels.get(field, field), title=data or "")
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    save_figure(canvas, path, dpi=130)


def draw_epsilon(results, path):
    """Figure 4: utility over epsilon."""
    labels = {"epsilon_asked": "epsilon", "auroc": "AUROC", "auprc": "AUPRC"}
    draw_lines(results, path, "epsilon_asked", ("auprc", "auroc"), log=True, labels=labels)


def draw_curve_rows(results, path):
    """Utility over the number of training rows."""
    labels = {"rows": "training rows", "auroc": "AUROC on real rows", "two_way_tvd": "two-way TVD to all training rows"}
    draw_lines(results, path, "rows", ("auroc", "two_way_tvd"), log=True, labels=labels)


def draw_curve_epsilon(results, path):
    """Utility over epsilon, of a fixed number of training rows."""
    labels = {"auroc": "AUROC on real rows", "two_way_tvd": "two-way TVD to all training rows"}
    labels["epsilon_asked"] = "epsilon"
    draw_lines(results, path, "epsilon_asked", ("auroc", "two_way_tvd"), log=True, labels=labels)


def draw_components(results, path):
    """Figure 5: accuracy over the number of latent dimensions."""
    draw_lines(results, path, "n_components", ("accuracy",), log=True, labels={"n_components": "latent dimensions"})


def draw_dimensions(results, path):
    """Figure 6: AUROC over the number of columns."""
    draw_lines(results, path, "dimension", ("auroc",), labels={"dimension": "columns", "auroc": "AUROC"})


def draw_steps(results, path):
    """Figure 7: reconstruction error and utility over the steps of DP-SGD."""
    labels = {"share": "share of the steps", "error": "squared error of a row", "auroc": "AUROC"}
    draw_lines(results, path, "share", ("error", "accuracy", "auroc"), labels=labels)


def draw_split(results, path):
    """Figure 8: utility over the encoder's share of the budget."""
    labels = {"encoder_share": "encoder's share of the budget", "auroc": "AUROC", "auprc": "AUPRC"}
    draw_lines(results, path, "encoder_share", ("auroc", "auprc"), labels=labels)


def draw_accounting(results, path):
    """Figure 9: epsilon of the same noise by four accountings."""
    kinds = {
        "epsilon_pld": "PLD",
        "epsilon_rdp": "RDP",
        "epsilon_paper": "paper's RDP",
        "epsilon_baseline": "zCDP + MA",
    }
    canvas = new_figure((7, 3.4))
    panel = canvas.subplots()
    at = np.arange(len(results))
    for k, (field, label) in enumerate(kinds.items()):
        panel.bar(at + (k - 1.5) / 5, [result[field] for result in results], 1 / 5, label=label)
    panel.set_xticks(at, [result["data"] for result in results])
    panel.set_ylabel("epsilon at delta 1e-5")
    panel.legend(fontsize=8)
    save_figure(canvas, path, dpi=130)


def _values(results, field):
    return list(dict.fromkeys(result.get(field) for result in results))


def _has(results, data, field):
    return any(result.get("data") == data and _number(result, field) is not None for result in results)


def _number(result, field):
    value = value_of(result, field)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
