"""The app's router: `streamlit run app.py`. Pages are the scripts in `twin/ui/pages`."""

from pathlib import Path

import streamlit as st

import twin.ui.pages

PAGES = Path(twin.ui.pages.__file__).parent

st.set_page_config(page_title="Twin", page_icon=":material/hub:", layout="wide")
page = st.navigation(
    [
        st.Page(
            PAGES / "compare.py",
            title="Compare plans",
            icon=":material/compare_arrows:",
            default=True,
        )
    ]
)
page.run()
