"""MomentSynthesizer: a generator fitted, as post-processing, to one Gaussian release of moments."""

from __future__ import annotations

from ..data.frames import FrameRows
from ..data.validation import validate_input
from ..utils.progress import shows_bars
from ._array_model import fit_array_model
from ._budget import MomentSettings
from ._frame_model import fit_frame_model
from ._moment_base import MOMENT_CONSTRAINTS, BaseMomentSynthesizer

__all__ = ["MomentSynthesizer"]


class MomentSynthesizer(BaseMomentSynthesizer):
    """Generative model fitted to the noisy moments of each class: one-way and two-way tables, or means and covariances.

    Releases noisy class-conditional moments and nothing else: for a DataFrame the one-way and two-way tables of its
    columns within every class (all classes together cost what one costs) and what they cannot show of three columns;
    for an array the means and second moments of every class. Everything after that is post-processing and costs
    nothing: a latent mixture is fitted to the released moments, with their known noise. No network is trained; a fit
    takes seconds. It is the class-conditional prior of `P3GMSynthesizer`, with more kinds of input (chunks, Parquet
    files, dask) and of output (rows given the values of selected columns, rows that satisfy constraints).

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of a fit. ``numpy.inf`` is the non-private reference; None spends all that is left of
        `accountant`.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee; None: that of `accountant`, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None: that of `accountant`, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        Accountant that the fit charges; None makes a new one with this budget.
    target : column name, list of them, or None, default=None
        DataFrames: column on which the model of the other columns is conditional, such as a class label; with several,
        every combination of levels is a class. `sample` then gives one frame.
    schema : Schema or None, default=None
        DataFrames: public facts. What it leaves open is learned under the same budget.
    classes : sequence or None, default=None
        Public classes of y or `target`. None: learned, charged to the same budget.
    target_type : {"categorical", "numeric"} or None, default=None
        Kind of y or `target`; None is numeric if its dtype is float.
    importance : dict or None, default=None
        DataFrames: weights of columns, {name: weight}, from 1e-6 to 1e6; public. The error of the tables of a column
        counts with its weight; a column that is not named has weight 1. A table of two columns has the product of their
        weights.
    constraints : sequence of str or None, default=None
        DataFrames: what every synthetic row satisfies, beside the constraints of `schema`; public. Differences, sums,
        combinations, mappings and consequences (``"start <= end"``, ``"total == a + b"``, ``"combinations(state,
        city)"``, ``"if dead == 'yes': left is None"``) are satisfied by construction; of other conditions, such as
        ``"age >= 16 or job == 'none'"``, rows that violate one are drawn again, and you may change these after the fit.
    bounds : pair (low, high), one pair a column, or None, default=None
        Arrays: public bounds of the values, which are clipped to them. None: learned.
    l2_bound : float or None, default=None
        Arrays: public bound of the norm of a row after its columns are scaled to the unit box. None: learned.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images; the moments are then those of the low frequencies of a cosine
        basis. A row has its pixels line by line, and the channels of a pixel side by side. Three channels are red,
        green and blue; their differences have half as many frequencies along each side.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default. Half of it is for the row norm, a fifth for the number of rows of a
        table without numbers. "target", for DataFrames with a categorical target and without `unit`: share of a model
        of the target, which is fitted to synthetic rows and corrected by one private gradient, and then decides the
        class of each sampled row. .05 is a good value from about 4,000 rows at epsilon 1 on. Without this entry there
        is no such model.
    on_invalid : {"clip", "raise"}, default="clip"
        Whether values outside declared bounds, and rows that violate a constraint by construction, are clipped or
        refused.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions; "auto" is at most 30 for DataFrames, 60 for arrays and 400 for images, None is no
        reduction.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise: a cryptographic generator, or a faster one.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation and of the sampling stream. It never seeds the noise: two fits with one seed differ.
    progress : bool or "auto", default="auto"
        Whether to show progress bars on stderr. "auto": where it is a terminal, and the fit is not one of a search.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        Accountant that the fit charged.
    card_ : PrivacyCard
    classes_ : array, or list of arrays
        Released or declared classes; a list with several targets.
    class_ratio_ : array
        Released share of each class, with an axis a target.
    rest_ratio_ : dict
        Released share of "other" and of missing values (None) of the target, which are no classes.
    row_count_ : float
        Released number of rows; ``sample()`` draws as many.
    unit_count_ : float
        DataFrames with `unit`: released number of units.
    rows_per_unit_ : Series
        DataFrames with `unit`: released share of the units, by their number of rows used (from each to the next).
    schema_ : Schema
        DataFrames: schema with the declared or released bounds and categories; y is the last column.
    summary_ : FitSummary
        DataFrames: what the fit kept and lost of each column, from released values: it may be published.
    bounds_ : array of shape (n_features, 2)
        Arrays: declared or released bounds of each column.
    model_ : object
        Released state.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    `fit` takes a DataFrame in chunks, too: a list of DataFrames with the same columns, a function that returns an
    iterable of them (called several times), a path or list of paths of Parquet files, or a dask DataFrame, whose
    partitions are summed where they lie. The rows of a unit may lie in several chunks. y and `groups` are for rows in
    memory.

    **Privacy.** Beside the events that `fit` names, it charges one event for a second look at rare facts (twice the
    part of a kind of fact), one for the ranges of numbers far from zero (that part), one for columns of more than 128
    declared categories (twice that part, for all of them together), one for the moments (which covers two releases
    where columns have more than 200 learned categories; three for arrays: mean, norms about it, second moments; of
    images grey pixels too, and sub-clusters of the classes where noise is low), for tables of 3 to 24 columns beside
    the target one for the interactions of all triples of columns, and with `unit` one for tables of the units, of its
    `columns` and of their number of rows, and one for its `shared` columns. With "target" in `budget_split` it charges
    one event for the clipped gradient.

    The squared sensitivity of all tables of a DataFrame is the number of tables in one class (weighted): a row has one
    level in each column and is in one class. So more classes or levels do not raise the cost.

    Examples
    --------
    >>> from skdpgen import MomentSynthesizer
    >>> from skdpgen.datasets import load_breast_cancer_table
    >>> table = load_breast_cancer_table()
    >>> schema = table.schema.select(["mean radius", "mean texture", "mean smoothness", "diagnosis"])
    >>> synth = MomentSynthesizer(8.0, schema=schema, target="diagnosis").fit(table.frame[list(schema)])
    >>> rows = synth.sample(50, given={"diagnosis": "malignant", "mean radius": (15, None)})
    >>> rows.shape, set(rows["diagnosis"]), bool((rows["mean radius"] >= 15).all())
    ((50, 4), {'malignant'}, True)
    """

    _split_names = ("bounds", "target")
    _parameter_constraints = {
        **MOMENT_CONSTRAINTS,
        "importance": [dict, None],
        "image_shape": ["array-like", None],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        importance=None,
        constraints=None,
        bounds=None,
        l2_bound=None,
        image_shape=None,
        budget_split=None,
        on_invalid="clip",
        n_components="auto",
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.l2_bound, self.image_shape = bounds, l2_bound, image_shape
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components = n_components
        self.importance, self.constraints = importance, constraints
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        rows = validate_input(self, X, y, groups)
        if not isinstance(rows, FrameRows):
            rows.check_components(self.n_components)
        model = MomentSettings(self.n_components, shows_bars(self.progress))
        model, plan = self._plan(rows, model, accountant)
        return (rows, model), plan

    def _release(self, rows, settings, fit):
        """Release the moments; the model is a function of them."""
        return (fit_frame_model if isinstance(rows, FrameRows) else fit_array_model)(rows, settings, fit)
