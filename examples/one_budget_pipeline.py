"""One budget through a Pipeline: DPPCA, then a DPGaussianMixture, then samples transformed back to pixels.

Both steps charge one PrivacyAccountant, which refuses a charge that exceeds the budget. A clone of the pipeline, as
every meta-estimator of scikit-learn makes it, has new steps and the same accountant.
"""

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdpgen import DPPCA, DPGaussianMixture, PrivacyAccountant, sample_pipeline
from skdpgen.datasets import load_digits_table
from skdpgen.exceptions import BudgetExceededError

digits = load_digits_table()

budget = PrivacyAccountant(epsilon=8.0, delta=1e-5)
pipeline = make_pipeline(
    DPPCA(10, epsilon=4.0, bounds=digits.bounds, accountant=budget),
    # With y there is one Gaussian for each class, and all ten cost as much as one. epsilon=None: all that is left.
    DPGaussianMixture(epsilon=None, classes=digits.classes, accountant=budget),
).fit(digits.data, digits.target)

X_new, y_new = sample_pipeline(pipeline, 1_000)
print("synthetic digits:", X_new.shape, "of classes", np.unique(y_new))

# Evaluated on the rows that were fitted: for the data holder's eyes.
accuracy = LogisticRegression(max_iter=2000).fit(X_new / 16, y_new).score(digits.data / 16, digits.target)
print(f"a logistic regression trained on them classifies {accuracy:.0%} of the real ones")

# The clone charges the same ledger, and its budget is spent.
try:
    clone(pipeline).fit(digits.data, digits.target)
except BudgetExceededError as error:
    print("refused:", error)

report = budget.report()
print(report.to_string(index=False))
print({name: report.attrs[name] for name in ("epsilon_spent", "epsilon_if_fixed_in_advance", "remaining")})
