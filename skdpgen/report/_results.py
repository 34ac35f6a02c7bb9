"""Results of `skdpgen bench` as one table: data, model, epsilon, and the scores that are better the higher they are."""

from __future__ import annotations

import json
import math

import pandas as pd

from ..exceptions import InvalidInputError
from ..utils.strict_json import read_json

__all__ = ["SCORES", "read_results", "results_table"]

SCORES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "cnn": "accuracy of a CNN",
    "mlp": "accuracy of an MLP",
    "lr": "accuracy of a logistic regression",
    "log_likelihood": "log-likelihood",
}
# Of a file of results: characters of a line, and lines.
_MOST_BYTES = 2**20
_MOST_LINES = 1_000_000
# What a cell was run with that makes no other line: its place in the picture, or one of the repeats.
_PLACE = {"run", "seeds", "epsilon", "budgets", "models", "policies", "table", "dataset", "settings"}
# What a result says of itself that makes another line.
_OWN = ("setting", "n_components", "encoder_share", "dimension", "step", "steps")


def read_results(path):
    """Return the lines of a file of ``skdpgen bench --output``, a list of dict; half a line at its end is left out."""
    results = []
    with open(path, "rb") as file:
        while line := file.readline(_MOST_BYTES + 1):
            try:
                results.append(read_json(line, most_bytes=_MOST_BYTES, finite=False))
            except ValueError:
                continue
            if len(results) > _MOST_LINES:
                raise InvalidInputError(f"{path}: more than {_MOST_LINES:,} results")
    if not any(isinstance(result, dict) for result in results):
        raise InvalidInputError(f"{path}: holds no JSON lines, as skdpgen bench --output writes them")
    return results


def results_table(results):
    """Return a frame of results that have a model and one of `SCORES`; a cell that was run again counts once.

    Parameters
    ----------
    results : list of dict

    Returns
    -------
    DataFrame
        Columns data, model, epsilon (to three digits; infinite without privacy) and those of `SCORES` that occur.
        Options that differ between results on the same data are in the name of the model.

    Raises
    ------
    InvalidInputError
        No result has a model and a score.
    """
    kept = {}
    for number, result in enumerate(results):
        if not isinstance(result, dict) or "model" not in result:
            continue
        if any(_number(result.get(name)) is not None for name in SCORES):
            cell = result.get("cell")
            key = number if cell is None else (json.dumps(cell, sort_keys=True), result.get("part"))
            kept[key] = result
    if not kept:
        raise InvalidInputError(f"the results have no model with one of the scores {', '.join(SCORES)}")
    kept = list(kept.values())
    data = [str(result.get("data") or result.get("dataset") or result.get("benchmark") or "data") for result in kept]
    options = [_options(result) for result in kept]
    seen = {}
    for name, own in zip(data, options):
        for option in set().union(*options):
            seen.setdefault((name, option), set()).add(own.get(option, ""))
    rows = []
    for result, name, own in zip(kept, data, options):
        differ = [(option.replace("_", " "), value) for option, value in own.items() if len(seen[name, option]) > 1]
        apart = [option if value == "True" else f"{option} {value}" for option, value in differ if value]
        scores = {score: _number(result.get(score)) for score in SCORES}
        rows.append(
            {"data": name, "model": ", ".join([str(result["model"]), *apart]), "epsilon": _epsilon(result), **scores}
        )
    frame = pd.DataFrame(rows)
    scores = frame[list(SCORES)].astype(float).dropna(axis="columns", how="all")
    return pd.concat([frame[["data", "model", "epsilon"]], scores], axis="columns")


def _options(result):
    """What makes a line of its own, as text; empty for what is off."""
    cell = result.get("cell")
    found = {name: value for name, value in cell.items() if name not in _PLACE} if isinstance(cell, dict) else {}
    found |= {name: result[name] for name in _OWN if name in result}
    return {name: str(value) if value else "" for name, value in found.items()}


def _epsilon(result):
    """The epsilon asked for, if the fit was private: what a card says differs from it by a little, and by the seed."""
    own = _number(result.get("epsilon"))
    asked = own if own is not None and math.isinf(own) else _number(result.get("epsilon_asked", own))
    asked = own if asked is None else asked
    return math.inf if asked is None else float(f"{asked:.3g}")


def _number(value):
    try:
        value = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(value) else value
