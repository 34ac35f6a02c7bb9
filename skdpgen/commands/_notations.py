"""How files are written, on the command line: what a schema declares of it, and columns in another notation."""

from __future__ import annotations

__all__ = ["refuse_notations"]


def refuse_notations(settled, found):
    """Refuse columns of text whose values look like numbers or dates in another notation, before anything is charged.

    Parameters
    ----------
    settled : sequence of str
        Columns that are declared as categories or keys.
    found : dict
        Of `refusal_of_file`.
    """
    from ..data.other_notations import refusal_of_file
    from ..exceptions import InvalidInputError

    if found := {name: reading for name, reading in found.items() if name not in settled}:
        raise InvalidInputError(refusal_of_file(found))
