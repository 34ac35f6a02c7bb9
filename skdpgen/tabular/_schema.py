"""The schema: what the caller declares public about a table, one column after another."""

from __future__ import annotations

import dataclasses
import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ..utils.atomic import write_atomically
from ..utils.foreign_tables import check_arrow_type, to_pandas
from ..utils.printing import listed, one_line, printable
from ..utils.strict_json import read_json, read_json_file
from ..utils.table_checks import check_names
from ._columns import KINDS, Boolean, Categorical, Datetime, Identifier, Numeric, column_from_dict, column_to_dict
from ._dtypes import holds_missing, name_of_dtype
from ._formats import form_of, resolution_of_period, scale_of

_FORMAT = "skdpgen-schema"
# Facts of `Schema.notation`, and their types.
_NOTATION = dict.fromkeys(("separator", "decimal", "thousands", "encoding"), str)
_NOTATION |= {"signs": list, "missing": list, "skip_lines": int, "header": bool}
# Columns of a schema in a JSON file: a larger one is refused before it fills the memory.
_MOST_COLUMNS = 100_000


def check_unique(names) -> None:
    """Raise SchemaError if a column name occurs twice, or cannot be written."""
    names = list(names)
    check_names(names)
    twice = sorted(repr(name) for name, count in Counter(names).items() if count > 1)
    if twice:
        raise SchemaError(f"duplicate column names: {', '.join(twice)}")


