"""Parallel plans: those that a model, a cluster and a batch admit, and the best of them under the price of `cost`."""
