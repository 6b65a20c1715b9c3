"""Host kernels: what XLA cannot do, on Arrow batches and on single rows."""
