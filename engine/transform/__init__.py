"""Phases of a transform: each analyses every span in one pass; then the function is frozen with the results."""
