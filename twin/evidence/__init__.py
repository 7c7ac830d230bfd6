"""Predictions against measurements: timelines, live runs, calibration, published rows."""
