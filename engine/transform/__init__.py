"""Phases of a transform: what is analysed in one pass over each span, and what is frozen of it."""
