"""Publish a model: one file that samples, one card that proves what it cost, one page that explains it.

The model file holds released state alone: arrays and JSON, no pickle, and nothing that is executed. Anybody who has the
file can draw any number of rows. Nothing that they do with it spends more privacy. The card states the SHA-256 of the
model file, and the page says in plain sentences what the card says.
"""

import tempfile
from pathlib import Path

import skdpgen
from skdpgen import P3GMSynthesizer, PrivacyCard
from skdpgen.accounting import gaussian_event
from skdpgen.datasets import load_digits_table
from skdpgen.exceptions import DetachedAccountantError
from skdpgen.report import card_page

folder = Path(tempfile.mkdtemp())
digits = load_digits_table()

# ---- the data holder --------------------------------------------------------------------------------------------
synthesizer = P3GMSynthesizer(
    epsilon=3.0, bounds=digits.bounds, classes=digits.classes, image_shape=digits.image_shape
).fit(digits.data, digits.target)
synthesizer.save(folder / "digits.safetensors")
card = synthesizer.card_.with_files(model=folder / "digits.safetensors")
card.save(folder / "digits.card.json")
(folder / "digits.card.html").write_text(card_page(card), encoding="utf-8")
print({path.name: f"{path.stat().st_size / 1e3:.0f} kB" for path in sorted(folder.iterdir())})

# ---- anybody else -----------------------------------------------------------------------------------------------
loaded = skdpgen.load(folder / "digits.safetensors")
X, y = loaded.sample(500)
print("drawn from the file:", X.shape, y.shape)

card = PrivacyCard.load(folder / "digits.card.json")
print("recomputed from the events alone:", card.verify()["fit"])
card.check_files(model=folder / "digits.safetensors")  # ValueError for another file
print("assumed public:", card["public_assumptions"])

# A card that claims less than its events cost does not verify.
text = card.to_json().replace('"epsilon_asked": 3.0', '"epsilon_asked": 1.0')
try:
    PrivacyCard.from_json(text).verify()
except ValueError as error:
    print("a changed card:", error)

# The file includes a copy of the ledger. It can be read but not charged.
try:
    loaded.accountant_.charge(gaussian_event(100.0), "one more look")
except DetachedAccountantError as error:
    print("refused:", error)

print(loaded.accountant_.report().to_string(index=False))