@dataclass(frozen=True, repr=False)
class Schema:
    """Public facts about a table: names, order, kinds, bounds, categories, dtypes of its columns.

    Everything in a schema is public: declared by you, or released under differential privacy. If bounds or categories
    are None, an estimator learns them from the rows and charges for them.

    Parameters
    ----------
    columns : sequence of Numeric, Categorical, Boolean, Datetime or Identifier
        One entry for each column, in the order of the table.
    constraints : sequence of str, default=()
        Conditions that hold in every row, such as ``"admitted <= discharged"``; synthetic rows satisfy them. See the
        user guide.
    notation : dict, default=None
        How a CSV file of such a table is written, if not in the usual notation: "separator", "decimal", "thousands",
        "encoding" (texts), "signs", "missing" (lists of texts), "skip_lines" (a number), "header" (a truth value), as
        the options of these names take them. The command line reads and writes files by it; `fit` does not use it.

    Examples
    --------
    >>> from skdpgen.tabular import Categorical, Numeric, Schema
    >>> schema = Schema([Numeric("age", (17, 90), integer=True), Categorical("sex", ("Female", "Male"))])
    >>> schema
    <Schema: 2 columns (1 numeric, 1 categorical)>
    >>> schema["age"].bounds
    (17, 90)
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    columns: Sequence[Numeric | Categorical | Boolean | Datetime | Identifier]
    constraints: Sequence[str] = ()
    notation: dict | None = field(default=None, hash=False)

    def __post_init__(self):
        if isinstance(self.columns, Mapping):
            raise SchemaError("a schema is a sequence of columns, each with its name: give a list, not a dict")
        columns = tuple(self.columns)
        if not columns:
            raise SchemaError("a schema needs at least one column")
        for column in columns:
            if not isinstance(column, tuple(KINDS.values())):
                raise SchemaError(
                    "a schema is a sequence of Numeric, Categorical, Boolean, Datetime and Identifier; got "
                    f"{type(column).__name__}"
                )
        check_unique(column.name for column in columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "constraints", self._checked_constraints())
        object.__setattr__(self, "notation", self._checked_notation())

    def _checked_notation(self):
        if self.notation is None or self.notation == {}:
            return None
        if not isinstance(self.notation, dict):
            raise SchemaError(f'notation is a dict such as {{"decimal": ","}}; got {type(self.notation).__name__}')
        if unknown := sorted(map(repr, set(self.notation) - set(_NOTATION))):
            raise SchemaError(f"notation has unknown entries {', '.join(unknown)}; it takes {', '.join(_NOTATION)}")
        notation = {k: list(v) if isinstance(v, tuple) else v for k, v in self.notation.items()}
        for name, value in notation.items():
            kind = _NOTATION[name]
            texts = kind is not list or (isinstance(value, list) and all(isinstance(text, str) for text in value))
            if type(value) is not kind or not texts:
                words = {str: "a text", list: "a list of texts", int: "a whole number", bool: "true or false"}[kind]
                raise SchemaError(f"notation: {name!r} must be {words}")
        return notation

    def _checked_constraints(self):
        given = (self.constraints,) if isinstance(self.constraints, str) else self.constraints
        if not isinstance(given, list | tuple):
            raise SchemaError(f'constraints are a list of texts such as "start <= end"; got {type(given).__name__}')
        if not given:
            return ()
        from ._constraint_forms import read_constraint
        from ._constraints import MOST_CONSTRAINTS, MOST_OF_ALL, check_keys

        if len(given) > MOST_CONSTRAINTS:
            raise SchemaError(f"a schema may have at most {MOST_CONSTRAINTS} constraints; got {len(given):,}")
        if (size := sum(len(text) for text in given if isinstance(text, str))) > MOST_OF_ALL:
            raise SchemaError(f"all constraints may have at most {MOST_OF_ALL:,} characters; got {size:,}")
        try:
            for text in given:
                check_keys(read_constraint(text, self.names), self)
        except ValueError as error:
            raise SchemaError(str(error)) from None
        return tuple(dict.fromkeys(given))

    def __repr__(self):
        counts = {kind: sum(isinstance(c, cls) for c in self.columns) for kind, cls in KINDS.items()}
        parts = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        todo = "" if self.complete else f"; to be learned: {len(self.incomplete)}"
        rules = f"; constraints: {len(self.constraints)}" if self.constraints else ""
        return f"<Schema: {len(self)} columns ({parts}{todo}{rules})>"

    def _repr_html_(self):
        rows = []
        for column in self.columns:
            facts = column_to_dict(column)
            learned = [key for key in ("bounds", "categories") if key in facts and facts[key] is None]
            declared = "; ".join(
                f"{key}={listed(list(value)) if isinstance(value, list | dict) else value}"
                for key, value in facts.items()
                if key not in ("name", "kind", *learned) and value is not False
            )
            rows.append((printable(column.name), facts["kind"], one_line(declared), ", ".join(learned)))
        frame = pd.DataFrame(rows, columns=["column", "kind", "declared", "to be learned"])
        return f"<p>{html.escape(repr(self))}</p>{frame.to_html(index=False, max_rows=60)}"

    # mapping-like: names are the keys

    def __len__(self):
        return len(self.columns)

    def __iter__(self):
        return iter(self.names)

    def __contains__(self, name):
        try:
            return name in self._by_name
        except TypeError:  # names are hashable
            return False

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(name)
        return self._by_name[name]

    @cached_property
    def _by_name(self):
        return {column.name: column for column in self.columns}

    @property
    def names(self) -> tuple:
        """Column names, in order."""
        return tuple(self._by_name)

    @property
    def incomplete(self) -> tuple:
        """Names of the columns whose bounds or categories are still to be learned.

        A schema does not know which column is the `unit` of a fit: if it lists this column, it is here too, although
        the fit does not learn it. Declared as an `Identifier`, or left out of the schema, it is not: such columns are
        complete.
        """
        return tuple(column.name for column in self.columns if not column.complete)

    @property
    def complete(self) -> bool:
        """Whether every column has its bounds or categories."""
        return not self.incomplete

    def select(self, names) -> Schema:
        """Return the schema of the columns `names`, in that order, with the constraints on these columns alone."""
        if unknown := [name for name in names if name not in self]:
            raise SchemaError(f"not in the schema: {', '.join(map(repr, unknown))}; it has {listed(self.names)}")
        kept = self.constraints
        if kept:
            from ._constraint_forms import read_constraint

            kept = tuple(text for text in kept if set(read_constraint(text, self.names).columns) <= set(names))
        return Schema(tuple(self[name] for name in names), kept, self.notation)

    def constrain(self, *texts) -> Schema:
        """Return the schema with more constraints; see the parameter `constraints`.

        Examples
        --------
        >>> from skdpgen.tabular import Datetime, Schema
        >>> schema = Schema([Datetime("admitted", resolution="D"), Datetime("discharged", resolution="D")])
        >>> schema.constrain("admitted <= discharged")
        <Schema: 2 columns (2 datetime; to be learned: 2; constraints: 1)>
        """
        return Schema(self.columns, (*self.constraints, *texts), self.notation)

    def replace(self, *columns) -> Schema:
        """Return the schema with these columns in the place of those of the same names."""
        new = {column.name: column for column in columns}
        if unknown := [name for name in new if name not in self]:
            raise SchemaError(f"not in the schema: {', '.join(map(repr, unknown))}; it has {listed(self.names)}")
        return dataclasses.replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    def declare(self, name, **facts) -> Schema:
        """Return the schema with facts of one column changed; its other facts stay.

        Parameters
        ----------
        name : str or int
        **facts
            Parameters of the column's kind, such as ``bounds=(0, 110)`` or ``categories=("f", "m")``.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            There is no such column, or its kind has no such fact.

        Examples
        --------
        >>> import pandas as pd
        >>> from skdpgen import Schema
        >>> frame = pd.DataFrame({"age": pd.Series([30, None], dtype="Int16")})
        >>> Schema.from_kinds(frame).declare("age", bounds=(0, 110))["age"]
        Numeric(name='age', bounds=(0, 110), integer=True, missing=True, dtype='Int16', decimals=None, \
step=None, spikes=None)
        """
        column = self.select([name])[name]
        kind = next(kind for kind, cls in KINDS.items() if isinstance(column, cls))
        known = {field.name for field in dataclasses.fields(column)} - {"name"}
        if unknown := sorted(set(facts) - known):
            others = [other for other, cls in KINDS.items() if {*facts} <= {f.name for f in dataclasses.fields(cls)}]
            kinds = " or ".join(KINDS[other].__name__ for other in others)
            instead = (
                f"; if it is of another kind, replace it: schema.replace({kinds}({name!r}, ...))" if others else ""
            )
            unknown, known = ", ".join(unknown), ", ".join(sorted(known))
            raise SchemaError(f"column {name!r}: a {kind} column has no {unknown}; it has {known}{instead}")
        return self.replace(dataclasses.replace(column, **facts))

    @classmethod
    def from_kinds(cls, frame, known=None, *, categorical=()) -> Schema:
        """Return the schema that the dtypes of a frame, and nothing else about it, give.

        No value is read. Integers, floats, bools and datetimes keep their kind, everything else is categorical. A
        column may be missing wherever its dtype can hold missing values. Bounds and categories are None, to be
        learned. The dtypes are taken as public. Reading a CSV file derives them from the values: they are then an
        assumption of the caller, as are the resolutions and formats of dates, which the reader stores in
        ``frame.attrs["resolutions"]`` and ``frame.attrs["date_formats"]``.

        Parameters
        ----------
        frame : DataFrame or array of numbers, shape (n_rows, n_columns)
            Only its columns' names and dtypes are used.
        known : Schema, default=None
            Declared columns, which replace what the dtypes give.
        categorical : sequence of names, default=()
            Columns that are categorical although their dtype is numeric.

        Returns
        -------
        Schema
            The columns in the order of the frame.

        Raises
        ------
        SchemaError
            Duplicate names, names in `known` or `categorical` that the frame lacks, a dtype without a kind.
        """
        frame = to_pandas(frame)
        if not isinstance(frame, pd.DataFrame):
            array = np.asarray(frame)
            if array.ndim != 2 or array.dtype.kind not in "biuf":
                raise SchemaError("expected a DataFrame, or an array of numbers with two dimensions")
            frame = pd.DataFrame(array[:0], columns=[f"x{i}" for i in range(array.shape[1])])
        check_unique(frame.columns)
        written = {name: frame.attrs.get(name, {}) for name in ("resolutions", "date_formats")}
        constraints, notation = ((), None) if known is None else (known.constraints, known.notation)
        known = {} if known is None else {column.name: column for column in known.columns}
        if absent := [name for name in [*known, *categorical] if name not in frame.columns]:
            raise SchemaError(f"declared, but not in the frame: {', '.join(map(repr, absent))}")
        return cls(
            tuple(
                known[name] if name in known else _column_of_dtype(name, dtype, name in set(categorical), written)
                for name, dtype in frame.dtypes.items()
            ),
            constraints,
            notation,
        )

    def to_dict(self) -> dict:
        """Return the schema as plain dicts and lists."""
        content = {"format": _FORMAT, "version": 1, "columns": [column_to_dict(column) for column in self.columns]}
        if self.constraints:
            content["constraints"] = list(self.constraints)
        return content if self.notation is None else content | {"notation": self.notation}

    @classmethod
    def from_dict(cls, content) -> Schema:
        """Return the schema that :meth:`to_dict` wrote; SchemaError names what is wrong with it."""
        if not isinstance(content, dict) or not isinstance(content.get("columns"), list):
            raise SchemaError('a schema is an object with a list "columns"')
        version = content.get("version", 1)
        if content.get("format", _FORMAT) != _FORMAT or isinstance(version, bool) or version != 1:
            raise SchemaError(f"not a schema of format {_FORMAT!r}, version 1")
        if unknown := sorted(map(repr, set(content) - {"format", "version", "columns", "constraints", "notation"})):
            raise SchemaError(f"the schema has unknown fields {', '.join(unknown)}")
        if len(content["columns"]) > _MOST_COLUMNS:
            raise SchemaError(f"a schema may have at most {_MOST_COLUMNS:,} columns; got {len(content['columns']):,}")
        columns = tuple(column_from_dict(entry) for entry in content["columns"])
        return cls(columns, content.get("constraints", []), content.get("notation"))

    def to_json(self) -> str:
        """Return the schema as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text) -> Schema:
        """Return the schema of a JSON text; SchemaError if it is none."""
        try:
            content = read_json(text)
        except ValueError as error:
            raise SchemaError(f"the schema is not JSON: {error}") from None
        return cls.from_dict(content)

    def save(self, path) -> None:
        """Write the schema to a JSON file."""
        write_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path) -> Schema:
        """Read a schema from a JSON file of at most 64 MiB; SchemaError if it holds none."""
        try:
            content = read_json_file(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: no such file") from None
        except ValueError as error:
            raise SchemaError(f"{path}: the schema is not JSON: {error}") from None
        return cls.from_dict(content)


def column_of_objects(name, objects) -> Numeric | Datetime:
    """Return the column of Python objects of a type in `OBJECTS`."""
    if objects == "date":
        return Datetime(name, resolution="D", missing=True, dtype=objects)
    return Numeric(name, integer=objects == "time", missing=True, dtype=objects)


def _column_of_form(name, dtype, form):
    if form == "decimal":
        scale = scale_of(dtype)
        return Numeric(name, integer=scale == 0, decimals=scale or None, missing=True, dtype=str(dtype))
    if form == "period":
        return Datetime(name, resolution=resolution_of_period(dtype), missing=True, dtype=str(dtype))
    if form == "interval":
        return _intervals(name, dtype)
    return Numeric(name, integer=True, missing=True, dtype=str(dtype))


def _intervals(name, dtype):
    # pandas has no missing interval of int64, and an interval that is not among the learned ones becomes missing
    return Categorical(name, missing=True, dtype=str(dtype).replace("int64", "float64"))


def _column_of_dtype(name, dtype, categorical, written):
    check_arrow_type(f"column {name!r}", dtype)
    missing = holds_missing(dtype)
    text = str(dtype)
    if isinstance(dtype, pd.SparseDtype):
        raise SchemaError(f"column {name!r}: no kind for dtype {text!r}; make it dense")
    if isinstance(dtype, pd.CategoricalDtype):
        # the dtype of the categories is that of the column; the categories are private
        intervals = form_of(str(dtype.categories.dtype)) == "interval"
        return (
            _intervals(name, dtype.categories.dtype) if intervals else Categorical(name, missing=True, dtype="category")
        )
    if isinstance(dtype, pd.ArrowDtype) and text.startswith("dictionary"):
        return Categorical(name, missing=missing, dtype="category")
    if (form := form_of(text)) is not None:
        return _column_of_form(name, dtype, form)
    if pdt.is_bool_dtype(dtype) and not categorical:
        return Boolean(name, missing=missing, dtype=text)
    if pdt.is_datetime64_any_dtype(dtype):
        days = text.startswith(("date32", "date64"))
        resolution = "D" if days else written["resolutions"].get(name, "s")
        form = written["date_formats"].get(name)
        return Datetime(name, resolution=resolution, missing=missing, dtype=text, format=form)
    # truth values are no numbers to Arrow
    if (pdt.is_numeric_dtype(dtype) or pdt.is_bool_dtype(dtype)) and not pdt.is_complex_dtype(dtype):
        if categorical:
            return Categorical(name, missing=missing, dtype=text)
        return Numeric(name, integer=pdt.is_integer_dtype(dtype), missing=missing, dtype=text)
    if pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype):
        return Categorical(name, missing=missing, dtype=name_of_dtype(dtype))
    what = "numbers, text or datetimes"
    if pdt.is_complex_dtype(dtype):
        what = "two columns, its real and its imaginary part"
    raise SchemaError(f"column {name!r}: no kind for dtype {text!r}; convert it to {what}")
