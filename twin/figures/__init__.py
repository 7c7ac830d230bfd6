"""Figures: reports and traces as plotly figures, the same for the app and for any export.

No streamlit here.
"""
