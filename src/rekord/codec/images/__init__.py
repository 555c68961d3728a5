"""Encoded images and masks: inspected, stored, decoded."""
