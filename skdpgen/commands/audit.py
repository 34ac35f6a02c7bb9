"""`skdpgen audit`: does a model lose less than it claims?"""

from __future__ import annotations

from ._arguments import add_command, add_settings, read_settings

__all__ = ["add", "run"]

# What is declared, so that little but the model is released, and a canary tells most of that: every record takes part
# in the one step of a network, and what costs time and no privacy is short.
DECLARED = {
    "bounds": (-1, 1),
    "l2_bound": 1.0,
    "n_subsets": 10,
    "pretrain_steps": 2,
    "start_steps": 2,
}
NETWORK = {"sampling_rate": 1.0, "steps": 1, "warm_start_steps": 2}
# Made-up rows and columns. By likelihood one column shows as much as many; released counts must be far above their
# noise, or what is centred on a released mean has the canary in its middle.
ROWS, COLUMNS = {"likelihood": 2000}, {"likelihood": 1}


def add(commands):
    """Register the command."""
    command = add_command(commands, "audit", run, "bound the epsilon of a model from below, by fits of made-up rows")
    command.add_argument(
        "model",
        metavar="MODEL",
        nargs="+",
        help="estimators of this package: DPPCA, DPGaussianMixture, ...; or: all; or: DPNet, one training by DP-SGD "
        "among many canaries (--set steps=, sampling_rate=; n_groups= for term-wise DP-SGD)",
    )
    command.add_argument("--epsilon", type=float, default=10.0, metavar="E", help="what a fit claims; default: 10")
    command.add_argument("--delta", type=float, metavar="D", help="default: 1e-5")
    runs = command.add_mutually_exclusive_group()
    runs.add_argument("--runs", type=int, default=200, metavar="N", help="fits with the canary, and without")
    runs.add_argument(
        "--fits",
        type=int,
        metavar="N",
        help="noisy fits in all, half of them with the canary; without --method this is --method likelihood, for which "
        "several hundred are enough at any epsilon",
    )
    command.add_argument("--confidence", type=float, default=0.95, metavar="C")
    command.add_argument(
        "--method",
        choices=["likelihood", "counts", "shift", "scale", "distribution_free"],
        help="default: by what was charged; scale needs ten runs alone",
    )
    command.add_argument(
        "--columns", type=int, metavar="K", help="numeric columns of the made-up rows; default: 4, 1 by likelihood"
    )
    command.add_argument("--rows", type=int, metavar="N", help="made-up rows; default: 50, 2000 by likelihood")
    command.add_argument(
        "--learned",
        action="store_true",
        help="declare nothing: bounds and norms are learned, and categories of one more column for models of tables",
    )
    command.add_argument(
        "--noise-scale",
        type=float,
        default=1.0,
        metavar="S",
        help="of the noise that fits draw, over what they state; with 0.5 the audit must refute the claim (likelihood)",
    )
    command.add_argument("--canaries", type=int, default=20_000, metavar="N", help="of DPNet; default: 20000")
    add_settings(command)
    command.add_argument("--plan", action="store_true", help="fit twice, and print what the audit would take and show")
    command.add_argument("--json", action="store_true", help="print the result as JSON, a line for each model")


def run(arguments):
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
    if arguments.model == ["DPNet"]:
        print(_judge_training(settings, arguments))
        return
    models = _models(arguments.model)
    for name in models:
        try:
            print(_judge(name, settings, arguments), flush=True)
        except ValueError as error:
            if len(models) == 1:
                raise
            print(f"{name}: nothing can be said: {error}", flush=True)


def _judge(name, settings, arguments):
    import json

    import skdpgen

    from ..audit import audit, plan_audit

    estimator = getattr(skdpgen, name)(epsilon=arguments.epsilon, delta=arguments.delta)
    known = estimator.get_params(deep=False)
    if refused := sorted(set(settings) - set(known)):
        raise ValueError(f"{name} has no parameter {', '.join(refused)}")
    # a model that may have a network and has none takes nothing of the kind
    network = {} if settings.get("decoder", known.get("decoder")) == "released" else NETWORK
    declared = {key: value for key, value in {**DECLARED, **network, **settings}.items() if key in known}
    if arguments.learned:
        declared = {
            key: value for key, value in declared.items() if key in settings or key not in ("bounds", "l2_bound")
        }
    estimator.set_params(**declared)
    X = _rows(arguments, arguments.learned and "schema" in known)
    options = {"n_runs": arguments.runs, "confidence": arguments.confidence, "method": arguments.method}
    if arguments.plan:
        result = plan_audit(estimator, X, **options)
    else:
        result = audit(estimator, X, noise_scale=arguments.noise_scale, progress=True, **options)
        if arguments.json:
            return json.dumps({"model": name, "parameters": declared, **result.to_dict()})
    shown = ", ".join(f"{key}={value}" for key, value in declared.items())
    return f"{name}({shown}): {result}"


def _judge_training(settings, arguments):
    import json

    from ..accounting import noise_multiplier_for, poisson_gaussian_event
    from ..audit import audit_training
    from ..dpsgd import DPSGDPlan, TermwisePlan

    kind = TermwisePlan if "n_groups" in settings else DPSGDPlan
    known = {"sampling_rate", "steps"}
    known |= {"n_groups", "sample_bound", "group_bound"} if kind is TermwisePlan else {"l2_bound"}
    if refused := sorted(set(settings) - known):
        raise ValueError(f"DPNet has no parameter {', '.join(refused)} here; it has {', '.join(sorted(known))}")
    delta = 1e-5 if arguments.delta is None else arguments.delta
    given = {"sampling_rate": 1.0, "steps": 1, **({"l2_bound": 1.0} if kind is DPSGDPlan else {}), **settings}
    rate, steps = given["sampling_rate"], given["steps"]
    noise = noise_multiplier_for(
        lambda z: poisson_gaussian_event(rate, z, steps), arguments.epsilon, delta, "add_or_remove_one"
    )
    plan = kind(noise_multiplier=noise, expected_batch_size=rate * arguments.canaries / 2, **given)
    options = {"confidence": arguments.confidence, "noise_scale": arguments.noise_scale}
    result = audit_training(plan, delta=delta, canaries=arguments.canaries, **options)
    if arguments.json:
        return json.dumps({"model": "DPNet", "parameters": given, **result.to_dict()})
    shown = ", ".join(f"{key}={value}" for key, value in given.items())
    return f"DPNet({shown}): {result}"


def _rows(arguments, table):
    """Made-up rows: an array, or a table with a column of categories."""
    import numpy as np

    X = np.random.default_rng(0).uniform(-1, 1, (arguments.rows, arguments.columns))
    if not table:
        return X
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(arguments.columns)])
    return frame.assign(group=np.resize(["a", "b"], arguments.rows))


def _models(given):
    import skdpgen

    from .._base import PrivateEstimator

    names = [name for name in skdpgen.__all__ if _is_model(getattr(skdpgen, name), PrivateEstimator)]
    if given == ["all"]:
        return names
    for name in given:
        if name not in names:
            raise ValueError(f"MODEL must be one of {', '.join(names)}, or all; got {name}")
    return given


def _is_model(found, base):
    if not (isinstance(found, type) and issubclass(found, base)):
        return False
    return "estimator" not in found._get_param_names()  # a search has no fit of its own to audit
