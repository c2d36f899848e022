"""Judging finished searches: regret, ranks, tests, intervals, and findings in words."""
