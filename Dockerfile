# The service. A key is needed, since it listens for others: see docs/guides/serving.md.
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir '.[serve]' && useradd --create-home --uid 10001 pclf && mkdir /data && chown pclf /data
USER pclf
WORKDIR /data
VOLUME /data
# Native code is compiled at the first start, for the processor that is there, and kept in the volume for the next one.
ENV NUMBA_CACHE_DIR=/data/compiled
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/ready', timeout=2)"]
ENTRYPOINT ["pclf", "serve"]
CMD ["--demo", "--host", "0.0.0.0", "--models", "/data/models"]
