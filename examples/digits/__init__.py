"""Which digit does a picture show? Images from files to a served residual network."""
