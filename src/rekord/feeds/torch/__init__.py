"""Splits as batches of torch tensors and as torch datasets."""
