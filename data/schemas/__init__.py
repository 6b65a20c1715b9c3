"""What data should be: the schema, and how it is written for people and for TFX."""
