"""ConfuciuX: reinforcement learning, then genetic fine tuning, restated for this space."""
