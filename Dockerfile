# syntax=docker/dockerfile:1
# The image of Bayplan: the binary on distroless, without a shell, as a user who is not root, with nothing to write to.
#
#   docker build -t bayplan:0.2.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/bayplan:0.2.0 --push .
#
# The build runs on the machine's own platform and compiles for the image's with cargo's target. Both stages are of the
# same release of Debian, so that the C library that the binary is linked with is the one it meets.

FROM --platform=$BUILDPLATFORM rust:1.95-trixie AS build
ARG TARGETARCH
# What `bayplan version` says it was built from: `--build-arg BAYPLAN_GIT_COMMIT=$(git rev-parse HEAD)`.
ARG BAYPLAN_GIT_COMMIT=""
# The toolchain of this image, whatever else rust-toolchain.toml would install.
ENV RUSTUP_TOOLCHAIN=1.95.0 \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# Debian keeps one version of a package for a release: there is none to pin.
# hadolint ignore=DL3008
RUN case "$TARGETARCH" in \
      amd64) target=x86_64-unknown-linux-gnu packages=(gcc-x86-64-linux-gnu libc6-dev-amd64-cross) ;; \
      arm64) target=aarch64-unknown-linux-gnu packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;; \
      *) echo "the image is built for amd64 and arm64, not for '$TARGETARCH'" >&2; exit 1 ;; \
    esac; \
    echo "$target" > /target; \
    rustup target add "$target"; \
    if [ "$(dpkg --print-architecture)" != "$TARGETARCH" ]; then \
      apt-get update; \
      apt-get install -y --no-install-recommends "${packages[@]}"; \
      rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=bayplan-target-$TARGETARCH \
    target=$(cat /target); \
    cargo build --release --locked -p bayplan --target "$target"; \
    cp "target/$target/release/bayplan" /bayplan

# glibc, libgcc and the certificate authorities of the web; nothing to log in to.
FROM gcr.io/distroless/cc-debian13:nonroot
LABEL org.opencontainers.image.title="Bayplan" \
      org.opencontainers.image.description="Kubernetes' placement brain: scheduler, control loops and API server" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build --chmod=0555 /bayplan /usr/local/bin/bayplan
# By number, so that `runAsNonRoot` can be checked.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/bayplan"]
