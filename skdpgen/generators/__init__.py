"""What is made of released values alone: pure functions and models, no estimator, no private rows."""
