"""What a user writes: components, pipelines, control flow; and the builder that takes it down."""
