"""`skdpgen audit`: is the epsilon of a model at most the claimed one?"""

from __future__ import annotations

import json
from dataclasses import asdict

from .._types import WEIGHTINGS
from ._arguments import add_quiet, add_settings, check_budget, find_models, make_model, objects_of, read_settings

# Declared, so that few values but the model are released, and the canary affects most of them: every record takes part
# in the single step of a network, and phases that cost time and no privacy are short.
DECLARED = {"bounds": (-1, 1), "l2_bound": 1.0}
TRAINING = {"sampling_rate": 1.0, "steps": 1, "warm_start_steps": 2, "n_subsets": 10, "pretrain_steps": 2}
# Dummy rows and columns. By likelihood one column shows as much as many. Released counts must be far above their noise:
# otherwise rows centred on a released mean have the canary in their middle.
ROWS, COLUMNS = {"likelihood": 2000}, {"likelihood": 1}
RUNS, CANARIES = 200, 20_000
# Options that say how fits of dummy rows are compared: a training among canaries has neither rows nor methods.
_OF_FITS = ("runs", "method", "columns", "rows", "learned", "plan", "unit_rows")


def add(command):
    """Register the options."""
    command.add_argument(
        "model",
        metavar="MODEL",
        nargs="+",
        help="estimators of this package, such as DPPCA; or all; or DPNet: one training by DP-SGD among many canaries, "
        "or with --fits N, N short trainings with one canary (settings: --set steps=, sampling_rate=, and n_groups= "
        "for term-wise DP-SGD)",
    )
    _add_comparison(command)
    _add_rows(command)
    command.add_argument(
        "--noise-scale",
        type=float,
        metavar="S",
        help="ratio of the noise that fits draw to the noise that they state; with 0.5 the audit must refute the claim "
        "(likelihood only)",
    )
    command.add_argument(
        "--canaries", type=int, metavar="N", help="number of canaries, for DPNet alone (default: 20000)"
    )
    add_settings(command)
    add_quiet(command)
    command.add_argument(
        "--plan", action="store_true", help="fit twice, and print the cost of the audit and the claims it can test"
    )
    command.add_argument("--json", action="store_true", help="print one JSON line for each model")


def _add_comparison(command):
    """What is claimed, and how many fits are compared in which way."""
    command.add_argument(
        "--epsilon", type=float, default=10.0, metavar="E", help="claimed epsilon of a fit (default: 10)"
    )
    command.add_argument("--delta", type=float, metavar="D", help="claimed delta of a fit (default: 1e-5)")
    runs = command.add_mutually_exclusive_group()
    runs.add_argument(
        "--runs",
        type=int,
        metavar="N",
        help="number of fits with the canary, and of fits without (default: 200)",
    )
    runs.add_argument(
        "--fits",
        type=int,
        metavar="N",
        help="number of noisy fits in all, half of them with the canary; without --method this selects --method "
        "likelihood, for which several hundred fits are enough at any epsilon",
    )
    command.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="confidence of the bound (default: 0.95)"
    )
    command.add_argument(
        "--method",
        choices=["likelihood", "counts", "shift", "scale", "distribution_free"],
        help="how fits are compared (default: chosen by the events that were charged); scale needs only ten runs",
    )


def _add_rows(command):
    """The dummy rows, and what is declared of them."""
    command.add_argument(
        "--columns",
        type=int,
        metavar="K",
        help="number of numeric columns of the dummy rows (default: 4; by likelihood 1)",
    )
    command.add_argument("--rows", type=int, metavar="N", help="number of dummy rows (default: 50; by likelihood 2000)")
    command.add_argument(
        "--learned",
        action="store_true",
        help="declare nothing: fits learn bounds and norms, and models of tables the categories of one more column",
    )

    command.add_argument(
        "--unit-rows",
        type=int,
        metavar="K",
        help="protect units of at most K rows: the canary is a unit of K equal rows (default: one row)",
    )
    command.add_argument(
        "--unit-weighting",
        choices=WEIGHTINGS,
        metavar="W",
        help="with --unit-rows: rows or units, as in skdpgen synthesize (default: rows)",
    )


