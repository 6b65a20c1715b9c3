"""Statistics against a schema: anomalies, with the rows that show them."""
