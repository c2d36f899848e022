"""Conformance suites for plug-in authors, and tiny canonical problems."""
