"""Statistics of data sets: one pass, one document."""
