"""Constructor parameters that a card or a model file holds, of this version and of earlier ones."""

from __future__ import annotations

from .._parameters import LatentMixture, PrivacyUnit, make_objects

__all__ = ["of_today", "recorded_parameters"]

# Names of earlier versions: the names that they have now.
_RENAMED = {
    "l2_bound_sample": "gradient_bound",
    "l2_bound_group": "group_gradient_bound",
    "lr": "learning_rate",
    "n_latent": "n_components",
}
# Of each fit, and not of the model.
_LEFT_OUT = ("epsilon", "delta", "neighboring", "accountant", "random_state", "noise")
# Entries of `budget_split`, where it was a list.
_ENTRIES = {2: ("moments", "decoder"), 3: ("encoder", "mixture", "decoder")}
_DEFAULT_SHARES = {"bounds": 0.05, "clusters": 0.1}


def recorded_parameters(card, known, model):
    """Return the constructor parameters that a card holds: all but objects of the caller and what `_LEFT_OUT` names.

    Parameters
    ----------
    card : PrivacyCard
    known : collection of str
        Parameters that the constructor has.
    model : str
        Name of the class.
    """
    given = card["model"]["parameters"] if card["model"]["name"] == model else {}
    found = {name if name in known else _RENAMED.get(name, name): value for name, value in given.items()}
    found = make_objects(of_today(found))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name in known and name not in _LEFT_OUT and not _stands_for_an_object(value)
    }


def _stands_for_an_object(value):
    return isinstance(value, str) and (value.startswith("<") or value == "inf")


def of_today(parameters):
    """Return parameters of an earlier version in the parameter objects and dicts that hold them now."""
    found = dict(parameters)
    weighting, missing, columns = (found.pop(f, None) for f in ("unit_weighting", "missing_unit", "unit_columns"))
    if weighting not in (None, "rows") or missing not in (None, "refuse") or columns is not None:
        kept = {"weighting": weighting, "missing": missing, "columns": columns}
        kept = {name: value for name, value in kept.items() if value is not None}
        found["unit"] = PrivacyUnit(found.get("unit"), found.pop("max_rows_per_unit", None), **kept)
    split = found.get("budget_split")
    if isinstance(split, list):
        found["budget_split"] = split = dict(zip(_ENTRIES.get(len(split), ()), split))
    for name, usual in _DEFAULT_SHARES.items():
        share = found.pop(f"{name}_share", usual)
        if share != usual:
            found["budget_split"] = split = {name: share, **(split or {})}
    mixture = {"n_components": "n_mixture", "covariance_type": "covariance_type", "n_iter": "em_steps"}
    mixture = {name: found.pop(old) for name, old in mixture.items() if old in found}
    if found.get("prior") == "mixture" and len(mixture) == 3 and mixture != LatentMixture().get_params():
        found["prior"] = LatentMixture(**mixture)
    return found
