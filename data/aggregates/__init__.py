"""Value tables, exact sums and sketches: what statistics are read off."""
