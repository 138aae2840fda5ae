# doi-proxy as a container. Packages come from the lock, with hashes. The final image uses no pip and no build tools.
#
#   docker build -t doi-proxy .
#   podman build --format docker -t doi-proxy .     (an image in OCI format has no HEALTHCHECK)
#   docker run --read-only --tmpfs /tmp --stop-timeout 30 -p 8000:8000 -v doi-proxy:/var/lib/doi-proxy doi-proxy
#
# The base image has an exact version. docker-compose.yml says how to pin its digest. --build-arg BASE=IMAGE names another one,
# such as that of a mirror: an image of Debian with Python 3.11 or later.

ARG BASE=docker.io/library/python:3.11.14-slim-bookworm
FROM ${BASE} AS install
ENV PIP_QUIET=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements requirements
RUN python3 -m venv --without-pip /opt/doi-proxy \
 && python3 -m pip --python /opt/doi-proxy/bin/python install --no-compile --no-deps --require-hashes -r requirements/runtime.lock
RUN python3 -m venv --without-pip /opt/build \
 && python3 -m pip --python /opt/build/bin/python install --no-deps --require-hashes -r requirements/build.lock \
 && python3 -m pip --python /opt/build/bin/python install --no-deps --require-hashes -r requirements/runtime.lock
COPY pyproject.toml LICENSE README.md ./
COPY packaging packaging
COPY app app
COPY config config
COPY docs docs
# The version of the checkout, which has the history: --build-arg VERSION="$(doi-proxy --version | cut -d' ' -f2)"
ARG VERSION=1.0.0.dev
RUN echo "$VERSION" >app/doi_proxy/system/built_version.txt \
 && python3 -m pip --python /opt/build/bin/python wheel --no-deps --no-build-isolation --wheel-dir /opt/wheels . \
 && python3 -m pip --python /opt/doi-proxy/bin/python install --no-compile --no-deps --no-index --find-links /opt/wheels doi-proxy \
 && find /opt/doi-proxy/bin -type f ! -name doi-proxy -delete
# Bytecode that Python uses without a look at the source: a build with --timestamp changes the times of all sources.
# The order of a constant set depends on the hash seed. -f: pip imported some packages, and wrote bytecode that is looked up.
RUN PYTHONHASHSEED=0 /opt/doi-proxy/bin/python -m compileall -f -q -j 0 --invalidation-mode unchecked-hash /opt/doi-proxy/lib

FROM ${BASE}
ARG VERSION=1.0.0.dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="doi-proxy" \
      org.opencontainers.image.description="A self-hosted DOI resolver proxy for institutions" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The day that useradd writes into /etc/shadow, in seconds since 1970 (default: today).
ARG SOURCE_DATE_EPOCH
RUN groupadd --gid 10001 doi-proxy \
 && useradd --uid 10001 --gid doi-proxy --no-create-home --no-log-init --home-dir /var/lib/doi-proxy --shell /usr/sbin/nologin doi-proxy \
 && install -d -o doi-proxy -g doi-proxy -m 0750 /var/lib/doi-proxy \
 && rm -rf /usr/local/lib/python3.11/site-packages/pip /usr/local/lib/python3.11/site-packages/pip-* /usr/local/bin/pip*
COPY --from=install /opt/doi-proxy /opt/doi-proxy
COPY config /usr/share/doi-proxy
COPY config/systemd/doi-proxy.toml config/systemd/allow.txt config/systemd/deny.txt /etc/doi-proxy/
ENV PATH="/opt/doi-proxy/bin:${PATH}" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    STATE_DIRECTORY="/var/lib/doi-proxy" \
    DOI_PROXY_CONFIG="/etc/doi-proxy/doi-proxy.toml" \
    DOI_PROXY_STORE_URL="sqlite:////var/lib/doi-proxy/doi-proxy.sqlite3"
WORKDIR /var/lib/doi-proxy
USER 10001:10001
VOLUME /var/lib/doi-proxy
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s --retries=3 CMD ["doi-proxy", "check", "--ready"]
ENTRYPOINT ["doi-proxy"]
CMD ["serve", "--host", "0.0.0.0"]
