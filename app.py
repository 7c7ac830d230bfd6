"""The app's front door in a checkout: `streamlit run app.py`, or `-- my.yaml` to open a file."""

from twin.ui.router import route

route()
