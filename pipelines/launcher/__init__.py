"""How one task runs: what it waits for, its key, its attempts, what is recorded."""
