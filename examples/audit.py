"""An audit: does a fit lose less than it claims? Of rows that are made up, since they are fitted again and again.

The canary lies far outside the bounds. Clipped, it moves the released moments by all that the proof allows, and no
further; the audit bounds epsilon from below by how often the noise lets it be seen.
"""

import numpy as np

from skdpgen import DPPCA
from skdpgen.audit import audit, plan_audit

X = np.random.default_rng(0).uniform(-1, 1, (50, 4))
pca = DPPCA(2, epsilon=10.0, bounds=(-1, 1), l2_bound=1.0)

print("plan: ", plan_audit(pca, X, n_runs=60))
print("found:", audit(pca, X, n_runs=60))
print("found:", audit(pca, X, n_runs=8, method="scale"))

try:
    audit(pca.set_params(epsilon=1.0), X, n_runs=60)
except ValueError as error:
    print("at epsilon 1:", error)

print(pca.set_params(epsilon=10.0, n_components=None).fit(X).accountant_.report().to_string(index=False))
