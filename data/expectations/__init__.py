"""Great Expectations suites: read, written, and decided from statistics or on rows."""
