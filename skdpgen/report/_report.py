"""The report: synthetic rows beside real ones on one page, by the figures and pictures of `skdpgen.metrics`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .. import __version__
from .._types import unit_of
from ..metrics._samples import as_frame, without_keys
from ..tabular import Schema
from ..utils.atomic import write_atomically
from ..utils.printing import listed
from ..utils.progress import progress_bar, shows_bars
from ._inputs import align, categories, results_table
from ._page import SEARCH, page
from ._sections import Sections, check_images, images, latent_space, mixture_of, rows_of_model, utility
from ._units import UnitColumn, split_units

_BANNER = (
    "This page is computed from real rows. Do not publish it, and do not send it to anyone who may not see the real "
    "rows.",
    "Its figures and pictures are exact functions of the real rows: they have no noise, and no privacy budget was "
    "charged for them. You may publish the synthetic rows, the released model and the privacy card.",
)


@dataclass(frozen=True)
class Report:
    """A finished report.

    Attributes
    ----------
    html : str
        The page.
    figures : dict of str to float
        Its main figures, by name.
    """

    html: str = field(repr=False)
    figures: dict

    def save(self, path):
        """Write the page to a file, UTF-8, which its owner alone may read."""
        write_atomically(path, self.html, mode=0o600)


def build_report(
    real,
    synthetic,
    *,
    schema=None,
    card=None,
    model=None,
    image_shape=None,
    results=None,
    target=None,
    positive=None,
    test=None,
    classifier=None,
    title="Synthetic rows beside real ones",
    max_rows=20_000,
    max_columns=40,
    random_state=0,
    progress="auto",
    unit=None,
):
    """Compare synthetic with real rows on one self-contained HTML page, for the data holder alone.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        Tables with the same columns, in any order.
    schema : Schema, default=None
        Public bounds and categories. Of columns that it does not list, and where it is None, the bins reach over the
        real range, and the page says so.
    card : PrivacyCard, default=None
        Privacy card of the fit that made the synthetic rows; it is verified. None: the card of `model`.
    model : fitted synthesizer, default=None
        As ``skdpgen.load`` reads it: its latent space is drawn with the released mixture, and with the real rows where
        they can be encoded.
    image_shape : (height, width) or (height, width, channels), default=None
        The rows are images, a column a pixel, beside the target: grids of images and `prdc` replace the sections on
        columns and their pairs. The target is then their class, whatever its values.
    results : list of dict, default=None
        Lines of ``skdpgen bench``: utility against epsilon is drawn.
    target : column name, default=None
        Column to predict by a model trained on synthetic rows.
    positive : scalar, default=None
        Positive class of the target. None: the rarer of two classes; other targets are scored as they are.
    test : as `real`, default=None
        Real rows that were not fitted, to test on; None holds out a third of `real`, which the synthesizer may have
        seen, and the page says so.
    classifier : classifier or regressor, default=None
        None is histogram gradient boosting. Of a target of numbers: several regressors, as `tstr_regression` takes
        them; None is also ridge regression, and a random forest whose trees have 5,000 rows at most.
    title : str
    max_rows : int, default=20000
        Largest number of rows used of each table, drawn at random if there are more; the page says so.
    max_columns : int, default=40
        Largest number of columns whose pairs and triples are measured; of more, the target and others drawn at random.
        The page says so.
    random_state : int, default=0
        Seed of the choice of rows and of folds.
    progress : bool or "auto", default="auto"
        Whether to show a bar on stderr, after two seconds. "auto": where stderr is a terminal.
    unit : column name, default=None
        Column of identifiers of persons, or other units, that have several rows each; `synthetic` may lack it. It is
        compared with nothing: the page shows how many rows units have and how similar the rows of one unit are, and
        the rows of one unit are in one half of the real rows.

    Returns
    -------
    Report
        ``html``, ``figures`` and ``save(path)``.

    Raises
    ------
    InvalidInputError
        Tables of other columns or kinds, or that do not fit `model` or `image_shape`; results without scores.
    ValueError
        The card is not consistent, is not that of `model`, or `model` has nothing to add to it.
    ImportError
        matplotlib is not installed (the extra ``plot``).

    Notes
    -----
    **Leak.** The page is an exact function of the real rows: it is never to be published.
    """
    _check_options(max_rows, max_columns)
    if model is not None:
        card = _card_of(model, card)
    verified = None if card is None else card.verify()
    results = None if results is None else results_table(results)
    real, encoded, pixels = _real_rows(real, model, image_shape, target)
    real, synthetic, test, units = _without_units(real, synthetic, test, unit, target, card)
    real, synthetic = align(*(without_keys(rows, schema) for rows in (real, synthetic)))
    undeclared = [] if schema is None else [name for name in real.columns if name not in schema]
    schema = _of_all_columns(schema, real)
    test = None if test is None else align(real, without_keys(test, schema))[1]
    of_images, rng = pixels is not None, np.random.default_rng(random_state)
    writer = Sections(
        real, synthetic, schema, max_rows, max_columns, rng, of_images=of_images, target=target, units=units
    )
    if undeclared and not of_images:
        writer.said.append(
            f"Not in the schema: {listed(undeclared)}. Their bins reach over the range of the real rows, which is not "
            "public."
        )
    work = [("privacy card", lambda: [writer.privacy(card, verified)])]
    if of_images:
        work.append(("images", lambda: [images(writer, pixels, image_shape, target)]))
    else:
        work += _of_columns(writer)
    if units is not None:
        work.append(("units", lambda: [writer.units_of_rows()]))
    work.append(("detection", lambda: [writer.detection(random_state, of_images=of_images)]))
    if target is not None:
        work.append(("models of the target", lambda: [writer.use(target, positive, test, classifier)]))
    if model is not None:
        work.append(("latent space", lambda: [latent_space(model, encoded, _labels(real, target), rng)]))
    if results is not None:
        work.append(("results", lambda: [utility(results)]))
    return _report_of(writer, _computed(work, shows_bars(progress)), title)


def _of_all_columns(schema, real):
    """The schema of the columns of the real rows; of those that it does not list, what their dtypes say."""
    if schema is None or list(schema) == list(real.columns):
        return schema
    known = [name for name in real.columns if name in schema]
    if not known:
        return schema.select(list(real.columns))  # refuses them
    return Schema.from_kinds(real, schema.select(known))


def _without_units(real, synthetic, test, unit, target, card):
    """The tables without the column of identifiers, and this column; None without a unit."""
    if unit is None:
        return real, synthetic, test, None
    if unit == target:
        raise ValueError(f"unit={unit!r} is the target too, and identifiers are not compared")
    synthetic = as_frame(synthetic, like=real)
    real, of_real = split_units(real, unit)
    if of_real is None or of_real.isna().all():
        raise ValueError(f"unit={unit!r} is not a column of the real rows with identifiers")
    if not len(real.columns):
        raise ValueError(f"the real rows have no column beside {unit!r}")
    synthetic, of_synthetic = split_units(synthetic, unit)
    test = None if test is None else split_units(as_frame(test), unit)[0]
    relation = None if card is None else unit_of(card.relation)
    most = None if relation is None else relation.max_rows
    return real, synthetic, test, UnitColumn(unit, of_real, of_synthetic, most)


def _check_options(max_rows, max_columns):
    """Refuse a report that could not be made, before anything is computed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the report's pictures need matplotlib: pip install matplotlib") from error
    if min(max_rows, max_columns) < 2:
        raise ValueError("max_rows and max_columns must be at least 2")


