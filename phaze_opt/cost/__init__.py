"""One training step of a parallel plan: graph, operator times, collectives, pipeline, optimizer."""
