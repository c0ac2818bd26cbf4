#!/usr/bin/env sh
# Make .venv from the lock. torch comes from wherever pip is set up to find it: a machine whose
# pip offers the CPU build gets that one, any other the ordinary wheel.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "error: Python 3.11 is needed; $python is $("$python" -V). Set PYTHON=/path/to/python3.11" >&2
    exit 2
}
[ -x .venv/bin/python ] || "$python" -m venv .venv

# uv does not read pip's configuration, so hand over what pip would use.
setting() { .venv/bin/pip config get "global.$1" 2>/dev/null || true; }
links=${PIP_FIND_LINKS:-$(setting find-links)}
index=${PIP_INDEX_URL:-$(setting index-url)}
extra=${PIP_EXTRA_INDEX_URL:-}
if .venv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1' 2>/dev/null; then
    [ -z "$links" ] || export UV_FIND_LINKS="$links"
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    [ -z "$extra" ] || export UV_INDEX="$extra"
    # Bytecode at install: otherwise every one of the pipeline's processes would compile again.
    .venv/bin/uv pip install --quiet --python .venv/bin/python --compile-bytecode -r requirements.lock
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps -e .
else
    .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.lock
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
fi
