"""Evaluations that the searches of a study share: in files of one machine, or in a database of many."""
