"""`skdpgen audit`: does a model lose less than it claims?"""

from __future__ import annotations

from ._arguments import add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "audit", run, "bound the epsilon of a model from below, by fits of made-up rows")
    command.add_argument("model", metavar="MODEL", help="an estimator of this package: DPPCA, DPGaussianMixture, ...")
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
    command.add_argument("--plan", action="store_true", help="fit twice, and print what the audit would take and show")
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments):
    import json

    import numpy as np

    import skdpgen
    from skdpgen._base import PrivateEstimator
    from skdpgen.audit import audit, plan_audit

    names = [name for name in skdpgen.__all__ if _is_model(getattr(skdpgen, name), PrivateEstimator)]
    if arguments.model not in names:
        raise ValueError(f"MODEL must be one of {', '.join(names)}; got {arguments.model}")
    if arguments.columns < 1:
        raise ValueError(f"--columns must be positive; got {arguments.columns}")
    X = np.random.default_rng(0).uniform(-1, 1, (50, arguments.columns))
    estimator = getattr(skdpgen, arguments.model)(epsilon=arguments.epsilon, delta=arguments.delta)
    declared = {"bounds": (-1, 1), "l2_bound": 1.0}  # one release, on which a canary tells most
    estimator.set_params(**{name: value for name, value in declared.items() if name in estimator.get_params()})
    plan = plan_audit(estimator, X, n_runs=arguments.runs, confidence=arguments.confidence)
    if arguments.plan:
        print(plan)
        return
    result = audit(estimator, X, n_runs=arguments.runs, confidence=arguments.confidence, method=arguments.method)
    print(json.dumps(result.to_dict()) if arguments.json else result)


def _is_model(found, base):
    if not (isinstance(found, type) and issubclass(found, base)):
        return False
    return "estimator" not in found._get_param_names()  # a search has no fit of its own to audit
