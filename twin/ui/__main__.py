"""The app's server: `python -m twin.ui run SCRIPT` is `streamlit run SCRIPT`, with what pages need
loaded while the browser starts."""

from __future__ import annotations

from threading import Thread

from streamlit.web import cli

from twin.ui.warm import warm

if __name__ == "__main__":
    Thread(target=warm, name="twin warm", daemon=True).start()
    cli.main(prog_name="streamlit")
