"""A strategy, an estimator and a tracker for phaze-opt, from outside its tree."""
