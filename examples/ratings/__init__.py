"""How often does an aircraft fly to an airport? Embeddings of both, in tables that are trained by rows."""
