"""phaze_opt: finds the accelerator, the placement and the operator schedule that train a model fastest."""

__version__ = "0.1.0"
