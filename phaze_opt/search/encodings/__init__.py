"""Encodings of design points for samplers: the codec, and two others kept to measure what it is worth."""
