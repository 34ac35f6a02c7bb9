"""Your own network and optimiser, trained by DP-SGD: first inside P3GM, then alone.

Inside, P3GM plans and charges. Alone, a DPNet needs a plan that you charged. The noise is added to the clipped sum of
gradients before the optimiser sees it, so you may choose any optimiser, schedule and averaging.
"""

import torch
from torch import nn

from skdpgen import DPSGD, P3GMSynthesizer, PrivacyAccountant
from skdpgen.accounting import Phase
from skdpgen.datasets import load_digits_table
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, P3GMModule, ParameterAverage

digits = load_digits_table()
X, y = digits.data, digits.target

# ---- 1. P3GM's decoder: 12 latent dimensions to 64 pixels -----------------------------------------------------------
decoder = nn.Sequential(nn.Linear(12, 100), nn.ReLU(), nn.Linear(100, 64))
net = DPNet(
    P3GMModule,
    module__decoder=decoder,
    optimizer=torch.optim.AdamW,
    optimizer__weight_decay=1e-4,
    lr=2e-3,
    callbacks=[ParameterAverage(0.95)],  # an average of releases is a release
    verbose=0,
)
synthesizer = P3GMSynthesizer(
    epsilon=5.0,
    bounds=digits.bounds,
    classes=digits.classes,
    n_components=12,
    decoder="net",
    training=DPSGD(
        steps=100,
        sampling_rate=0.05,  # public: the probability that a row takes part in a step
        warm_start_steps=200,
        net=net,  # a template, which is cloned; its parameters can be searched as training__net__lr, ...
    ),
).fit(X, y)
print("synthetic:", synthesizer.sample(300)[0].shape)
print(synthesizer.accountant_.report().to_string(index=False))


# ---- 2. Any module with one loss for each record: plan, charge, train ------------------------------------------------
class Classifier(nn.Module):
    """One hidden layer; no BatchNorm, whose statistics mix records."""

    def __init__(self, n_hidden=50):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, n_hidden), nn.ReLU(), nn.Linear(n_hidden, 10))

    def forward(self, x):
        return self.layers(x / 16)


rate, steps = 0.1, 200
accountant = PrivacyAccountant(epsilon=3.0, delta=1e-5)
fit = accountant.calibrate([Phase("training", 1.0, steps=steps, sampling_rate=rate)], label="classifier")
plan = DPSGDPlan(
    sampling_rate=rate,
    steps=steps,
    l2_bound=1.0,
    noise_multiplier=fit.noise_multipliers["training"],
    expected_batch_size=rate * 1_800,  # a public guess of the number of rows, used only as a denominator
)
accountant.charge(plan, fit.label)  # before any gradient is computed; the plan may be followed once, in this process
classifier = DPNet(
    Classifier,
    criterion=nn.CrossEntropyLoss,
    plan=plan,
    optimizer=torch.optim.SGD,
    optimizer__momentum=0.9,
    lr=0.3,
    verbose=0,
)
classifier.fit(X.astype("float32"), y)
accuracy = (classifier.predict_proba(X.astype("float32")).argmax(axis=1) == y).mean()
print(f"a private classifier: {accuracy:.0%} of the rows it was trained on (a private figure, for the data holder)")
print(accountant.report().to_string(index=False))
