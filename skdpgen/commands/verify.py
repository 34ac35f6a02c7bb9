"""`skdpgen verify`: recompute a privacy card."""

from __future__ import annotations

from ._arguments import load_card

# Characters of an assumption that are shown: a constraint may be a long list.
_SHOWN = 300


def add(command):
    """Register the options."""
    command.add_argument("card", metavar="CARD.json", nargs="?", help="privacy card; may be left out with --ledger")
    command.add_argument(
        "--data", metavar="OUT.csv", help="synthetic rows: check that they are the file that the card states"
    )
    command.add_argument(
        "--model", metavar="M.safetensors", help="released model: check that it is the file that the card states"
    )
    command.add_argument(
        "--units", metavar="UNITS.csv", help="synthetic units: check that they are the file that the card states"
    )
    command.add_argument(
        "--ledger",
        metavar="BUDGET.db",
        help="check a ledger file: its hash chain, sums and charges; with a card, that the card is of this ledger",
    )
    command.add_argument(
        "--head",
        metavar="LENGTH:HASH",
        help="head of the ledger at an earlier time, as this command printed it: the ledger must contain it",
    )


def run(arguments):
    if arguments.card is None and arguments.ledger is None:
        raise ValueError("give CARD.json, --ledger BUDGET.db, or both")
    if arguments.head is not None and arguments.ledger is None:
        raise ValueError("--head is of a ledger file: give --ledger BUDGET.db too")
    if arguments.card is None and (arguments.data or arguments.model or arguments.units):
        raise ValueError("--data, --model and --units are checked against a card: give CARD.json too")
    accountant = found = card = None
    if arguments.ledger is not None:
        from .. import PrivacyAccountant

        accountant = PrivacyAccountant(ledger=arguments.ledger)
        found = accountant.verify(arguments.head)
    if arguments.card is not None:
        card = load_card(arguments.card)
        computed = card.verify()
        given = {"synthetic": arguments.data, "model": arguments.model, "units": arguments.units}
        files = {name: path for name, path in given.items() if path is not None}
        card.check_files(**files)
    if card is not None and accountant is not None:
        card.check_ledger(accountant)
    if accountant is not None:
        _print_ledger(arguments, accountant, found)
    if card is not None:
        _print_card(arguments, card, computed, files, found)
    private = [stated["private"] for stated in (found, card) if stated is not None]
    return 0 if all(private) else 1


def _print_ledger(arguments, accountant, found):
    from .._types import in_words
    from ..accounting._card import rule_of
    from ..utils.printing import one_line, printable

    print(f"{arguments.ledger}: consistent; recomputed from its entries alone:")
    print(
        f"  spent    epsilon {found['epsilon_spent']:.6g} of {found['budget_epsilon']:g} at delta {found['delta']:.3g}"
    )
    if found["charges"] > 1:
        print(f"  rule     {rule_of(accountant)}")
    print(f"  charges  {found['charges']}, {found['neighboring']}")
    print(f"  unit     {one_line(printable(in_words(accountant.unit)))}")
    print(f"  private  {'yes' if found['private'] else 'NO: without noise, or with noise that can be repeated'}")
    if found["unchained"]:
        print(
            f"  the first {found['unchained']} charges have no hash chain (written by an earlier version), so changes "
            "to them cannot be detected"
        )
    print(f"  head     {found['head'] or 'none yet: the next charge begins the chain'}")


def _print_card(arguments, card, computed, files, of_ledger):
    from ..accounting._card import ALONE, FILES
    from ..utils.printing import one_line, printable

    def shown(text):  # a text of the card can neither begin a new line nor send commands to a terminal
        return one_line(printable(text))

    fit, ledger = computed["fit"], computed["ledger"]
    print(f"{shown(arguments.card)}: consistent; recomputed from its events alone:")
    print(f"  private  {'yes' if card['private'] else 'NO: without noise, or with noise that can be repeated'}")
    print(f"  fit      epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}")
    print(f"  ledger   epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}")
    if len(card["ledger"]["charges"]) > 1:
        print(f"  rule     {ledger['rule']}")
    if computed["bounded"]:
        print(f"  bounded  {computed['bounded']}")
    print(f"  model    {shown(card['model']['name'])}")
    print(f"  unit     {shown(card['unit'])}, {card['neighboring']}")
    print(f"  noise    {shown(card['noise'])}")
    if card.get("date") is not None:
        print(f"  date     {card['date']} (UTC)")
    for text in card["public_assumptions"] or ["none"]:
        more = f" [{len(text) - _SHOWN} more characters, on the card]" if len(text) > _SHOWN else ""
        print(f"  public   {shown(text[:_SHOWN])}{more}")
    for name, path in files.items():
        print(f"  file     {shown(path)}: the {FILES[name]} that the card was written with")
    n_later = 0
    if of_ledger is not None:
        n = len(card["ledger"]["charges"])
        n_later = of_ledger["charges"] - n
        print(f"  file     {arguments.ledger}: the ledger of this card; its charges begin with the {n} of the card")
    for text in card.remarks:
        if not (n_later and text == ALONE):
            print(f"  note     {text}")
    if n_later:
        print(
            f"  note     later fits, which the card does not know, were charged to this ledger ({n_later:,} "
            f"charge{'s' if n_later > 1 else ''}): the cost of all of them together is that of {arguments.ledger} above"
        )
