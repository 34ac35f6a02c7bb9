"""Pictures of real beside synthetic rows, in scikit-learn's Display convention; matplotlib is imported when drawing."""
