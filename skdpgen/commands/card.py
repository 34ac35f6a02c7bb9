"""`skdpgen card`: a privacy card in plain sentences, in short or as a page."""

from __future__ import annotations

from ._arguments import load_card


def add(command):
    """Register the options."""
    command.add_argument("card", metavar="CARD.json", help="privacy card")
    command.add_argument(
        "--html", metavar="PAGE.html", help="write one self-contained page, which may be published with the card"
    )


def run(arguments):
    from ..data.table_writing import check_apart, check_output
    from ..report import card_page, card_text
    from ..utils.atomic import write_atomically

    if arguments.html is not None:
        check_output(arguments.html)
        check_apart(arguments.card, arguments.html)
    card = load_card(arguments.card)
    if arguments.html is None:
        print(card_text(card), end="")
        return
    write_atomically(arguments.html, card_page(card), mode=0o644)
    print(f"page written to {arguments.html}: it has the content of the card, and may be published with it")
