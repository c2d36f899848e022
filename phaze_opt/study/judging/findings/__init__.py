"""What a study found, in sentences."""
