"""Pure functions on arrays that judge searches: regret, hypervolume, rank tests, effect sizes, intervals."""
