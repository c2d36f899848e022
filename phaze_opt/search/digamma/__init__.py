"""DiGamma: genetic co-search of hardware and mapping, restated for this space."""
