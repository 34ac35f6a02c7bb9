"""A classifier trained by DP-SGD on the rows themselves: the baseline for classifiers on synthetic rows."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import nn

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import SPLIT_CONSTRAINTS, UNIT_CONSTRAINTS
from .._types import unit_of
from ..accounting import Phase
from ..data.labels import (
    class_for_all,
    class_labels,
    declared_codes,
    label_codes,
    learn_classes,
    sorted_classes,
)
from ..data.rows_per_unit import LearnedRowsMixin, max_rows_phases
from ..data.scaling import check_bounds, learn_scaling, scaling_phases
from ..data.units import read_groups, take_groups
from ..dpsgd._plan import plan_of_fit
from ..dpsgd._seeding import torch_seeded
from ..exceptions import InvalidInputError
from ..mechanisms import add_gaussian, histogram
from ..mechanisms._gaussian import Count, upper_bound
from ..utils.progress import shows_bars
from ..utils.validation import (
    Interval,
    StrOptions,
    as_sizes,
    check_model_size,
    fit_context,
    validate_data,
    validate_rows,
)
from ._callbacks import ParameterAverage
from ._dp_net import DPNet, check_template
from ._networks import mlp
from ._parameters import check_made, check_sizes

# Share of the budget for the number of rows, a denominator: its noise has little effect.
_ROWS_SHARE = 0.01
# Rows of one forward pass of a prediction.
_PREDICTED = 4096


class ClassifierModule(nn.Module):
    """Layers with ReLU between them; gives logits, shape (batch, n_classes).

    Parameters
    ----------
    n_features, n_classes : int
    hidden_layer_sizes : tuple of int, default=(100,)
        Widths of the hidden layers; empty for a linear classifier.
    """

    def __init__(self, n_features, n_classes, hidden_layer_sizes=(100,)):
        super().__init__()
        self.layers = mlp(n_features, check_sizes("hidden_layer_sizes", hidden_layer_sizes), n_classes)

    def forward(self, X):
        """Logits of rows of shape (batch, n_features)."""
        return self.layers(X)


class DPNetClassifier(ClassifierMixin, LearnedRowsMixin, PrivateEstimator):
    """Neural network classifier trained by DP-SGD: it releases its parameters, and nothing else about the rows.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Epsilon of a fit; ``numpy.inf`` is ordinary training, None the remaining budget of `accountant`.
    delta : float or None, default=None
        Delta of a fit; None is the accountant's, or 1e-5 without an accountant.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None is the accountant's, or "add_or_remove_one" without an accountant.
    accountant : PrivacyAccountant or None, default=None
        Accountant to charge; None: a new one with this budget.
    bounds : pair (low, high), one pair for each column, or None, default=None
        Public bounds of the values, which are clipped to them and scaled. None: learned.
    classes : sequence or None, default=None
        Public classes of y. None: learned; rows of classes that the noise hides are not used.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of learned `bounds`, and of learned `classes`, and the default.
        Whatever is declared costs nothing.
    hidden_layer_sizes : sequence of int, default=(100,)
        Widths of the hidden layers of the default network; empty for a linear classifier.
    sampling_rate : float, default=0.02
        Probability with which a record, or a unit with all its rows, takes part in a step; public.
    steps : int, default=500
        Steps of DP-SGD; public.
    gradient_bound : float, default=1.0
        Norm to which the gradient of one record, or of one unit, is clipped.
    net : DPNet or None, default=None
        Template, which is cloned, for ``net__lr``, ``net__optimizer``, ``net__callbacks``. Its module is made with
        ``n_features`` and ``n_classes`` and gives logits. None: `ClassifierModule` with Adam at a learning rate of
        0.01, and the parameters averaged over the last steps.
    unit : column name, PrivacyUnit or None, default=None
        Who is protected, where a person may have several rows: all rows with one identifier, in this column of a
        DataFrame or in `groups` of `fit`. The column is not a feature. A `PrivacyUnit` also says how the rows of a unit
        count. None: one row.
    max_rows_per_unit : int or None, default=None
        With units: rows of a unit that are used, at most; of a unit with more, they are drawn at random. Public. None:
        learned from a part of the budget, and released as `max_rows_per_unit_`.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    device : str, default="cpu"
        Torch device of the training, such as "cpu" or "cuda".
    random_state : int, RandomState instance or None, default=None
        Seed of the initial parameters, never of the noise: two fits with one seed differ.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar of each phase that takes over a second. "auto": on a terminal and in a notebook,
        unless the fit is one of a search; not in pipes, log files, worker processes and threads.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        The accountant that was charged.
    card_ : PrivacyCard
    classes_ : array of shape (n_classes,)
        Declared or released.
    max_rows_per_unit_ : int
        Declared or released; with units.
    module_ : torch module
        Trained, on the CPU.
    parameters_ : array of shape (n_parameters,)
        Its released parameters as one vector.
    scaling_ : RowScaling
        Declared or released bounds.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Tables with columns of several kinds need a pipeline with public facts:
    ``make_pipeline(TableEncoder(schema), DPNetClassifier(bounds=(-1, 1)))``.

    References
    ----------
    .. [1] M. Abadi, A. Chu, I. Goodfellow, B. McMahan, I. Mironov, K. Talwar, L. Zhang, Deep learning with
       differential privacy, CCS 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen.nn import DPNetClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DPNetClassifier(10.0, bounds=(0, 16), classes=range(10), steps=200, sampling_rate=0.1).fit(X, y)
    >>> model.predict(X[:5]).shape, model.predict_proba(X[:5]).shape
    ((5,), (5, 10))
    """

    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "bounds": ["array-like", None],
        "classes": ["array-like", range, None],
        **SPLIT_CONSTRAINTS,
        "hidden_layer_sizes": ["array-like"],
        "sampling_rate": [Interval(Real, 1e-6, 1, closed="both")],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
        "net": [DPNet, None],
        **UNIT_CONSTRAINTS,
        "device": [str],
        "progress": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        bounds=None,
        classes=None,
        budget_split=None,
        hidden_layer_sizes=(100,),
        sampling_rate=0.02,
        steps=500,
        gradient_bound=1.0,
        net=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        device="cpu",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.bounds, self.classes, self.budget_split = bounds, classes, budget_split
        self.hidden_layer_sizes, self.sampling_rate, self.steps = hidden_layer_sizes, sampling_rate, steps
        self.gradient_bound, self.net = gradient_bound, net
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.device, self.random_state, self.progress = noise, device, random_state, progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, groups=None):
        """Train on rows and their classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, one row for each person, or with `groups` several.
        y : array-like of shape (n_samples,)
            Classes.
        groups : array-like of shape (n_samples,), default=None
            Identifiers of the units of the rows, of any dtype; for a DataFrame they may be its column `unit`.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            The data do not fit the declared facts; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row with its class, or all rows of one `unit`, under `neighboring`. Charged before
        anything is released, as one composed event that costs (`epsilon`, `delta`): `steps` Poisson-sampled Gaussian
        releases of clipped gradient sums; one Gaussian release for each of bounds, classes and `max_rows_per_unit` that
        is not declared (classes also spend a tenth of `delta`), and one for the number of rows, or of units, where that
        is private.
        """
        return self._fit(X, y, groups)

    def _prepare(self, X, y, accountant, groups=None):
        validate_data(self, y=_not_none(y), skip_check_array=True)
        X, groups = take_groups(self, X, groups)
        X = validate_rows(self, X, order=None)
        y = _check_y(y, len(X))
        ids = read_groups(groups, len(X), self._unit, self._asked_unit.missing)
        bounds = check_bounds(self.bounds, X.shape[1])
        declared = None if self.classes is None else sorted_classes(self.classes)
        if declared is not None:
            declared_codes(y, declared)  # refuses other labels
        share = self._share("bounds")
        phases = [*max_rows_phases(self._unit, share), *scaling_phases(self.bounds, 1.0, share)]
        if declared is None:
            phases.append(Phase("classes", share))
        if accountant.neighboring == "add_or_remove_one" or ids is not None:
            phases.append(Phase("rows", _ROWS_SHARE))
        left = 1 - sum(phase.share for phase in phases)
        if left <= 0:
            raise ValueError(f'"bounds": {share:g} of budget_split leaves nothing for the network: lower it')
        phases.append(Phase("network", left, steps=self.steps, sampling_rate=self.sampling_rate))
        # refuse, before the charge, a network that cannot be trained with any classes
        check_template(self.net, nn.CrossEntropyLoss)
        n_classes = 2 if declared is None else len(declared)
        trial = self._make_net(X.shape[1], n_classes, None)
        trial.check(np.zeros((2, X.shape[1]), dtype=np.float32), np.zeros(2, dtype=np.int64))
        with torch.inference_mode(), torch_seeded(0, self.device):
            shape = trial.module_(torch.zeros(3, X.shape[1], device=self.device)).shape
        if shape != (3, n_classes):
            raise ValueError(
                f"the module of net gives shape {tuple(shape)}; logits of shape {(3, n_classes)} are needed"
            )
        plan = self._calibrate(accountant, phases, learns_names=declared is None)
        return (X, y, bounds, declared, ids), plan

    def _complete(self, rows, plan, rng):
        X, y, bounds, declared, ids = rows
        noise, units, sizes = plan.noise_multipliers, None, None
        if ids is not None:
            kept, plan = self._keep_rows(ids, plan, rng)
            X, y, units, sizes = X[kept.rows], y[kept.rows], kept.codes, kept.unit_sizes
        relation = plan.relation
        self.scaling_ = learn_scaling(X, bounds, 1.0, noise, rng, relation, unit_sizes=sizes)
        if declared is None:
            kept = learn_classes(y, noise["classes"], plan.extra_delta, rng, relation, unit_sizes=sizes)
            # all labels are of one kind, so the first says what stands for all of them
            self.classes_ = np.array(kept or class_for_all(np.array(y[:1].tolist()).dtype))
            codes = label_codes(y, kept) if kept else np.zeros(len(y), dtype=np.int64)
        else:
            self.classes_, codes = declared, declared_codes(y, declared)
        n_rows = Count(float(len(X)), float(len(X)))
        if "rows" in noise:
            n_rows = _row_count(len(X), noise["rows"], rng, relation, sizes)
        net = self._train(X, codes, units, n_rows, plan)
        self.module_ = net.module_.cpu().eval()
        self.parameters_ = nn.utils.parameters_to_vector(self.module_.parameters()).detach().numpy()
        assumptions = [
            f"{name}: declared public by the caller"
            for name in ("bounds", "classes")
            if getattr(self, name) is not None
        ]
        if self.net is not None:
            assumptions.append("net: an object of the caller's, taken for public")
        assumptions.append("number and order of columns, kind (dtype) of y")
        self._issue_card(plan, rng, assumptions, (net.noise_description_, net.noise_private_))

    def _make_net(self, n_features, n_classes, plan):
        if self.net is None:
            sizes = as_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
            numbers = sum(a * b for a, b in zip((n_features, *sizes), (*sizes, n_classes)))
            check_model_size(numbers, hidden_layer_sizes=sizes)
            net = DPNet(ClassifierModule, lr=1e-2, callbacks=[ParameterAverage(0.98)], module__hidden_layer_sizes=sizes)
        else:
            if tuple(self.hidden_layer_sizes) != (100,):
                raise ValueError("hidden_layer_sizes belongs to the default network: leave it out with net=")
            check_made(self.net, ("n_features", "n_classes"), ClassifierModule)
            net = clone(self.net)
        return net.set_params(
            criterion=nn.CrossEntropyLoss,
            plan=plan,
            noise=self.noise,
            device=self.device,
            random_state=self._seed(),
            verbose=2 if shows_bars(self.progress) else 0,
            module__n_features=n_features,
            module__n_classes=n_classes,
        )

    def _train(self, X, codes, units, rows, plan):
        known = codes >= 0
        scaled = self.scaling_.transform(X[known]).astype(np.float32)
        own = {"least": 0.0, "l2_bound": self.gradient_bound}
        dpsgd = plan_of_fit(self, plan, plan.noise_multipliers["network"], rows, **own)
        net = self._make_net(X.shape[1], len(self.classes_), self._receipt.cover(dpsgd))
        net.set_params(progress_text=f"epsilon {plan.epsilon:.3g}")
        return net.fit(scaled, codes[known].astype(np.int64), groups=None if units is None else units[known])

    def predict_proba(self, X):
        """Return the probability of each class, shape (n_samples, n_classes); private values for private rows."""
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        scaled = torch.from_numpy(self.scaling_.transform(X).astype(np.float32))
        with torch.inference_mode():
            logits = torch.cat([self.module_(part) for part in scaled.split(_PREDICTED)])
            return torch.softmax(logits.double(), dim=1).numpy()

    def predict(self, X):
        """Return the most probable class of each row; private values for private rows."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def score(self, X, y, sample_weight=None):
        """Return the share of rows whose most probable class is theirs; computed without protection, do not publish."""
        predicted = np.array(self.predict(X).tolist())
        y = np.array(class_labels(y, len(predicted)).tolist())
        if (y.dtype.kind == "U") != (predicted.dtype.kind == "U"):  # scikit-learn's message holds a label
            raise InvalidInputError("y and the classes of the fit must both be text, or both numbers")
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # with a few hundred rows at epsilon 1, most is noise
        return tags


def _not_none(y):
    if y is None:
        raise ValueError("DPNetClassifier requires y to be passed, but the target y is None")
    return y


def _check_y(y, n_rows):
    """Return class labels as an array of numbers, text or truth values; refuse numbers with a fraction."""
    column_or_1d(np.empty(np.asarray(y).shape), warn=True)  # scikit-learn's warning for labels in a column
    y = class_labels(y, n_rows)
    check_classification_targets(np.array(y.tolist()))
    return y


def _row_count(n_rows, noise_multiplier, rng, relation, unit_sizes=None):
    """Release the number of rows, or of units: at least the noise's standard deviation, because it is a denominator."""
    rows = histogram(np.zeros(n_rows, dtype=np.int64), 1, unit_sizes)
    least = noise_multiplier * (1 if (unit := unit_of(relation)) is None else unit.weight)
    released = add_gaussian(rows, noise_multiplier, rng, relation)
    most = upper_bound(released, noise_multiplier * rows.sensitivity(relation))
    return Count(max(float(released[0]), least, 1.0), most)
