"""The diagnoses of the doctor: one module per family of problems."""
