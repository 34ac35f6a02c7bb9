"""Constructor parameters that a card or a model file holds, of this version and of earlier ones."""

from __future__ import annotations

from .._parameters import GroupDivergence, LatentMixture, PrivacyUnit, grouped_parameters, make_objects

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


def recorded_parameters(card, owner):
    """Return the constructor parameters that a card holds: all but objects of the caller and what `_LEFT_OUT` names.

    `owner`: class of the synthesizer.
    """
    known = owner._get_param_names()
    given = card["model"]["parameters"] if card["model"]["name"] == owner.__name__ else {}
    found = {name if name in known else _RENAMED.get(name, name): value for name, value in given.items()}
    found = {name: _without_objects(value) for name, value in found.items() if not _stands_for_an_object(value)}
    found = make_objects(owner, grouped_parameters(owner, of_today(found)))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name in known and name not in _LEFT_OUT
    }


def _without_objects(value):
    """A dict of the parameters of an object without those that stand for objects of the caller."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if not _stands_for_an_object(inner)}


def _stands_for_an_object(value):
    return isinstance(value, str) and (value.startswith("<") or value == "inf")


def of_today(parameters):
    """Return parameters of an earlier version in the parameter objects and dicts that hold them now."""
    found = dict(parameters)
    if "start" in found and found.pop("start") == "random":
        found.pop("start_steps", None)
        found["warm_start_steps"] = 0
    elif "start_steps" in found:
        found["warm_start_steps"] = found.pop("start_steps")
    found.pop("latent_variance", None)
    if found.get("alpha", 0) is None:
        found["alpha"] = GroupDivergence().alpha
    if "encoder" in found:
        own = found.pop("encoder"), found.pop("decoder", None)
        if own != (None, None):
            found["architecture"] = [found.get("architecture", "auto") if part is None else part for part in own]
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
