"""Pruners: one per file."""
