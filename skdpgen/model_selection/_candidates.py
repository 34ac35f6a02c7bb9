"""The candidates of a search: fixed before any of them sees a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sklearn.model_selection import ParameterGrid, ParameterSampler

__all__ = ["REFUSED", "list_candidates"]

# The search pays for its candidates: what they cost, and where, is not for them to say.
REFUSED = ("epsilon", "delta", "neighboring", "accountant")


def list_candidates(param_grid, n_candidates, random_state):
    """Return the candidates as a list of dicts.

    Parameters
    ----------
    param_grid : dict or list of dict
        Lists of values, or with `n_candidates` also distributions with ``rvs``.
    n_candidates : int or None
        None is every combination; else so many drawn.
    random_state : int, RandomState or None
        Of the draw.

    Raises
    ------
    ValueError
        For an empty grid, fewer than two candidates, a refused parameter, or a distribution without `n_candidates`.
    """
    grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
    if not isinstance(grids, Sequence) or isinstance(grids, str) or not all(isinstance(g, Mapping) for g in grids):
        raise ValueError("param_grid must be a dict of lists (or distributions), or a list of such dicts")
    for grid in grids:
        refused = [name for name in grid if str(name).split("__")[-1] in REFUSED or name == "noise"]
        if refused:
            raise ValueError(
                f"the grid holds {', '.join(map(repr, refused))}: the search pays for its candidates, all at one cost; "
                "give epsilon, delta, neighboring, accountant and noise to PrivateSearchCV itself"
            )
    if n_candidates is None:
        drawn = [name for grid in grids for name, values in grid.items() if hasattr(values, "rvs")]
        if drawn:
            raise ValueError(f"{', '.join(map(repr, drawn))}: a distribution needs n_candidates")
        candidates = list(ParameterGrid(list(grids))) if grids else []
    else:
        candidates = list(ParameterSampler(list(grids), n_candidates, random_state=random_state)) if grids else []
    if len(candidates) < 2:
        raise ValueError(
            f"the grid holds {'no candidate' if not candidates or candidates == [{}] else 'one candidate'}: "
            "there is nothing to choose, and a search costs more than a fit; fit the estimator itself"
        )
    return candidates
