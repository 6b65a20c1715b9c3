"""Is the penguin an Adelie, by its bill, flipper and weight?"""
