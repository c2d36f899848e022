"""Spotlight (Sakhuja et al., HPCA 2023) restated for training accelerators, with its variants."""
