"""Proof of the optimum of a whole space: bounds, the loop that closes them, the certificate and its check."""
