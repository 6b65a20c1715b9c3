"""A model of late flights for every month, learnt from it and the two before it."""
