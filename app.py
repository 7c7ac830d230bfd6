"""The app's router: `streamlit run app.py`. Pages are the scripts in `twin/ui/pages`."""

from pathlib import Path

import streamlit as st

import twin.ui.pages

PAGES = Path(twin.ui.pages.__file__).parent

st.set_page_config(page_title="Twin", layout="wide", initial_sidebar_state=380)
page = st.navigation(
    [
        st.Page(
            PAGES / "compare.py",
            title="Compare plans",
            default=True,
        )
    ]
)
page.run()
