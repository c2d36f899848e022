"""Accelerators, networks, area, energy and their constants."""
