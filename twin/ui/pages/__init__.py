"""One script per page, run by `st.navigation` in `app.py`."""
