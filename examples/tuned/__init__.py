"""How heavy is a penguin, by its bill, its flipper, its sex and its island? With hyperparameters that were searched."""
