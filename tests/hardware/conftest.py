"""Hypothesis without deadlines: first calls compile and import, and the machine may be busy."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
