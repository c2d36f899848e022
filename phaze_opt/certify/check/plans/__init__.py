"""The checker's own price of full parallel plans: with the prover it shares data, graphs and collectives alone."""
