"""Writing the records of experiments/ anew: what they are, how they are made, what moved."""