def _of_columns(writer):
    """The sections on columns, their combinations and their pairs: what each is on, and what computes it."""

    def columns():
        lost = writer.lost_categories()
        return [writer.columns(), lost]

    return [
        ("quality", lambda: writer.quality() or []),
        ("columns", columns),
        ("combinations", lambda: [writer.combinations()]),
        ("pairs of columns", lambda: [writer.pairs()]),
    ]


def _computed(work, shown):
    """The sections, beside a bar that names the one that is computed."""
    sections = []
    with progress_bar(work, phase="report", shown=shown, unit="section", delay=2) as bar:
        for name, compute in bar:
            bar.set_description(f"report: {name}")
            sections += compute()
    return sections


def _labels(real, target):
    """The classes of the target as text, for the colours of a picture; None without a target, or of many values."""
    return None if target is None or real[target].nunique() > 10 else real[target].astype(str).to_numpy()


def _report_of(writer, sections, title):
    """The page of all sections, between their summary and the notes, which the sections have added to."""
    sections = [writer.summary(), *sections, writer.notes()]
    footer = f"Made by skdpgen {__version__}, from the files alone; nothing on this page is fetched from a network."
    return Report(page(title, _BANNER, sections, footer, script=SEARCH), writer.figures)


def _real_rows(real, model, image_shape, target):
    """The real rows as a frame, what the model makes of them, and the pixels of images; None where there are none."""
    real = as_frame(real)
    if target is not None and target not in real.columns:
        raise ValueError(f"the target {target!r} is not a column")
    encoded = None if model is None else rows_of_model(model, real, target)
    pixels = None if image_shape is None else check_images(real, image_shape, target)
    if pixels is not None and target is not None:
        real = categories(real, target)
    return real, encoded, pixels


def _card_of(model, card):
    """The card of a model, where it is the one given or none was, and the model has something to draw."""
    own, name = model.card_, type(model).__name__
    if card is None:
        return own
    if not card.same_fit(own):
        raise ValueError(f"the card is not that of the {name}: give the card of its fit, or none")
    if mixture_of(model) is None:
        raise ValueError(f"the {name} has no released mixture to draw, and its card is given: leave it out")
    return card
