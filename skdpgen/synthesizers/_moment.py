"""MomentSynthesizer: a generator fitted, as post-processing, to one Gaussian release of moments."""

from __future__ import annotations

from ..data.frames import FrameRows
from ..data.validation import validate_input
from ..utils.progress import shows_bars
from ._array_model import fit_array_model
from ._frame_model import fit_frame_model
from ._moment_base import MOMENT_CONSTRAINTS, BaseMomentSynthesizer
from ._phases import MomentSettings


class MomentSynthesizer(BaseMomentSynthesizer):
    """Generative model fitted to the noisy moments of each class: one-way and two-way tables, or means and covariances.

    The fit releases noisy moments of each class, and nothing else. For a DataFrame these are the one-way and two-way
    tables of its columns, and interactions of three columns; for an array, the means and second moments. All classes
    together cost as much as one. The fit then computes a latent mixture from the released moments and their known
    noise. This is post-processing and costs nothing. The fit trains no network, and takes seconds. The model is that of
    `P3GMSynthesizer` with ``decoder="released"``. More kinds of input are possible: chunks, Parquet files, dask, and
    several targets.

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
        DataFrames: column on which the model of the other columns is conditional, such as a class label. If there are
        several, every combination of their levels is a class. `sample` then returns one frame.
    schema : Schema or None, default=None
        DataFrames: public facts about the columns. The fit learns other facts within the same budget.
    classes : sequence or None, default=None
        Public classes of y or `target`. None: learned, charged to the same budget.
    target_type : {"categorical", "numeric"} or None, default=None
        Kind of y or `target`; None is numeric if its dtype is float.
    importance : dict or None, default=None
        DataFrames: weights of columns, {name: weight}, from 1e-6 to 1e6; public. The fit minimises the errors of the
        tables, each multiplied by the weight of its column, or by the product of the weights of its two columns. A
        column that is not named has weight 1.
    constraints : sequence of str or None, default=None
        DataFrames: public conditions that every synthetic row satisfies, in addition to the constraints of `schema`.
        Differences, sums, combinations, mappings and consequences (``"start <= end"``, ``"total == a + b"``,
        ``"combinations(state, city)"``, ``"if dead == 'yes': left is None"``) are satisfied by construction. For other
        conditions, such as ``"age >= 16 or job == 'none'"``, `sample` draws a row again if it violates one; you may
        change these conditions after the fit.
    bounds : pair (low, high), one pair a column, or None, default=None
        Arrays: public bounds of the values, which are clipped to them. None: learned.
    l2_bound : float or None, default=None
        Arrays: public bound of the norm of a row after its columns are scaled to the unit box. None: learned.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. The moments are then those of the low frequencies of a cosine
        basis. A row has its pixels line by line, and the channels of a pixel side by side. Three channels are red,
        green and blue; the differences between them have half as many frequencies along each side.
    budget_split : dict or None, default=None
        Shares of the budget. "bounds", .05 by default, is the share of each kind of fact that is learned (schema, bins
        of numeric columns; bounds, classes). The row norm costs half of it, and the number of rows of a table without
        numbers a fifth. "target", .1 by default, is the share of a model of the target, for DataFrames with a
        categorical target and without `unit`. This model is fitted to synthetic rows, corrected by one private
        gradient, and decides the class of each sampled row. 0 is no such model. Where the noise would hide the gradient
        (at epsilon 1 below about 1,500 rows), the share is spent on the moments.
    on_invalid : {"clip", "raise"}, default="clip"
        What to do with values outside declared bounds and with rows that violate a constraint. "clip": the values are
        clipped, and so are rows that violate a constraint by construction; "raise": the fit refuses them, before the
        charge.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions; "auto" is at most 30 for DataFrames, 60 for arrays and 400 for images, None is no
        reduction.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected if a person may have several rows, and how many rows are used.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise: a cryptographic generator, or a faster one.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation and of the sampling stream. It never seeds the noise: two fits with one seed differ.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar of each phase that takes over a second. "auto": on a terminal and in a notebook,
        unless the fit is one of a search; not in pipes, log files, worker processes and threads.

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
        DataFrames with `unit`: released share of the units, by their number of used rows. The index has the smallest
        number of each level.
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
    `fit` also takes a DataFrame in chunks: a list of DataFrames with the same columns, a function that
    returns an iterable of them (called several times), a path or list of paths of Parquet files, or a dask DataFrame,
    whose workers sum their own partitions. The rows of a unit may be in several chunks. y and `groups` need rows in
    memory.

    **Privacy.** In addition to the events that `fit` names, it charges one event for each of these releases:

    - a second count of numbers and dates of few rows, or else a third one of rare categories (.3 of what the other
      facts and the model of the target leave), a second release of rare facts (twice the share "bounds"), and the
      ranges of numbers far from zero (that share);
    - columns of more than 128 declared categories (twice that share, for all of them together);
    - the moments. If columns have more than 200 learned categories, this event covers two releases. For arrays there
      are three events: mean, norms about the mean, second moments; for images also grey pixels, and, if the noise is
      low, sub-clusters of the classes;
    - interactions of all triples, for tables of 3 to 24 columns beside the target;
    - with `unit`, tables of the units, their `columns` and their number of rows; and the `shared` columns;
    - with a model of the target (see `budget_split`), the clipped gradient.

    The squared sensitivity of all tables of a DataFrame is the (weighted) number of tables in one class, because a row
    has one level in each column and is in one class. So more classes or levels do not increase the cost.

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
