"""What a search hands on to its best estimator."""

from __future__ import annotations

from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

__all__ = ["ForwardsToBest"]


def _best_has(name):
    def check(self):
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, name)
        return True

    return check


class ForwardsToBest:
    """Methods and attributes of ``best_estimator_``, as far as the estimator has them."""

    @available_if(_best_has("sample"))
    def sample(self, n_samples=None, **options):
        """Draw synthetic rows from the best estimator; charges nothing."""
        check_is_fitted(self)
        return self.best_estimator_.sample(n_samples, **options)

    @available_if(_best_has("sample_chunks"))
    def sample_chunks(self, n_samples=None, **options):
        """Draw synthetic rows from the best estimator a part at a time; charges nothing."""
        check_is_fitted(self)
        return self.best_estimator_.sample_chunks(n_samples, **options)

    @available_if(_best_has("transform"))
    def transform(self, X):
        """Transform rows by the best estimator: a value for each record, not a release."""
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    @available_if(_best_has("transform"))
    def fit_transform(self, X, y=None):
        """Search, and transform the rows by the best estimator."""
        return self.fit(X, y).transform(X)

    @available_if(_best_has("inverse_transform"))
    def inverse_transform(self, X):
        """Map latents back to rows by the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.inverse_transform(X)

    @available_if(_best_has("predict"))
    def predict(self, X):
        """Predict by the best estimator: a value for each record, not a release."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_best_has("score"))
    def score(self, X, y=None):
        """Return the best estimator's score of rows, which are read unpaid."""
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    @available_if(_best_has("save"))
    def save(self, path):
        """Write the best estimator to a file, with the card of the search."""
        check_is_fitted(self)
        self.best_estimator_.save(path)

    @property
    def classes_(self):
        """Classes of the best estimator."""
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self):
        """Number of columns."""
        return self.best_estimator_.n_features_in_

    @property
    def feature_names_in_(self):
        """Names of the columns."""
        return self.best_estimator_.feature_names_in_

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("input_tags", "target_tags", "estimator_type", "transformer_tags", "classifier_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.non_deterministic = True
        return tags
