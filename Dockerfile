# Serves the app on port 8501:
#   docker build -t twin .
#   docker run --rm -p 127.0.0.1:8501:8501 -v twin-runs:/home/twin/runs twin
FROM python:3.12-slim

RUN useradd --create-home twin
COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES.md /src/
COPY twin /src/twin
COPY scenarios /src/scenarios
RUN pip install --no-cache-dir '/src[ui]' && rm -r /src

USER twin
WORKDIR /home/twin
RUN mkdir runs && python -m compileall -q "$(python -c 'import twin, os; print(os.path.dirname(twin.__file__))')" || true
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["twin", "ui", "--host", "0.0.0.0", "--port", "8501"]
