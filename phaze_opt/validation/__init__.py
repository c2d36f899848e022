"""The models against published measurements of real machines: data, predictions, fits, scores."""
