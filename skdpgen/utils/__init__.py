"""The noise generator, and the checks that scikit-learn keeps private."""
