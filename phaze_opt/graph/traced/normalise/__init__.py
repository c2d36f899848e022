"""Passes over a flat graph, one a file, that bring what frameworks and models write differently into one form."""
