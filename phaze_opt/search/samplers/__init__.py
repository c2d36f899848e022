"""Optuna's samplers as strategies, and the plain enumeration of a space."""
