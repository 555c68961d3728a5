"""Splits as tf.data.Datasets."""
