"""Tensors and tables out of decoded batches."""
