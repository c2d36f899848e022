"""What survives of an optimum when the assumptions move: certified optima of many worlds, regret, min-max regret."""
