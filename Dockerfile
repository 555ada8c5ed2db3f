# The image of every role: worker (the default), topics, produce, receiver …

FROM python:3.11.14-slim-bookworm AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PROJECT_ENVIRONMENT=/opt/outbox \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# The dependencies change less often than the code: a layer of their own.
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --frozen --no-default-groups --no-install-project
COPY schemas schemas
COPY streams streams
RUN uv sync --frozen --no-default-groups --no-editable

FROM python:3.11.14-slim-bookworm
# Nothing that installs or builds stays. The data directory is the one place that is written to.
RUN pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/outbox
COPY --from=build /opt/outbox /opt/outbox
ENV PATH=/opt/outbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OUTBOX_DATA_DIR=/var/lib/outbox \
    OUTBOX_HEALTH_ADDRESS=0.0.0.0:8081
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/outbox
VOLUME /var/lib/outbox
EXPOSE 8081
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/healthz', timeout=2)"]
ENTRYPOINT ["outbox"]
CMD ["worker"]
