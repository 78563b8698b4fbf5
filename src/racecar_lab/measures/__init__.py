"""Measurements of trained nets."""
