"""Public facts about one column: its kind, its bounds or categories, and its dtype."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ..utils.categories import family
from ..utils.printing import shown
from ._dtypes import TEXT_DTYPES, dtype_range, fit_dtype, holds_missing, name_of_dtype, output_dtype, plain_value
from ._formats import NO_ZONES, OBJECTS, form_of, has_zone, is_date_format, seconds

# Beyond 2^53 a float64 no longer holds every integer, and all numeric columns pass through float64.
MAX_INTEGER = 2**53
# Levels of groups of a hierarchy: a group is divided by recursion.
_MOST_LEVELS = 32
# A date as text: year, month, day, with or without a time. Other notations leave open which is the day.
ISO_DATE = re.compile(r"\s*[+-]?\d{4}(?:-\d{1,2}(?:-\d{1,2}(?:[T ].*)?)?|\d{4}(?:[T ].*)?)?\s*$")
# Most point masses that are declared, and decimals of a bound up to which they count as written by a person.
_MOST_SPIKES, MOST_WRITTEN = 32, 6
_UNITS = {"D": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

# Of an identifier: text, the digits of a counter, text.
_PATTERN = re.compile(r"([^#]*)(#{1,30})([^#]*)", re.DOTALL)


def _first_twice(values):
    return next(value for value, count in Counter(values).items() if count > 1)


def _entry(value, given):
    """One value of what was given for a parameter, as a text; not of an array, which may be a column of the rows."""
    return shown(value) if isinstance(given, list | tuple) else f"a value of {shown(given)}"


def _fail(column, message):
    raise SchemaError(f"column {column.name!r}: {message}")


def unit_microseconds(column) -> int:
    """Return the length in microseconds of one step of a datetime column."""
    return _UNITS[column.resolution]


# What stands behind the name in the call of a kind of column, as an example.
_BEHIND_NAME = {
    "Numeric": "(0, 100)",
    "Datetime": '("2020-01-01", "2020-12-31")',
    "Categorical": '["yes", "no"]',
    "Identifier": 'pattern="P-####"',
}


def _example(kind):
    """Call that makes a column of a kind, as an example."""
    arguments = ", ".join(filter(None, ('"name"', _BEHIND_NAME.get(kind))))
    return f"{kind}({arguments})"


def _with_example(cls):
    """Refuse arguments that a kind of column does not take, as of Numeric("age", 0, 100), with a right call."""
    init, signature = cls.__init__, inspect.signature(cls.__init__)

    @functools.wraps(init)
    def checked(self, *args, **kwargs):
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{error}; write a column as in {_example(cls.__name__)}") from None
        init(self, *args, **kwargs)

    cls.__init__ = checked
    return cls


def _check_name(column):
    name, kind = column.name, type(column).__name__
    if isinstance(name, str | Integral) and not isinstance(name, bool | np.bool_):
        return
    said = f"a column name must be a string or an integer; got {type(name).__name__}"
    if isinstance(name, tuple) and any(isinstance(part, str) for part in name):  # of a frame with several levels
        said += ": give each column one name, as by X.columns = ['_'.join(map(str, name)) for name in X.columns]"
    if np.iterable(name):  # what stands behind the name
        said += f"; in a schema the name comes first, as in {_example(kind)}"
    raise SchemaError(said)


def _check_common(column):
    _check_name(column)
    object.__setattr__(column, "name", plain_value(column.name))
    if not isinstance(column.missing, bool | np.bool_):
        _fail(column, "missing must be True or False")
    object.__setattr__(column, "missing", bool(column.missing))


def _check_dtype(column, default, accepts, expected):
    name = default if column.dtype is None else str(column.dtype)
    try:
        dtype = output_dtype(name)
    except (TypeError, ValueError, NotImplementedError, ImportError) as error:
        raise SchemaError(f"column {column.name!r}: unknown dtype {name!r} ({error})") from None
    if name not in (*TEXT_DTYPES, *OBJECTS):
        name = name_of_dtype(dtype)
    if not accepts(dtype):
        _fail(column, f"dtype {name!r} does not fit a column of {expected}")
    if column.missing and not holds_missing(dtype):
        hint = (
            "'boolean' or 'object'"
            if dtype.kind == "b"
            else f"{name.replace('i', 'I').replace('u', 'U')!r} or 'float64'"
        )
        _fail(column, f"dtype {name!r} cannot hold missing values: declare {hint}, or missing=False")
    object.__setattr__(column, "dtype", name)


@_with_example
@dataclass(frozen=True, kw_only=True)
class Numeric:
    """A column of numbers.

    Parameters
    ----------
    name : str or int
        Name of the column.
    bounds : (float, float), default=None
        Smallest and largest value, inclusive; values outside are clipped to them. Public; None: learned under
        differential privacy.
    integer : bool, default=False
        Whether all values are integers; sampled values are integers then too.
    missing : bool, default=False
        Whether values may be missing.
    dtype : str, default=None
        dtype of decoded columns; None is int64, Int64 (integers that may be missing) or float64. "decimal" and "time"
        are objects of decimal.Decimal and datetime.time. Time spans (timedelta64, Arrow's duration) and times of the
        day are numbers of seconds, whole ones with ``integer=True``; so are their bounds, or objects of datetime.time.
    decimals : int, default=None
        Number of decimals to which decoded values are rounded. None: if the bounds are learned, so are the decimals.
        Otherwise the distance between the bounds has four significant digits; a value has at least two decimals, and at
        least those of the bounds. Only values that are drawn within a bin are then rounded.
    step : float, default=None
        Values are multiples of this number, such as 0.25 or 10_000; other values are rounded to the nearest multiple.
        Public.
    spikes : sequence of float, default=None
        At most 32 values that many rows have exactly. `sample` draws these values themselves, and not values near them.
        Public. Zero and the two bounds are always such values, and so is every integer if there are at most 128.
    """

    name: str | int = field(kw_only=False)
    bounds: Sequence | np.ndarray | None = field(default=None, kw_only=False)
    integer: bool = False
    missing: bool = False
    dtype: str | None = None
    decimals: int | None = None
    step: float | None = None
    spikes: Sequence | np.ndarray | None = None

    def __post_init__(self):
        _check_common(self)
        if not isinstance(self.integer, bool | np.bool_):
            _fail(self, "integer must be True or False")
        object.__setattr__(self, "integer", bool(self.integer))
        if self.decimals is not None and (not isinstance(self.decimals, Integral) or self.integer):
            _fail(self, f"decimals must be an integer, for a column with integer=False; got {shown(self.decimals)}")
        if self.decimals is not None and (isinstance(self.decimals, bool) or not -30 <= self.decimals <= 30):
            _fail(self, f"decimals must lie in [-30, 30]; got {shown(self.decimals)}")
        default = ("Int64" if self.missing else "int64") if self.integer else "float64"
        _check_dtype(
            self,
            default,
            lambda t: (
                form_of(self.dtype) in ("decimal", "span", "time")
                or (pdt.is_numeric_dtype(t) and not pdt.is_bool_dtype(t) and not pdt.is_complex_dtype(t))
            ),
            "numbers",
        )
        if self.bounds is None and form_of(self.dtype) == "time":
            object.__setattr__(self, "bounds", (0, 86_399))  # every time of the day
        dtype = output_dtype(self.dtype)
        if pdt.is_integer_dtype(dtype) and not self.integer:
            _fail(self, f"dtype {self.dtype!r} holds integers alone: declare integer=True")
        if self.step is not None:
            object.__setattr__(self, "step", self._checked_step())
        if self.bounds is not None:
            object.__setattr__(self, "bounds", self._checked_bounds())
        if self.spikes is not None:
            object.__setattr__(self, "spikes", self._checked_spikes())

    @property
    def whole(self) -> bool:
        """Whether values are whole multiples of a unit: of 1, or of `step`."""
        return self.integer or self.step is not None

    def _checked_step(self):
        step = plain_value(self.step)
        if not isinstance(step, Real) or isinstance(step, bool) or not 1e-30 <= step <= 1e30:
            _fail(self, f"step must be a number from 1e-30 to 1e30; got {shown(self.step)}")
        if self.decimals is not None:
            _fail(self, "step and decimals both say how values are rounded: give one of them")
        if self.integer and step != math.floor(step):
            _fail(self, f"integer=True contradicts step {step}, which is not an integer")
        if step > min(dtype_range(self.dtype)[1], MAX_INTEGER if self.integer else math.inf):
            _fail(self, f"step {step} does not fit dtype {self.dtype!r}")
        return int(step) if self.integer else float(step)

    def _checked_spikes(self):
        if isinstance(self.spikes, str) or not np.iterable(self.spikes):
            _fail(self, f"spikes must be a sequence of numbers; got {shown(self.spikes)}")
        spikes = tuple(sorted({plain_value(value) for value in self.spikes}))
        for value in spikes:
            if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
                _fail(self, f"spikes must be finite numbers; got {_entry(value, self.spikes)}")
            if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
                _fail(self, f"spike {_entry(value, self.spikes)} is not within the bounds {self.bounds}")
            smallest, largest = dtype_range(self.dtype)
            if not smallest <= value <= largest or (self.whole and abs(value) > MAX_INTEGER * (self.step or 1)):
                _fail(self, f"spike {_entry(value, self.spikes)} does not fit dtype {self.dtype!r}")
            if (self.integer and value != math.floor(value)) or (self.step and value != rounded_to(value, self.step)):
                _fail(self, f"spike {_entry(value, self.spikes)} is no value of such a column: see integer and step")
        if not 1 <= len(spikes) <= _MOST_SPIKES:
            _fail(self, f"spikes must be 1 to {_MOST_SPIKES} numbers")
        return tuple(int(value) if self.integer else float(value) for value in spikes)

    def _checked_bounds(self):
        try:
            low, high = (plain_value(bound) for bound in self.bounds)
        except (TypeError, ValueError):
            _fail(self, f"bounds must be a pair (lowest, highest); got {shown(self.bounds)}")
        if form_of(self.dtype) == "time":
            low, high = (seconds(bound) if isinstance(bound, datetime.time) else bound for bound in (low, high))
        for bound in (low, high):
            if not isinstance(bound, Real) or isinstance(bound, bool) or not math.isfinite(bound):
                _fail(self, f"bounds must be two finite numbers; got {shown(bound)}")
        if self.integer:
            if low != math.floor(low) or high != math.floor(high):
                _fail(self, f"integer=True contradicts bounds ({low}, {high}), which are not integers")
            low, high = int(low), int(high)
            if max(-low, high) > MAX_INTEGER:
                _fail(self, f"integer bounds must not exceed 2**53 in absolute value; got ({low}, {high})")
        else:
            low, high = float(low), float(high)
            if not math.isfinite(high - low):
                _fail(self, f"bounds ({low}, {high}) are too far apart for float64")
        if low >= high:
            _fail(self, f"bounds must be (lowest, highest) with lowest < highest; got ({low}, {high})")
        smallest, largest = dtype_range(self.dtype)
        if low < smallest or high > largest:
            _fail(self, f"bounds ({low}, {high}) do not fit dtype {self.dtype!r}")
        if self.step is not None:
            first, last = step_range(low, high, self.step)
            if first >= last or max(-first, last) > MAX_INTEGER:
                _fail(self, f"between the bounds ({low}, {high}) there must be two multiples of step {self.step}")
        return low, high

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be learned."""
        return self.bounds is not None


def step_range(low, high, step) -> tuple[float, float]:
    """Return how many steps the first and the last multiple of `step` within the bounds are from zero."""
    first, last = low / step, high / step

    def error(number):  # 0.3 / 0.1 is a little less than 3; at most a part of a step
        return min(1e-9 * max(1.0, abs(number)), 0.01)

    return float(math.ceil(first - error(first))), float(math.floor(last + error(last)))


def written_decimals(value) -> int:
    """Return how many decimals a number has as it is written."""
    return max(0, -Decimal(repr(float(value))).normalize().as_tuple().exponent)


def rounded_to(values, step):
    """Return numbers rounded to multiples of `step`, without the error of binary fractions: 0.3, not 3 * 0.1."""
    return np.round(np.rint(np.asarray(values, dtype=np.float64) / step) * step, written_decimals(step))


def bin_decimals(column) -> int | None:
    """Return the decimals of values that are drawn within a bin; None does not round.

    A place within a bin is drawn at random, so digits beyond its width say nothing. The rule depends on the bounds
    alone.
    """
    if not isinstance(column, Numeric) or column.whole or column.decimals is not None:
        return None
    low, high = column.bounds
    written = max((written_decimals(value) for value in (*column.bounds, *(column.spikes or ()))), default=0)
    decimals = max(2, 3 - math.floor(math.log10(high - low)), written if written <= MOST_WRITTEN else 0)
    return decimals if max(-low, high) * 10.0**decimals < MAX_INTEGER else None


@_with_example
@dataclass(frozen=True, kw_only=True)
class Categorical:
    """A column with one of finitely many values in each row.

    Parameters
    ----------
    name : str or int
        Name of the column.
    categories : sequence of str, of numbers or of bool, default=None
        The values that may occur, in the order of the levels. Public; None: learned under differential privacy.
    missing : bool, default=False
        Whether values may be missing; "missing" is then the last level.
    other : str or number, default=None
        Value that replaces every value outside `categories`; None refuses such values. Learned schemas have such a
        value.
    dtype : str, default=None
        dtype of decoded columns; None follows `categories` ("str" for text). Categories of intervals are their texts,
        such as "(0, 10]"; `other` is then a missing interval.
    ordered : bool, default=False
        Whether the order of `categories` has a meaning: decoded columns are then ordered categoricals. Needs declared
        categories and excludes `other`, which has no place in the order.
    hierarchy : mapping of str to sequence of categories or to mapping, int, or sequence of int, default=None
        Public groups of categories, by which fits model the column. A mapping gives each group name its categories;
        each category is in exactly one group, and if `categories` is None, the groups declare the categories too. A
        number of characters puts categories with the same first characters into one group. Of learned categories, the
        first characters that enough rows have are categories too: each stands for the codes of its group that are not
        learned, so "I" may stand for rare codes such as "I21". Groups may have groups: in place of categories, a group
        name may have a mapping, and a tuple of increasing numbers, such as ``(1, 3)``, gives the characters of each
        level. The fit then divides a group into its groups, and these into categories, where released counts show
        enough rows. None: a fit forms groups for a column of many categories, within its budget. The attribute is a
        tuple of pairs, the number, or the tuple of numbers.

    Raises
    ------
    SchemaError
        The facts contradict one another, or one of them is of the wrong type.

    Examples
    --------
    >>> from skdpgen.tabular import Categorical
    >>> Categorical("diagnosis", hierarchy={"circulatory": ["I10", "I21"], "digestive": ["K29"]}).categories
    ('I10', 'I21', 'K29')
    >>> Categorical("diagnosis", hierarchy=1)  # the codes are learned, and "I10" and "I21" are in one group
    Categorical(name='diagnosis', categories=None, missing=False, other=None, dtype=None, ordered=False, hierarchy=1)
    """

    name: str | int = field(kw_only=False)
    categories: Sequence | np.ndarray | pd.Index | pd.Series | None = field(default=None, kw_only=False)
    missing: bool = False
    other: str | int | float | None = None
    dtype: str | None = None
    ordered: bool = False
    hierarchy: Mapping | Sequence | int | None = None

    def __post_init__(self):
        _check_common(self)
        object.__setattr__(self, "hierarchy", self._checked_hierarchy())
        if self.categories is None and has_named_groups(self.hierarchy):
            object.__setattr__(self, "categories", tuple(value for _, value in paths_of_members(self.hierarchy)))
        self._check_order()
        if self.categories is not None:
            object.__setattr__(self, "categories", self._checked_categories())
            self._check_members()
        object.__setattr__(self, "other", plain_value(self.other))
        values = self.values or ()
        if self.other is not None and (family(self.other) is None or self.other in (self.categories or ())):
            _fail(self, f"other must be a string or number that is not one of the categories; got {shown(self.other)}")
        families = {family(value) for value in values}
        if self.categories is None and self.dtype is None:
            return  # the learned categories decide
        default = {
            "number": "float64" if any(isinstance(v, float) for v in values) else "Int64" if self.missing else "int64",
            "flag": "boolean" if self.missing else "bool",
        }.get(next(iter(families), None), "str")
        accepts = {"number": pdt.is_numeric_dtype, "flag": pdt.is_bool_dtype, "text": lambda t: False}

        def accept(dtype):
            if self.dtype == "str":  # an object column in pandas 2, which would take anything
                return families <= {"text"}
            if form_of(self.dtype) is not None:
                return form_of(self.dtype) == "interval" and families <= {"text"}
            if isinstance(dtype, pd.CategoricalDtype) or pdt.is_object_dtype(dtype):
                return True
            if pdt.is_string_dtype(dtype):
                return families <= {"text"}
            return (pdt.is_numeric_dtype(dtype) or pdt.is_bool_dtype(dtype)) and all(
                accepts[name](dtype) for name in families
            )

        _check_dtype(
            self, default if len(families) < 2 else "object", accept, f"such categories ({', '.join(sorted(families))})"
        )
        whole = self.dtype is not None and self.dtype.startswith("interval[int64")
        if whole and (self.categories is None or self.other is not None or self.missing):
            _fail(self, "intervals of int64 are never missing: declare all categories, or a dtype of float64")
        if families == {"number"} and not fit_dtype(values, self.dtype):
            _fail(self, f"its categories do not fit dtype {self.dtype!r}")

    def _check_order(self):
        if not isinstance(self.ordered, bool | np.bool_):
            _fail(self, "ordered must be True or False")
        object.__setattr__(self, "ordered", bool(self.ordered))
        if not self.ordered:
            return
        if self.categories is None or self.other is not None:
            _fail(self, "ordered=True takes declared categories, in their order, and no other")
        if self.dtype not in (None, "category"):
            _fail(
                self,
                f"ordered=True contradicts dtype {self.dtype!r}: the column that comes back is categorical. Leave out "
                'dtype, or give dtype="category"',
            )
        object.__setattr__(self, "dtype", "category")

    def _checked_hierarchy(self):
        given = plain_value(self.hierarchy)
        if given is None:
            return None
        lengths = [plain_value(x) for x in given] if isinstance(given, list | tuple | np.ndarray) else [given]
        if lengths and all(isinstance(x, int) and not isinstance(x, bool) for x in lengths):
            return self._checked_lengths(lengths)
        pairs = isinstance(given, tuple) and all(isinstance(x, tuple) for x in lengths)  # as in a checked column
        if not isinstance(given, Mapping) and not pairs:
            wrong = [x for x in lengths if not isinstance(x, int) or isinstance(x, bool)]
            of_list = wrong and isinstance(given, list | tuple | np.ndarray)
            _fail(
                self,
                "hierarchy must map the names of groups to their categories, or be a number of first characters, or a "
                f"list of such numbers; got {type(given).__name__}{f' with {wrong[0]!r}' if of_list else ''}",
            )
        return self._checked_groups(given)

    def _checked_lengths(self, lengths):
        """Number of first characters that the codes of a group share, or a tuple of them where groups have groups."""
        if str(self.dtype).startswith("interval"):
            _fail(self, f"hierarchy: categories of dtype {self.dtype!r} have no first characters; name groups of them")
        if lengths[0] < 1:
            _fail(self, f"hierarchy must be at least 1 character of a category; got {lengths[0]}")
        if len(lengths) > _MOST_LEVELS:
            _fail(self, f"hierarchy must have at most {_MOST_LEVELS} levels; got {len(lengths)}")
        if any(one >= other for one, other in itertools.pairwise(lengths)):
            _fail(self, f"hierarchy: numbers of first characters must increase; got {tuple(lengths)}")
        return tuple(lengths) if len(lengths) > 1 else lengths[0]

    def _checked_groups(self, given, within="", level=1):
        """Pairs of the name of a group and its members: categories, or such pairs."""
        if level > _MOST_LEVELS:
            _fail(self, f"hierarchy must have at most {_MOST_LEVELS} levels")
        pairs = tuple(given.items()) if isinstance(given, Mapping) else given
        if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            _fail(self, f"hierarchy{within} must map the name of one group at least to its categories")
        checked = []
        for name, members in pairs:
            if not isinstance(name, str):
                _fail(self, f"hierarchy: the name of a group must be text; got {name!r}")
            # a set has another order in every process, and an iterator is empty after one look
            if not isinstance(members, Mapping | list | tuple | np.ndarray | pd.Index | pd.Series) or not len(members):
                _fail(self, f"hierarchy: the group {name!r} must be a sequence of categories; got {shown(members)}")
            if isinstance(members, Mapping) or isinstance(next(iter(members)), tuple):
                checked.append((name, self._checked_groups(members, f": the group {name!r}", level + 1)))
            else:
                checked.append((name, tuple(map(plain_value, members))))
        if len({name for name, _ in checked}) < len(checked):
            _fail(self, f"hierarchy: two groups are named {_first_twice([name for name, _ in checked])!r}")
        return tuple(checked)

    def _check_members(self):
        """Whether every category is in exactly one group that is given by name."""
        if not has_named_groups(self.hierarchy):
            return
        group, known = {}, set(self.categories)
        for path, value in paths_of_members(self.hierarchy):
            name = path[-1]
            if family(value) is None or value not in known:
                _fail(self, f"hierarchy: {value!r} of the group {name!r} is not one of the categories")
            if value in group:
                _fail(self, f"hierarchy: {value!r} is in the groups {group[value]!r} and {name!r}")
            group[value] = name
        if absent := [value for value in self.categories if value not in group]:
            _fail(self, f"hierarchy: no group has {', '.join(map(repr, absent[:5]))}{', ...' * (len(absent) > 5)}")

    def _checked_categories(self):
        if isinstance(self.categories, str) or not np.iterable(self.categories):
            _fail(self, f"categories must be a sequence of values; got {shown(self.categories)}")
        categories = tuple(plain_value(value) for value in self.categories)
        if not categories and self.other is None:
            _fail(self, "categories must not be empty")
        for value in categories:
            if pdt.is_scalar(value) and pd.isna(value):
                _fail(self, "NaN or None among the categories: declare missing=True instead")
            if family(value) is None:
                _fail(self, f"a category must be a string, a number or a bool; got {type(value).__name__}")
            if family(value) == "number" and not math.isfinite(value):
                _fail(self, f"categories must be finite; got {_entry(value, self.categories)}")
        if len({family(value) for value in categories}) > 1:
            _fail(self, "categories of mixed types (text, numbers, bool): make them all strings")
        if len(set(categories)) < len(categories):
            twice = _entry(_first_twice(categories), self.categories)
            _fail(self, f"categories must not repeat; {twice} stands twice")
        return categories

    @property
    def values(self) -> tuple | None:
        """Values of the levels that are not missing: the categories, and `other` if there is one."""
        if self.categories is None:
            return None
        return self.categories if self.other is None else (*self.categories, self.other)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be learned."""
        return self.categories is not None


@_with_example
@dataclass(frozen=True, kw_only=True)
class Boolean:
    """A column of True and False.

    Parameters
    ----------
    name : str or int
        Name of the column.
    missing : bool, default=False
        Whether values may be missing.
    dtype : str, default=None
        dtype of decoded columns; None is bool, or boolean where values may be missing.
    """

    name: str | int = field(kw_only=False)
    missing: bool = False
    dtype: str | None = None

    def __post_init__(self):
        _check_common(self)
        _check_dtype(
            self,
            "boolean" if self.missing else "bool",
            lambda t: pdt.is_bool_dtype(t) or pdt.is_object_dtype(t),
            "True and False",
        )

    categories = (False, True)
    other = None
    values = (False, True)
    complete = True


@_with_example
@dataclass(frozen=True, kw_only=True)
class Datetime:
    """A column of points in time, in whole steps of `resolution` on the wall clock of the column.

    Parameters
    ----------
    name : str or int
        Name of the column.
    bounds : pair of str or datetime, default=None
        Earliest and latest time, inclusive, without time zone (the dtype has it). Public; None: learned under
        differential privacy.
    resolution : {"D", "h", "min", "s", "ms", "us"}, default="s"
        Times are rounded down to a multiple of this step. If the bounds are learned, a coarser step, up to a day, is
        learned too.
    missing : bool, default=False
        Whether values may be missing.
    dtype : str, default="datetime64[us]"
        dtype of decoded columns, with the time zone if there is one, as in "datetime64[ns, Europe/Paris]". "date" means
        objects of datetime.date. Periods, as in "period[M]", are modelled by their start times.
    format : str, default=None
        Format in which the column is read from and written to a CSV file, such as "%d.%m.%Y" (as in
        `datetime.strptime`; ``%^b`` is a month in capitals). Public; None is ISO 8601. A fit to a DataFrame does not
        use the format.
    """

    name: str | int = field(kw_only=False)
    bounds: Sequence | np.ndarray | None = field(default=None, kw_only=False)
    resolution: str = "s"
    missing: bool = False
    dtype: str | None = None
    format: str | None = None

    integer = whole = True
    decimals = step = spikes = None

    def __post_init__(self):
        _check_common(self)
        if not isinstance(self.resolution, str) or self.resolution not in _UNITS:
            _fail(self, f"resolution must be one of {', '.join(_UNITS)}; got {shown(self.resolution)}")
        _check_dtype(
            self,
            "datetime64[us]",
            lambda t: form_of(self.dtype) in ("date", "period") or pdt.is_datetime64_any_dtype(t),
            "datetimes",
        )
        if self.format is not None and not is_date_format(self.format):
            no_zones = f". {NO_ZONES}" if has_zone(self.format) else ""
            _fail(
                self,
                f"format must be one of strptime, with a year, such as %d.%m.%Y; got {self.format!r:.60}{no_zones}",
            )
        if self.bounds is not None:
            object.__setattr__(self, "bounds", self._checked_bounds())

    def _checked_bounds(self):
        if not isinstance(self.bounds, str) and np.iterable(self.bounds):
            for bound in self.bounds:
                if isinstance(bound, str) and not ISO_DATE.match(bound):
                    date = _entry(bound, self.bounds)
                    _fail(self, f"write the date {date} as in 2020-12-31 (ISO 8601): day and month may be mistaken")
        try:
            low, high = (pd.Timestamp(bound) for bound in self.bounds)
        except (TypeError, ValueError, OverflowError):
            low, high = pd.NaT, pd.NaT
        if pd.isna(low) or pd.isna(high):
            _fail(self, f"bounds must be a pair of datetimes (earliest, latest), not missing; got {shown(self.bounds)}")
        if low.tzinfo is not None or high.tzinfo is not None:
            _fail(self, "bounds are on the column's wall clock: give them without a time zone")
        if low.floor(self.resolution) >= high.floor(self.resolution):
            _fail(
                self,
                f"bounds must be (earliest, latest), at least one step of {self.resolution!r} apart; got ({low}, "
                f"{high})",
            )
        if "[ns" in self.dtype and (low.as_unit("us") < pd.Timestamp.min.ceil("us") or high > pd.Timestamp.max):
            _fail(
                self,
                f"bounds ({low}, {high}) do not fit dtype {self.dtype!r} (1677 to 2262): declare 'datetime64[us]'",
            )
        return tuple(bound.floor(self.resolution).isoformat() for bound in (low, high))

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be learned."""
        return self.bounds is not None


@_with_example
@dataclass(frozen=True, kw_only=True)
class Identifier:
    """A column of keys: its values are never read, and a sample has fresh keys.

    Parameters
    ----------
    name : str or int
        Name of the column.
    pattern : str, default=None
        Text of a key, with one run of ``#`` for a counter that starts at 1, such as ``"P-######"`` for P-000001. A
        counter that has more digits than the run is written in full, so that no key occurs twice. Public. None: the
        counter alone.
    dtype : str, default=None
        dtype of the column of a sample: integers or text. None is int64, or "str" with a pattern. A dtype of integers
        limits the rows of a sample: int8 has 127 keys.
    within_unit : bool, default=False
        Whether the counter numbers the rows of a unit, such as the visits of a patient: it starts again at 1 in every
        synthetic unit. It needs a fit with ``unit=``. In a sample of single rows it counts all rows.
    """

    name: str | int = field(kw_only=False)
    pattern: str | None = None
    dtype: str | None = None
    within_unit: bool = False

    missing = False
    complete = True

    def __post_init__(self):
        _check_common(self)
        if not isinstance(self.within_unit, bool | np.bool_):
            _fail(self, "within_unit must be True or False")
        object.__setattr__(self, "within_unit", bool(self.within_unit))
        if self.pattern is not None and (not isinstance(self.pattern, str) or not _PATTERN.fullmatch(self.pattern)):
            _fail(self, 'pattern must be text with one run of # for the counter, such as "P-######"')

        def accepts(dtype):
            text = self.dtype == "str" or pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype)
            return text if self.pattern else text or pdt.is_integer_dtype(dtype)

        _check_dtype(self, "str" if self.pattern else "int64", accepts, "keys")

    @property
    def most_keys(self):
        """Number of different keys that the dtype has, int; None for text, which has no limit."""
        return dtype_range(self.dtype)[1] if pdt.is_integer_dtype(output_dtype(self.dtype)) else None

    def keys(self, numbers):
        """Return the keys of rows with these numbers of the counter, array of int; a Series.

        Raises
        ------
        SchemaError
            The dtype has fewer keys.
        """
        dtype = output_dtype(self.dtype)
        if (most := self.most_keys) is not None:
            if len(numbers) and numbers.max() > most:
                _fail(
                    self,
                    f"dtype={self.dtype!r} has {most:,} different keys, and more rows are asked for: sample fewer "
                    "rows, or fit with a wider dtype in the schema, such as int64",
                )
            return pd.Series(numbers).astype(dtype)
        texts = pd.Series(numbers).astype(str)
        if self.pattern is not None:
            head, digits, tail = _PATTERN.fullmatch(self.pattern).groups()
            texts = head + texts.str.zfill(len(digits)) + tail
        return texts.astype(object).astype(dtype)


