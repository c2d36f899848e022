"""Trackers: null and MLflow."""
