"""An audit: does a fit lose less than it claims?

The rows are dummy data, because an audit fits them many times without a charge. The canary is a record far outside the
bounds. Clipped, it changes the released moments by the sensitivity that the proof allows, and not by more. The audit
computes a lower bound of epsilon from how well the canary can be detected in the noise.
"""

import numpy as np

from skdpgen import DPPCA, DPSGD, GroupDivergence, PriVAESynthesizer
from skdpgen.audit import audit, plan_audit

X = np.random.default_rng(0).uniform(-1, 1, (50, 4))
pca = DPPCA(2, epsilon=10.0, bounds=(-1, 1), l2_bound=1.0)

print("plan: ", plan_audit(pca, X, n_runs=60))
print("found:", audit(pca, X, n_runs=60))
print("found:", audit(pca, X, n_runs=8, method="scale"))

# A network: if every row takes part in a step of DP-SGD, the step is a Gaussian release, and the bound is tight.
training = DPSGD(steps=1, sampling_rate=1.0)
vae = PriVAESynthesizer(epsilon=10.0, divergence=GroupDivergence(n_groups=4), bounds=(-1, 1), training=training)
print("found:", audit(vae, X, n_runs=3, method="scale"))

try:
    audit(pca.set_params(epsilon=1.0), X, n_runs=60)
except ValueError as error:
    print("at epsilon 1:", error)

print(pca.set_params(epsilon=10.0, n_components=None).fit(X).accountant_.report().to_string(index=False))
