"""Conversions: planned, cut into tasks that can be run again, and run on the cores of a machine."""
