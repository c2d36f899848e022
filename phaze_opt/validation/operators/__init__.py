"""Operators on A100, MI210 and TPUs: the family of four data sets."""
