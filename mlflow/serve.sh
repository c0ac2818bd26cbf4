#!/bin/sh
# Starts the tracking server with users, and with TLS where a certificate is mounted.
# `serve.sh health` asks the one on this machine.
#
#   MLFLOW_BACKEND_STORE_URI        the database; an empty one gets its tables first
#   MLFLOW_USERS_URI                the users' database  [the same, or users.db beside SQLite]
#   MLFLOW_ARTIFACTS_DESTINATION    a folder, or s3://BUCKET/PREFIX
#   MLFLOW_AUTH_ADMIN_PASSWORD      of `admin`, read when there are no users yet
#   MLFLOW_FLASK_SERVER_SECRET_KEY  signs forms; the same for every replica
#   MLFLOW_TLS_CERT, MLFLOW_TLS_KEY [/etc/mlflow/tls/tls.crt, tls.key]
#   MLFLOW_HOST, MLFLOW_PORT, MLFLOW_WORKERS [0.0.0.0, 5000, 2]
set -eu
umask 077
# Runners of GenAI judges: seven processes that nothing here uses.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION="${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}"
cert=${MLFLOW_TLS_CERT:-/etc/mlflow/tls/tls.crt}
key=${MLFLOW_TLS_KEY:-/etc/mlflow/tls/tls.key}
export MLFLOW_PORT="${MLFLOW_PORT:-5000}"

if [ "${1:-}" = health ]; then
    scheme=http
    if [ -f "$cert" ]; then scheme=https; fi
    # The certificate names the service, not this machine's own address.
    exec python3 -c "
import ssl, sys, urllib.request
here = ssl._create_unverified_context()
urllib.request.urlopen(sys.argv[1], timeout=5, context=here)" "$scheme://127.0.0.1:$MLFLOW_PORT/health"
fi

: "${MLFLOW_BACKEND_STORE_URI:?names no database}"
: "${MLFLOW_AUTH_ADMIN_PASSWORD:?is not set}"
: "${MLFLOW_FLASK_SERVER_SECRET_KEY:?is not set}"
case "$MLFLOW_BACKEND_STORE_URI" in
    sqlite:*) users=${MLFLOW_USERS_URI:-${MLFLOW_BACKEND_STORE_URI%/*}/users.db} ;;
    *) users=${MLFLOW_USERS_URI:-$MLFLOW_BACKEND_STORE_URI} ;;
esac

MLFLOW_AUTH_CONFIG_PATH=$(mktemp)
export MLFLOW_AUTH_CONFIG_PATH
# A password that was right is not hashed again for a minute; a withdrawn one may live that long.
cat > "$MLFLOW_AUTH_CONFIG_PATH" <<INI
[mlflow]
default_permission = READ
database_uri = $(printf %s "$users" | sed 's/%/%%/g')
admin_username = ${MLFLOW_AUTH_ADMIN_USERNAME:-admin}
auth_cache_ttl_seconds = 60
INI

# Replicas that start at once take turns at an empty database. One with an older schema is refused
# by the server itself: back it up, then `mlflow db upgrade`.
python3 - <<'PYTHON'
import os

import sqlalchemy
from mlflow.db import upgrade

uri = os.environ["MLFLOW_BACKEND_STORE_URI"]
engine = sqlalchemy.create_engine(uri)
with engine.connect() as turn:
    if engine.dialect.name == "postgresql":
        turn.execute(sqlalchemy.text("SELECT pg_advisory_lock(5000)"))
    if not sqlalchemy.inspect(turn).get_table_names():
        upgrade.callback(uri)
PYTHON

set -- --host "${MLFLOW_HOST:-0.0.0.0}" --port "$MLFLOW_PORT" --workers "${MLFLOW_WORKERS:-2}"
if [ -f "$cert" ]; then
    set -- "$@" --uvicorn-opts "--ssl-certfile $cert --ssl-keyfile $key"
fi
exec mlflow server --app-name basic-auth "$@"
