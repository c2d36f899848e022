"""Operator graphs: forward, backward, update; sharding; fusion."""
