"""Search spaces and the codec between design points and Optuna."""