def has_named_groups(hierarchy) -> bool:
    """Whether a checked `hierarchy` gives its groups by name."""
    return isinstance(hierarchy, tuple) and isinstance(hierarchy[0], tuple)


def prefix_lengths(column) -> tuple:
    """Numbers of first characters that make groups of the categories of a column, increasing; or none."""
    given = getattr(column, "hierarchy", None)
    if given is None or has_named_groups(given):
        return ()
    return given if isinstance(given, tuple) else (given,)


def group_value(value, length):
    """Value that stands for the categories with the same first characters, or None if there is none.

    It is the first characters themselves: a function of the value alone. Of numbers it is an integer, of those too that
    are floats because they are large: equal names would else have the type of whichever value comes first.
    """
    if isinstance(value, str):
        return value[:length]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1 != 0:
        return None
    return int(str(int(value))[:length])


def standing_for(value, column, categories):
    """Category that stands for a value: itself, else the finest group of it that is a category, else None.

    `categories`: those of the column, as a container in which a look-up is quick.
    """
    if value in categories:
        return value
    groups = (group_value(value, length) for length in reversed(prefix_lengths(column)))
    return next((group for group in groups if group in categories), None)


def paths_of_members(groups, path=()):
    """Yield each category of named groups, after the names of its groups from the coarsest to the finest."""
    for name, members in groups:
        if isinstance(members[0], tuple):
            yield from paths_of_members(members, (*path, name))
        else:
            yield from (((*path, name), value) for value in members)


