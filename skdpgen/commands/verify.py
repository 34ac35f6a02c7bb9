"""`skdpgen verify`: recompute a privacy card."""

from __future__ import annotations

from ._arguments import add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "verify", run, "recompute a privacy card's epsilon from its events alone")
    command.add_argument("card", metavar="CARD.json")


def run(arguments):
    from .. import PrivacyCard

    card = PrivacyCard.load(arguments.card)
    computed = card.verify()
    fit, ledger = computed["fit"], computed["ledger"]
    print(f"{arguments.card}: holds together; recomputed from its events alone:")
    print(f"  model    {card['model']['name']}")
    print(f"  private  {'yes' if card['private'] else 'NO: without noise, or with noise that can be repeated'}")
    print(f"  fit      epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}")
    print(f"  ledger   epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}")
    print(f"  unit     {card['unit']}, {card['neighboring']}")
    print(f"  noise    {card['noise']}")
    for text in card["public_assumptions"] or ["none"]:
        print(f"  public   {text}")
