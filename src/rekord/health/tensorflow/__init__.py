"""What TensorFlow says, or will say, of records."""
