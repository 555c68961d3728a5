"""Well-known sets of keys, and how the rows of a source become them."""
