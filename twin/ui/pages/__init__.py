"""One script per page, run by `st.navigation` in `twin.ui.router`."""
