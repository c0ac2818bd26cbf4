#!/usr/bin/env sh
# Build the images with buildah, or with docker where that is not there.
#   IMAGE_TARGETS="eval train mlflow"   targets of Containerfile (`rollout` has vLLM besides), and
#       the tracking server of mlflow/
#   IMAGE_PREFIX=localhost/posttrain   their name; the tag is the target (NAME-mlflow:dev)
#   BASE_IMAGE=python:3.11-slim   any image with Python 3.11 and its venv module
# Package hosts and certificates are taken from pip's configuration on this machine, if it has any.
set -eu
cd "$(dirname "$0")/.."
targets=${IMAGE_TARGETS:-eval train mlflow}
prefix=${IMAGE_PREFIX:-localhost/posttrain}
secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT

python=.venv/bin/python
[ -x "$python" ] || python=python3
setting() { "$python" -m pip config get "global.$1" 2>/dev/null || true; }
links=${PIP_FIND_LINKS:-$(setting find-links)}
index=${PIP_INDEX_URL:-$(setting index-url)}
extra=${PIP_EXTRA_INDEX_URL:-$(setting extra-index-url)}
certificates=${PIP_CERT:-$(setting cert)}
indexes=
for place in $extra; do
    case $place in http*) indexes="$indexes $place" ;; esac
done
folders=
for place in $links; do
    [ ! -d "$place" ] || folders="$folders $place"
done
{
    [ -z "$index" ] || echo "PIP_INDEX_URL='$index' UV_DEFAULT_INDEX='$index'"
    [ -z "$indexes" ] || echo "UV_INDEX='$indexes'"
    [ -z "$links" ] || echo "UV_FIND_LINKS='$links'"
    # As pip has it: the best version of all places, such as torch's build for CPUs.
    echo "UV_INDEX_STRATEGY=unsafe-best-match"
} >"$secrets/index"
set -- --secret "id=index,src=$secrets/index"
if [ -f "$certificates" ]; then
    set -- "$@" --secret "id=certificates,src=$(readlink -f "$certificates")"
fi

revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no -- src pipelines 2>/dev/null)" ] ||
    revision=$revision+
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
label() { echo "--label=$1=$2"; }
# What differs: the name, where it is built from, and the lock of its packages.
name() { case $1 in mlflow) echo "$prefix-mlflow:dev" ;; *) echo "$prefix:$1" ;; esac; }
place() {
    case $1 in
    mlflow) echo "--file mlflow/Containerfile mlflow" ;;
    *) echo "--file Containerfile --target $1 ." ;;
    esac
}
lock_label() {
    case $1 in
    mlflow) lock=mlflow/requirements.lock ;;
    rollout) lock=requirements-image-rollout.lock ;;
    *) lock=requirements-images.lock ;;
    esac
    label posttrain.lock "sha256:$(sha256sum $lock | cut -d' ' -f1)"
}
set -- "$@" --build-arg "REVISION=$revision" \
    "$(label org.opencontainers.image.version "$version")" \
    "$(label org.opencontainers.image.revision "$revision")" \
    "$(label org.opencontainers.image.created "$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)")"
[ -z "${BASE_IMAGE:-}" ] || set -- "$@" --build-arg "BASE_IMAGE=$BASE_IMAGE"
if grep -q '^vllm==' requirements-image-rollout.lock; then
    set -- "$@" --build-arg TORCHDYNAMO_DISABLE=0
fi

if command -v buildah >/dev/null 2>&1; then
    for folder in $folders; do set -- "$@" --volume "$folder:$folder:ro"; done
    build() {
        target=$1
        shift
        # shellcheck disable=SC2046
        buildah bud --quiet --network host --timestamp "$epoch" "$@" \
            "$(lock_label "$target")" --tag "$(name "$target")" $(place "$target") >/dev/null
        if docker info >/dev/null 2>&1; then
            archive=$(mktemp -u "$secrets/XXXXXX.tar")
            buildah push --quiet "$(name "$target")" "docker-archive:$archive:$(name "$target")"
            docker load --quiet --input "$archive" >/dev/null
            rm "$archive"
        fi
    }
    told() { buildah images --format '{{.Name}}:{{.Tag}}  {{.Size}}  {{.Digest}}' "$1"; }
elif docker buildx version >/dev/null 2>&1; then
    [ -z "$folders" ] || echo "docker builds do not see the wheels in$folders" >&2
    build() {
        target=$1
        shift
        # shellcheck disable=SC2046
        SOURCE_DATE_EPOCH=$epoch docker buildx build --quiet --load "$@" \
            "$(lock_label "$target")" --tag "$(name "$target")" $(place "$target") >/dev/null
    }
    told() { docker images --format '{{.Repository}}:{{.Tag}}  {{.Size}}  {{.ID}}' "$1"; }
else
    echo "error: neither buildah nor docker with buildx is here to build images" >&2
    exit 2
fi
for target in $targets; do build "$target" "$@"; done
for target in $targets; do told "$(name "$target")"; done
