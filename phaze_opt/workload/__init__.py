"""Models: `ModelSpec`, `TrainingSpec` and the zoo."""
