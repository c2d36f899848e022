"""Latency and energy of operators and collectives."""
