"""What a doctor knows: one module for each family of troubles."""