KINDS = {
    "numeric": Numeric,
    "categorical": Categorical,
    "boolean": Boolean,
    "datetime": Datetime,
    "id": Identifier,
}


def column_to_dict(column) -> dict:
    """Return a column as a JSON object, without empty fields except bounds and categories to be learned."""
    kind = next(kind for kind, cls in KINDS.items() if isinstance(column, cls))
    fields = {f.name: getattr(column, f.name) for f in dataclasses.fields(column) if f.name != "name"}
    fields = {key: value for key, value in fields.items() if value is not None or key in ("bounds", "categories")}
    for name in ("ordered", "within_unit"):
        if not fields.get(name, True):
            del fields[name]
    if has_named_groups(groups := fields.get("hierarchy")):
        fields["hierarchy"] = _groups_to_dict(groups)
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
    return {"name": column.name, "kind": kind, **fields}


def _groups_to_dict(groups):
    """Named groups as a JSON object, in which a group of groups is an object too."""
    return {
        name: _groups_to_dict(members) if isinstance(members[0], tuple) else list(members) for name, members in groups
    }


def column_from_dict(entry) -> Numeric | Categorical | Boolean | Datetime | Identifier:
    """Return the column that a JSON object describes; SchemaError where it does not describe one."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise SchemaError('every column of a schema is an object with a "name" and a "kind"')
    entry = dict(entry)
    name, kind = entry.pop("name"), entry.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SchemaError(f"column {name!r}: kind must be one of {', '.join(KINDS)}; got {kind!r}")
    known = {f.name for f in dataclasses.fields(KINDS[kind])} - {"name"}
    if unknown := sorted(set(entry) - known):
        unknown, known = ", ".join(map(repr, unknown)), ", ".join(sorted(known))
        raise SchemaError(f"column {name!r}: {unknown} unknown for kind {kind!r}; it has {known}")
    entry = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    try:
        return KINDS[kind](name, **entry)
    except SchemaError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"column {name!r}: {error}") from None
