#!/usr/bin/env sh
# Inside the build of an image (see Containerfile): install a group of pyproject.toml, with the
# versions and hashes of requirements-images.lock, or for `rollout` all of its own lock.
set -eu
cd /build
tools=/build/tools
home=/opt/posttrain
image=/image

# Where packages come from and whom to trust is the builder's affair: see scripts/images.sh.
if [ -f /run/secrets/index ]; then
    set -a
    . /run/secrets/index
    set +a
fi
if [ -f /run/secrets/certificates ]; then
    export SSL_CERT_FILE=/run/secrets/certificates PIP_CERT=/run/secrets/certificates
fi
# A layer's files get the time of the commit, so bytecode must not be judged by times.
export PYC_INVALIDATION_MODE=UNCHECKED_HASH UV_NO_CACHE=1 UV_LINK_MODE=copy PIP_DISABLE_PIP_VERSION_CHECK=1

uv() { "$tools/bin/uv" "$@"; }

# The group's packages with the versions of the lock; --require-hashes wants them so.
pins() { uv pip compile -q --no-deps --no-header --no-annotate --group "$1" -c lock; }

install() { uv pip install -q --compile-bytecode --require-hashes "$@"; }

case $1 in
tools)
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q --no-cache-dir --require-hashes -r requirements-image-tools.lock
    # The build of torch for CPUs has a version of its own; which one is offered here?
    torch=$(sed -n 's/^\(torch==[^ ]*\) .*/\1/p' requirements-images.lock)
    offered=$(echo "$torch" | uv pip compile -q --no-deps --no-header --no-annotate -)
    sed "s/^$torch /$offered /" requirements-images.lock >lock
    ;;
code)
    "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --no-index -w wheel .
    python3 -m venv --without-pip "$home"
    uv pip install -q --offline --no-deps --compile-bytecode \
        --python "$home/bin/python" --prefix "$image$home" wheel/*.whl
    ;;
eval | train | rollout)
    python3 -m venv --without-pip "$home"
    if [ "$1" = rollout ]; then
        # Packages that contradict each other in what they say they want, and are tried together.
        install --python "$home/bin/python" --no-deps -r requirements-image-rollout.lock
        # vLLM asks the system where memory lies, and on GPUs compiles kernels when it is started.
        compiler=
        if grep -q '^vllm==' requirements-image-rollout.lock; then compiler=g++; fi
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends libnuma1 $compiler >/dev/null
        rm -rf /var/lib/apt/lists/* /var/cache/ldconfig /var/log/apt /var/log/dpkg.log
    else
        pins "$1" >/tmp/pins
        install --python "$home/bin/python" -c lock -r /tmp/pins
        rm /tmp/pins
    fi
    # What is only of use with a compiler, and torch's own tests: 150 MB.
    rm -rf "$home"/lib/python3.11/site-packages/torch/include \
        "$home"/lib/python3.11/site-packages/torch/test
    mkdir -p /usr/share/posttrain
    "$tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible \
        -o /usr/share/posttrain/sbom.json "$home/bin/python"
    ;;
esac
