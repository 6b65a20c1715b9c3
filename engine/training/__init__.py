"""Training: the functional core of a model, batches, strategies, checkpoints."""
