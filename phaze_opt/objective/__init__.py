"""`evaluate`: a design point in, an `Evaluation` out."""
