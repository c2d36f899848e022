"""Operator schedules of one layer: bounds, heuristics, ILP, replay."""
