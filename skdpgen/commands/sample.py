"""`skdpgen sample`: draw rows from a released model."""

from __future__ import annotations

from ._arguments import add_escaping

__all__ = ["add", "run"]


def add(command):
    """Register the options."""
    command.add_argument("model", metavar="M.safetensors", help="released model, as written by synthesize --save-model")
    command.add_argument("--rows", type=int, metavar="N", help="number of rows (default: the released row count)")
    command.add_argument("--seed", type=int, metavar="S", help="seed of the draw (default: a new one in each run)")
    command.add_argument("--separator", metavar="C", help="separator of the fields of OUT.csv (default: comma)")
    command.add_argument("--decimal", metavar="C", default=".", help="decimal mark: . or , (default: .)")
    command.add_argument(
        "--missing", metavar="TEXT", default="", help="text of a missing value in OUT.csv (default: the empty field)"
    )
    add_escaping(command)
    command.add_argument("--output", required=True, metavar="OUT.csv", help="CSV or Parquet file to write")


def run(arguments):
    import skdpgen

    from ..data.table_files import check_apart, check_output, check_writing
    from ._results import write_rows

    check_output(arguments.output, table=True)
    written = {name: getattr(arguments, name) for name in ("separator", "decimal", "escape_formulas")}
    written["missing_mark"] = arguments.missing
    check_writing(arguments.output, **written)
    check_apart(arguments.model, arguments.output)
    synthesizer = skdpgen.load(arguments.model)
    n_rows = write_rows(synthesizer, arguments.rows, arguments.output, random_state=arguments.seed, **written)
    print(f"{n_rows} synthetic rows written to {arguments.output}")
