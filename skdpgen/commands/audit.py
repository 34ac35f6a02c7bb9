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


def add(commands):
    """Register the command."""
    command = add_command(commands, "audit", run, "bound the epsilon of a model from below, by fits of made-up rows")
    command.add_argument(
        "model", metavar="MODEL", nargs="+", help="estimators of this package: DPPCA, DPGaussianMixture, ...; or: all"
    )
    command.add_argument("--epsilon", type=float, default=10.0, metavar="E", help="what a fit claims; default: 10")
    command.add_argument("--delta", type=float, metavar="D", help="default: 1e-5")
    command.add_argument("--runs", type=int, default=200, metavar="N", help="fits with the canary, and without")
    command.add_argument("--confidence", type=float, default=0.95, metavar="C")
    command.add_argument(
        "--method",
        choices=["counts", "shift", "scale", "distribution_free"],
        help="default: by what was charged; scale needs ten runs alone",
    )
    command.add_argument("--columns", type=int, default=4, metavar="K", help="of the made-up rows; default: 4")
    add_settings(command)
    command.add_argument("--plan", action="store_true", help="fit twice, and print what the audit would take and show")
    command.add_argument("--json", action="store_true", help="print the result as JSON, a line for each model")


def run(arguments):
    import numpy as np

    if arguments.columns < 1:
        raise ValueError(f"--columns must be positive; got {arguments.columns}")
    X = np.random.default_rng(0).uniform(-1, 1, (50, arguments.columns))
    models = _models(arguments.model)
    settings = read_settings(arguments.set)
    for name in models:
        try:
            print(_judge(name, X, settings, arguments), flush=True)
        except ValueError as error:
            if len(models) == 1:
                raise
            print(f"{name}: nothing can be said: {error}", flush=True)


def _judge(name, X, settings, arguments):
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
    estimator.set_params(**declared)
    if arguments.plan:
        result = plan_audit(estimator, X, n_runs=arguments.runs, confidence=arguments.confidence)
    else:
        options = {"confidence": arguments.confidence, "method": arguments.method}
        result = audit(estimator, X, n_runs=arguments.runs, **options)
        if arguments.json:
            return json.dumps({"model": name, "parameters": declared, **result.to_dict()})
    shown = ", ".join(f"{key}={value}" for key, value in declared.items())
    return f"{name}({shown}): {result}"


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
