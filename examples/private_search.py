"""A private search: one charge, one model, and no information about the candidates that lost.

The search tries three numbers of components, a random number of times. The score of a run is the accuracy, with noise,
of a classifier that is trained on its synthetic digits and tested on held-out real ones. The whole search costs epsilon
3.
"""

import warnings

from skdpgen import P3GMSynthesizer, PrivacyAccountant, PrivateSearchCV
from skdpgen.accounting import BudgetPlan
from skdpgen.datasets import load_digits_table
from skdpgen.exceptions import UtilityWarning

warnings.simplefilter("ignore", UtilityWarning)  # it says that 1,800 digits are few
digits = load_digits_table()
budget = PrivacyAccountant(epsilon=3.0, delta=1e-5)
search = PrivateSearchCV(
    P3GMSynthesizer(bounds=digits.bounds, classes=range(10), image_shape=(8, 8)),
    {"n_components": [2, 10, 30]},
    epsilon=3.0,
    scoring="tstr_accuracy",
    accountant=budget,
)
print(BudgetPlan.of(search.plan(digits.data, digits.target), n_rows=1_800))  # before anything is charged

search.fit(digits.data, digits.target)
print("best:", search.best_params_, "noisy accuracy on rows held out:", round(search.best_score_, 3))
X_new, y_new = search.sample(1_000)
print("synthetic:", X_new.shape, "labels", sorted(set(y_new)))
print("the card recomputes:", search.card_.verify()["fit"])
print(budget.report().to_string(index=False))
