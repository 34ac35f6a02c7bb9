"""Input of a report: two tables of comparable rows, and results of benchmarks as one table."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import InvalidInputError
from ..metrics._samples import as_frame, column_kind, each_distinct, to_numbers
from ..utils.strict_json import read_json


def align(real, synthetic):
    """Return both as frames of the same columns, in the order of the real ones, and of comparable values.

    Two files of one table may be read as other dtypes: integers where missing values make floats, numbers where all
    categories that occur are digits.

    Raises InvalidInputError: columns of one table that the other lacks, numbers or dates against text; cells are not
    shown.
    """
    real = as_frame(real)
    synthetic = as_frame(synthetic, like=real)
    missing = [str(name) for name in real.columns if name not in synthetic.columns]
    extra = [str(name) for name in synthetic.columns if name not in real.columns]
    if missing or extra:
        raise InvalidInputError(
            f"the tables have different columns: only in the real one {missing}, only in the synthetic one {extra}; "
            "leave out columns by --drop"
        )
    if not len(real) or not len(synthetic):
        raise InvalidInputError("both tables need at least one row")
    real, synthetic = real.reset_index(drop=True), synthetic[list(real.columns)].reset_index(drop=True)
    for name in real.columns:
        if column_kind(real[name]) != "category":
            to_numbers(synthetic[name])  # refuses text
            if pdt.is_datetime64_any_dtype(real[name]) != pdt.is_datetime64_any_dtype(synthetic[name]):
                raise InvalidInputError(f"column {name!r}: dates in one table and numbers in the other")
        else:
            real, synthetic = categories(real, name), categories(synthetic, name)
    return real, synthetic


def categories(frame, name):
    """Return the frame with the values of a column as categories, whatever they are; `align` makes others follow."""
    frame = frame.copy(deep=False)
    frame[name] = _texts(frame[name])  # `assign` would add a column of text beside one that a number names
    return frame


def _texts(column):
    """Categories as text: 1, 1.0 and "1" are the same."""
    return pd.Series(each_distinct(column, _one_text), index=column.index, dtype=object, name=column.name)


def _one_text(value):
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def some_rows(frame, most, rng):
    """Return the frame, or `most` rows of it drawn at random."""
    places = some_places(len(frame), most, rng)
    return frame if places is None else frame.iloc[places].reset_index(drop=True)


def some_places(n_rows, most, rng):
    """Return the places of `most` rows drawn at random, in order; None where there are no more."""
    return None if n_rows <= most else np.sort(rng.choice(n_rows, most, replace=False))


def halves(frame, share, rng, units=None):
    """Split rows at random, by an independent draw for each row; with at least two rows neither part is empty.

    With the identifiers `units` of the rows the draws are for units, whose rows stay together.
    """
    if units is None:
        codes = np.arange(len(frame))
    else:
        codes = pd.factorize(pd.Series(np.asarray(units, dtype=object)), use_na_sentinel=False)[0]
    drawn = rng.random(int(codes.max(initial=-1)) + 1) < share
    if len(drawn) > 1 and (drawn.all() or not drawn.any()):
        drawn[0], drawn[1] = True, False
    first = drawn[codes]
    return frame[first].reset_index(drop=True), frame[~first].reset_index(drop=True)


# ---- results of benchmarks -----------------------------------------------------------------------------------------
SCORES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "cnn": "accuracy of a CNN",
    "mlp": "accuracy of an MLP",
    "lr": "accuracy of a logistic regression",
    "log_likelihood": "log-likelihood",
}
# Characters of a line, and lines, that are read of a file of results.
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

    Returns: columns data, model, epsilon (to three digits; infinite without privacy) and those of `SCORES` that occur.
        Options that differ between results on the same data are in the name of the model.
    Raises InvalidInputError: no result has a model and a score.
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
    """Options that make a separate line, as text; empty for an option that is off."""
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
