"""Checks certificates with code of its own: it shares the estimator, the graphs and data classes with the prover."""
