# Built with make image. make image-archive and make release make the same without a container engine:
# e2e/release/image says once more what this file says below.

# Of the machine's own kind, whatever the image is for: Go compiles for all.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS build
WORKDIR /src
ENV GOCACHE=/go/cache
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# VERSION is for a context without .git, where classbind version could not name the commit.
ARG TARGETOS TARGETARCH VERSION
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    GOOS=$TARGETOS GOARCH=$TARGETARCH make build TRIMPATH=-trimpath VERSION=$VERSION

FROM scratch
COPY --from=build /src/bin/classbind /classbind
USER 65532:65532
ENTRYPOINT ["/classbind"]
