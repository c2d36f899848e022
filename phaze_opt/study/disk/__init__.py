"""The directory of a study: its plan and its finished searches, written whole or not at all."""
