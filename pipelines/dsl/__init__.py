"""What a user writes: components, pipelines, control flow; and the builder that records it."""
