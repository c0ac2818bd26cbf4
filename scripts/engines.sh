#!/usr/bin/env sh
# What container tests need, on a machine that has none of it.
#   scripts/engines.sh start FOLDER   a Docker engine of our own; prints its DOCKER_HOST
#   scripts/engines.sh stop FOLDER    ends it
#   scripts/engines.sh base           makes BASE_IMAGE where no registry gives it
# An engine that answers already is taken as it is. As root on Debian the engine's, buildah's and
# mmdebstrap's packages are installed where they are missing; elsewhere nothing is installed.
set -eu
base=${BASE_IMAGE:-localhost/python:3.11-slim}

on_debian_as_root() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; }

have() {
    for command in "$@"; do
        command -v "$command" >/dev/null 2>&1 || return 1
    done
}

packages() {
    if ! have dockerd docker buildah runc mmdebstrap && on_debian_as_root; then
        apt-get update -qq >&2
        apt-get install -qq -y --no-install-recommends docker.io buildah runc mmdebstrap >&2
    fi
}

start() {
    if docker info >/dev/null 2>&1; then
        echo "${DOCKER_HOST:-unix:///var/run/docker.sock}"
        return
    fi
    packages
    have dockerd || { echo "no Docker engine, and none can be installed here" >&2 && exit 1; }
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    # No bridge and no rules in the machine's firewall: the tasks have no network anyway.
    dockerd --host "unix://$folder/docker.sock" --data-root "$folder/data" \
        --exec-root "$folder/exec" --pidfile "$folder/docker.pid" \
        --default-ulimit nofile=1024:1024 --iptables=false --bridge=none \
        >"$folder/dockerd.log" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 30); do
        if DOCKER_HOST="unix://$folder/docker.sock" docker info >/dev/null 2>&1; then
            echo "unix://$folder/docker.sock"
            return
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 1
    done
    kill "$pid" 2>/dev/null || true
    umount "$folder/data" 2>/dev/null || true
    tail -n 5 "$folder/dockerd.log" >&2
    echo "the Docker engine does not start here" >&2
    exit 1
}

# The engine takes its pid file away last of all, and until then it ends containers.
stop() {
    [ -f "$1/docker.pid" ] || return 0
    pid=$(cat "$1/docker.pid")
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 60); do
        [ -f "$1/docker.pid" ] || return 0
        sleep 1
    done
    echo "the Docker engine $pid does not end" >&2
    exit 1
}

make_base() {
    packages
    if buildah inspect --type image "$base" >/dev/null 2>&1 || buildah pull -q "$base" 2>/dev/null; then
        return
    fi
    if ! have mmdebstrap || ! on_debian_as_root; then
        echo "no registry gives $base, and only root on Debian can make it" >&2
        exit 1
    fi
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    # Debian 12's own Python is 3.11.
    mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$folder/base.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$folder/base.tar" / >/dev/null
    buildah commit --quiet --rm "$container" "$base" >/dev/null
}

case ${1:-} in
start) start "${2:?folder}" ;;
stop) stop "${2:?folder}" ;;
base) make_base ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
