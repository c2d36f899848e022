"""Study files: TOML to a plan and its conditions; everything that can be wrong with a plan is found here."""
