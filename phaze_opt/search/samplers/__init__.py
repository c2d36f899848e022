"""Optuna samplers as strategies, one a file."""
