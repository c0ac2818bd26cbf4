#!/bin/sh
# In MLflow's pod: makes the user NAME, whose password is read from the input.
set -eu
export MLFLOW_TRACKING_USERNAME=admin MLFLOW_TRACKING_PASSWORD="$MLFLOW_AUTH_ADMIN_PASSWORD"
export MLFLOW_TRACKING_SERVER_CERT_PATH="${MLFLOW_TRACKING_SERVER_CERT_PATH:-/etc/mlflow/tls/ca.crt}"
exec python3 -c '
import sys
from mlflow.server import get_app_client
name, uri = sys.argv[1:]
print("made", get_app_client("basic-auth", uri).create_user(name, sys.stdin.read().strip()).username)
' "$1" "https://localhost:${MLFLOW_PORT:-5000}"
