"""Geometry of what the page draws as SVG: pure functions from values to shapes, which the templates write down."""
