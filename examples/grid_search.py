"""A grid search on one ledger file: every fit, of every worker process, charges the same ledger.

The fits of the grid are known in advance, but they are charged one after another. So all but the first must pass the
privacy filter, which costs more than the same fits declared together. Two candidates, three folds and the refit are
seven charges.

The scores in `cv_results_` are exact likelihoods of real rows, computed without protection: they are for the data
holder's eyes. If you publish the best candidate as the result of a private procedure, its choice must not depend on
them: fix the parameters in advance.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from skdpgen import DPPCA, PrivacyAccountant
from skdpgen.datasets import load_digits_table
from skdpgen.exceptions import PrivacyLeakWarning, UtilityWarning

warnings.simplefilter("ignore", UtilityWarning)  # each fit says that its budget is small
warnings.filterwarnings("ignore", "fitted inside a search", PrivacyLeakWarning)  # see the docstring
digits = load_digits_table()

folder = tempfile.TemporaryDirectory()
ledger = Path(folder.name) / "budget.db"
budget = PrivacyAccountant(epsilon=10.0, delta=1e-5, ledger=ledger)

# The fold of each row is drawn independently. KFold would move other rows to another fold when one row is added. The
# data sets of a fold would then differ by more than the one row that the charge covers.
folds = PredefinedSplit(np.random.default_rng().integers(3, size=len(digits.data)))

search = GridSearchCV(
    DPPCA(epsilon=2.5, bounds=digits.bounds, accountant=budget),
    {"n_components": [5, 15]},
    cv=folds,
    n_jobs=2,
    error_score="raise",  # otherwise a refused fit becomes a NaN score and the search continues
).fit(digits.data)

print("best:", search.best_params_)
print("charges in the file:", len(budget.charges))
reopened = PrivacyAccountant(ledger=ledger)  # any process, at any time: the file is the ledger
print(
    f"spent {reopened.epsilon_spent():.3f} of {reopened.epsilon:g}; left for one more fit: {reopened.remaining():.3f}"
)
print(reopened.report().to_string(index=False))
folder.cleanup()
