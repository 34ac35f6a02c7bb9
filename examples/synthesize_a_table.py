"""A private synthetic table from a real one: fit, sample, evaluate, write.

The data are the breast cancer table that ships inside scikit-learn: 569 patients, 30 measurements, a diagnosis.
Run it with ``python examples/synthesize_a_table.py``; files go to a temporary folder.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from skdpgen import P3GMSynthesizer
from skdpgen.datasets import load_breast_cancer_table
from skdpgen.exceptions import UtilityWarning
from skdpgen.metrics import MarginalsDisplay, tstr_score, two_way_tvd

data = load_breast_cancer_table()
# Each row is held out independently, so that adding or removing one row moves no other row.
held_out = np.random.default_rng().random(len(data.frame)) < 0.2
train, test = data.frame[~held_out], data.frame[held_out]

# 1. What is public. A schema states it column by column: these bounds come from the published description of the data,
# not from the rows. Without a schema, bounds and categories are learned and charged within the same epsilon.
print(data.schema)
print(data.schema["mean radius"])

# 2. Fit: everything that the model learns from the rows costs exactly epsilon = 3 together. A UtilityWarning, computed
# from released values alone, says what the noise hides with a few hundred rows: here, the pairs of columns.
warnings.simplefilter("always", UtilityWarning)
synthesizer = P3GMSynthesizer(epsilon=3.0, delta=1e-5, schema=data.schema, target=data.target).fit(train)

# 3. Sample, at no privacy cost, as often as you like. Without a number, `sample` draws the released number of rows.
synthetic = synthesizer.sample()
print(synthetic.iloc[:3, [0, 1, 2, 3, -1]].round(2).to_string(index=False))
print(f"{len(synthetic)} synthetic rows of {synthetic.shape[1]} columns, in the order and dtypes of the original")

# 4. Evaluate. These figures come from real rows without protection: for the data holder's eyes (this table is public).
classifiers = {"logistic regression": LogisticRegression(max_iter=1000)}
for name, rows in (("synthetic", synthetic), ("real", train)):
    auroc, _ = tstr_score(rows, test, target=data.target, positive=data.positive, classifiers=classifiers)
    print(f"logistic regression trained on {name} rows, tested on held-out real ones: AUROC {auroc:.3f}")
print(f"two-way marginals, mean total variation distance: {two_way_tvd(train, synthetic, data.schema):.3f}")
shown = ["mean radius", "mean texture", "mean concavity", "diagnosis"]
display = MarginalsDisplay.from_samples(train, synthetic, schema=data.schema, columns=shown)
picture = Path(tempfile.mkdtemp()) / "marginals.png"
display.figure_.savefig(picture, dpi=100)
print("picture of the marginals, for the data holder's eyes:", picture)

# 5. Write what you may publish: the rows, and the card that says what they cost.
with tempfile.TemporaryDirectory() as folder:
    synthetic.to_csv(Path(folder) / "synthetic.csv", index=False)
    synthesizer.card_.save(Path(folder) / "card.json")
    print("files:", sorted(path.name for path in Path(folder).iterdir()))

print(synthesizer.accountant_.report().to_string(index=False))
