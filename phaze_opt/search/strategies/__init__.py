"""Published strategies, restated for this space; WHAM and the samplers of Optuna have folders of their own."""
