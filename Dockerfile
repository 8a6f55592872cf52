# docker build -t inboxd . && docker run --init -v inboxd:/data -v ./inboxd.toml:/etc/inboxd/inboxd.toml:ro inboxd
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked

FROM debian:bookworm-slim
COPY --from=build /src/target/release/inboxd /usr/bin/inboxd
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin inboxd \
    && install -d -o inboxd -g inboxd -m 0700 /data
USER 10001
VOLUME /data
EXPOSE 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["inboxd", "--config", "/etc/inboxd/inboxd.toml", "health"]
ENTRYPOINT ["inboxd", "--config", "/etc/inboxd/inboxd.toml"]
CMD ["serve"]
