"""Judging finished searches: regret, ranks, tests, intervals; sentences about them are `report.study`'s."""
