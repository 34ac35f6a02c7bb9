"""Scikit-learn's classifiers compared on real and on synthetic rows.

Does the synthetic table select the same best classifier? A user of the synthetic rows compares classifiers on them:
train on one part, test on the rest. Here the data holder checks on real rows how reliable that comparison is. Every
classifier is also trained on all synthetic rows and on the real rows, and both are tested on held-out real rows. Scores
on real rows are for the data holder's eyes; this table is public. About a hundred test rows cannot separate the best
classifiers here, so neither real nor synthetic rows give a reliable order of them.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skdpgen import MomentSynthesizer
from skdpgen.datasets import load_breast_cancer_table
from skdpgen.exceptions import UtilityWarning

warnings.simplefilter("ignore", UtilityWarning)  # it says that 455 rows are few
data = load_breast_cancer_table()
held_out = np.random.default_rng(0).random(len(data.frame)) < 0.2
train, test = data.frame[~held_out], data.frame[held_out]

synthesizer = MomentSynthesizer(epsilon=3.0, schema=data.schema, target=data.target, random_state=0).fit(train)
synthetic = synthesizer.sample(1_000)
part = np.arange(len(synthetic)) < 700  # the rows are independent: any part will do

classifiers = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "naive Bayes": GaussianNB(),
    "5 nearest neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier()),
    "random forest": RandomForestClassifier(100, random_state=0),
    "decision tree": DecisionTreeClassifier(random_state=0),
    "a guess": DummyClassifier(),
}


def auroc(classifier, fitted, tested):
    """Area under the ROC curve of a classifier trained on `fitted` and tested on `tested`."""
    X, y = fitted.drop(columns=data.target), fitted[data.target].astype(str)
    positive = list(classifier.fit(X, y).classes_).index(data.positive)
    chances = classifier.predict_proba(tested.drop(columns=data.target))[:, positive]
    return roc_auc_score(tested[data.target].astype(str) == data.positive, chances)


pairs = {
    "synthetic, tested on synthetic": (synthetic[part], synthetic[~part]),
    "synthetic, tested on real": (synthetic, test),
    "real, tested on real": (train, test),
}
scores = {name: [auroc(c, *pair) for c in classifiers.values()] for name, pair in pairs.items()}
print(f"{'AUROC; trained on':22}" + "".join(f"{name:>34}" for name in pairs))
for k, name in enumerate(classifiers):
    print(f"{name:22}" + "".join(f"{column[k]:34.3f}" for column in scores.values()))
for name in list(pairs)[:2]:
    agreement = spearmanr(scores[name], scores["real, tested on real"]).statistic
    print(f"rank correlation of '{name}' with 'real, tested on real': {agreement:.2f}")

figure = Figure(figsize=(7, 3.4), layout="constrained")
ax = figure.subplots()
for k, (name, column) in enumerate(scores.items()):
    ax.barh(np.arange(len(column)) + 0.27 * (k - 1), column, height=0.25, label=name)
ax.set(yticks=range(len(classifiers)), yticklabels=list(classifiers), xlim=(0.4, 1.0), xlabel="AUROC")
ax.invert_yaxis()
figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
path = Path(tempfile.mkdtemp()) / "compare_classifiers.png"
figure.savefig(path, dpi=120)
print("picture:", path)

print(synthesizer.accountant_.report().to_string(index=False))
