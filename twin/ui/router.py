"""The app's router: what `twin ui` has streamlit run. Pages are the scripts in `pages`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_PAGES = Path(__file__).parent / "pages"


def route() -> None:
    """Run the page that the visitor asks for."""
    st.set_page_config(page_title="Twin", layout="wide", initial_sidebar_state=380)
    page = st.navigation([st.Page(_PAGES / "compare.py", title="Compare plans", default=True)])
    page.run()


if __name__ == "__main__":
    route()