def run(arguments):
    if arguments.unit_rows is None and arguments.unit_weighting is not None:
        raise ValueError("--unit-weighting needs --unit-rows")
    check_budget(arguments)
    one_training = arguments.model == ["DPNet"]
    _refuse_unused(arguments, one_training)
    arguments.noise_scale = 1.0 if arguments.noise_scale is None else arguments.noise_scale
    if one_training:
        print(_audit_training(read_settings(arguments.set), arguments))
        return
    if arguments.runs is None:
        arguments.runs = RUNS
    if arguments.fits is not None:
        arguments.method = arguments.method or "likelihood"
        arguments.runs = arguments.fits // 2
    if arguments.columns is None:
        arguments.columns = COLUMNS.get(arguments.method, 4)
    if arguments.rows is None:
        arguments.rows = ROWS.get(arguments.method, 50)
    for name in ("columns", "rows"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be positive; got {getattr(arguments, name)}")
    settings = read_settings(arguments.set)
    models = find_models("MODEL", arguments.model)
    for name in models:
        try:
            print(_audit_model(name, settings, arguments), flush=True)
        except ValueError as error:
            if len(models) == 1:
                raise
            print(f"{name}: no result: {error}", flush=True)


def _refuse_unused(arguments, one_training):
    """Refuse options that would do nothing here."""
    given = vars(arguments)
    if one_training:
        unused, reason = _OF_FITS, "DPNet is audited by trainings among canaries: give --canaries, or --fits"
        if arguments.fits is not None:
            unused, reason = (*_OF_FITS, "canaries"), "with --fits each training of DPNet has one canary"
    elif arguments.plan:
        unused, reason = ("canaries", "noise_scale"), "a plan only tells what the audit would cost and show"
    else:
        unused, reason = ("canaries",), "canaries are for DPNet"
    if named := [f"--{name.replace('_', '-')}" for name in unused if given[name] not in (None, False)]:
        raise ValueError(f"{', '.join(named)} has no effect here; {reason}")


def _audit_model(name, settings, arguments):
    from .._parameters import PrivacyUnit
    from ..audit import audit, plan_audit

    estimator = make_model(name, {"epsilon": arguments.epsilon, "delta": arguments.delta, **settings})
    training, settings = settings.get("training", {}), objects_of(type(estimator), settings)
    known = estimator.get_params(deep=False)
    if arguments.unit_rows is not None:
        if "max_rows_per_unit" not in known:
            raise ValueError(f"{name} has no units")
        weighting = arguments.unit_weighting or WEIGHTINGS[0]
        units = {"unit": PrivacyUnit("unit", arguments.unit_rows, weighting=weighting)}
        settings = {**units, **settings}
        estimator.set_params(**units)
    declared = {**DECLARED, **{key: TRAINING[key] for key in ("steps", "warm_start_steps")}, **settings}
    # a model that can train a network and trains none takes no parameter of its training
    if "training" in known and known.get("decoder", "net") == "net":
        declared["training"] = _short_training(type(estimator), training)
    declared = {key: value for key, value in declared.items() if key in known}
    if arguments.learned:
        declared = {
            key: value for key, value in declared.items() if key in settings or key not in ("bounds", "l2_bound")
        }
    estimator.set_params(**declared)
    X = _rows(arguments, arguments.learned and "schema" in known)
    options = {"n_runs": arguments.runs, "confidence": arguments.confidence, "method": arguments.method}
    if arguments.plan:
        result = plan_audit(estimator, X, **options)
        found = asdict(result)
    else:
        result = audit(estimator, X, noise_scale=arguments.noise_scale, progress=not arguments.quiet, **options)
        found = result.to_dict()
    if arguments.json:
        return json.dumps({"model": name, "parameters": _stated(declared), **found})
    shown = ", ".join(f"{key}={value}" for key, value in declared.items())
    return f"{name}({shown}): {result}"


def _short_training(model, given):
    """The training of an audited network: as was asked for, and otherwise short."""
    from .._parameters import object_of

    if not isinstance(given, dict):
        raise ValueError("--set training= sets nothing by itself: give --set training__steps=100 and the like")
    defaults = model._training_defaults  # a model without a warm start by default has none here
    short = {key: value for key, value in TRAINING.items() if defaults.get(key, 0) != 0}
    return object_of(model, "training")(**{**short, **given})


def _stated(parameters):
    """Parameters as JSON holds them."""
    return {
        name: value.get_params(deep=False) if hasattr(value, "get_params") else value
        for name, value in parameters.items()
    }


def _audit_training(settings, arguments):
    from ..accounting import noise_multiplier_for, poisson_gaussian_event
    from ..audit import audit_training, audit_trainings
    from ..dpsgd import DPSGDPlan, TermwisePlan

    kind = TermwisePlan if "n_groups" in settings else DPSGDPlan
    known = {"sampling_rate", "steps"}
    known |= {"n_groups", "sample_bound", "group_bound"} if kind is TermwisePlan else {"l2_bound"}
    if refused := sorted(set(settings) - known):
        raise ValueError(f"DPNet has no parameter {', '.join(refused)} here; it has {', '.join(sorted(known))}")
    delta = 1e-5 if arguments.delta is None else arguments.delta
    canaries = CANARIES if arguments.canaries is None else arguments.canaries
    given = {"sampling_rate": 1.0, "steps": 1, **({"l2_bound": 1.0} if kind is DPSGDPlan else {}), **settings}
    rate, steps = given["sampling_rate"], given["steps"]
    noise = noise_multiplier_for(
        lambda z: poisson_gaussian_event(rate, z, steps), arguments.epsilon, delta, "add_or_remove_one"
    )
    plan = kind(noise_multiplier=noise, expected_batch_size=rate * canaries / 2, **given)
    options = {"delta": delta, "confidence": arguments.confidence, "noise_scale": arguments.noise_scale}
    options["progress"] = not arguments.quiet
    if arguments.fits is None:
        result = audit_training(plan, canaries=canaries, **options)
    else:
        result = audit_trainings(plan, trainings=arguments.fits, **options)
    if arguments.json:
        return json.dumps({"model": "DPNet", "parameters": given, **result.to_dict()})
    shown = ", ".join(f"{key}={value}" for key, value in given.items())
    return f"DPNet({shown}): {result}"


def _rows(arguments, table):
    """Dummy rows: an array, or a table with a column of categories."""
    import numpy as np

    X = np.random.default_rng(0).uniform(-1, 1, (arguments.rows, arguments.columns))
    if not table:
        return X
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(arguments.columns)])
    return frame.assign(group=np.resize(["a", "b"], arguments.rows))
