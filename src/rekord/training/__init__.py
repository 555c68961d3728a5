"""A small baseline model for a dataset: proof that it trains, and how well the data comes in."""
