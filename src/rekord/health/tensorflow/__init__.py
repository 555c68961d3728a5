"""What TensorFlow reports, or will report, about records."""
