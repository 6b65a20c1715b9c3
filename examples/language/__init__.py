"""Which character comes next in Python's documentation? A small decoder, beside a bigram model."""
