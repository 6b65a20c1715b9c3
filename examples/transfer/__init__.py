"""Transfer learning through the hub, on scikit-learn's digits."""
