"""`skdpgen verify`: recompute a privacy card."""

from __future__ import annotations

from ._arguments import add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(
        commands,
        "verify",
        run,
        "recompute a privacy card's epsilon from its events alone; exit code 1 where the card says 'not private'",
    )
    command.add_argument("card", metavar="CARD.json")


def run(arguments):
    from .. import PrivacyCard
    from ..utils.printing import one_line, printable

    def told(text):  # what a card says can neither begin a line of its own nor send commands to a terminal
        return one_line(printable(text))

    card = PrivacyCard.load(arguments.card)
    computed = card.verify()
    fit, ledger = computed["fit"], computed["ledger"]
    print(f"{told(arguments.card)}: consistent; recomputed from its events alone:")
    print(f"  private  {'yes' if card['private'] else 'NO: without noise, or with noise that can be repeated'}")
    print(f"  fit      epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}")
    print(f"  ledger   epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}")
    if computed["bounded"]:
        print(f"  bounded  {computed['bounded']}")
    print(f"  model    {told(card['model']['name'])}")
    print(f"  unit     {told(card['unit'])}, {card['neighboring']}")
    print(f"  noise    {told(card['noise'])}")
    for text in card["public_assumptions"] or ["none"]:
        print(f"  public   {told(text)}")
    return 0 if card["private"] else 1
