"""Passes over a flat graph that bring what frameworks and models write differently into one form."""
