#!/bin/sh
# Makes the secrets that the manifests name, and leaves those that are there. No value stands on a
# command line. Arguments go to kubectl: `sh k8s/secrets.sh --dry-run=client -o yaml` only shows.
#
#   NAMESPACE      where graphs run: posttrain, or a tenant's           [posttrain]
#   S3_ENDPOINT, S3_BUCKET, S3_ACCESS_KEY, S3_SECRET_KEY   of your object store
#                  [without them: of the store that overlays/cpu starts in the cluster]
#   WEBHOOK        address that is told of nights                       [none]
set -eu
umask 077
namespace=${NAMESPACE:-posttrain}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

chance() { openssl rand -hex 24 | tr -d '\n'; }
give() { printf %s "$2" > "$1"; }

# found NAMESPACE KIND NAME: its data, if it is there; any trouble but its absence is the end
found() {
    kubectl --namespace "$1" get "$2" "$3" --ignore-not-found -o "${4:-name}"
}

# make KIND NAME FLAG...: unless there is one
make() {
    kind=$1 name=$2
    shift 2
    if [ "$offline" = no ] && [ -n "$(found "$namespace" "${kind%% *}" "$name")" ]; then
        echo "$name is there" >&2
        return
    fi
    # shellcheck disable=SC2086
    kubectl --namespace "$namespace" create $kind "$name" "$@"
    echo "---"
}

# again NAMESPACE KIND NAME KEY: the value that an earlier run gave, in a file named like the key
again() {
    if [ "$offline" = yes ]; then return; fi
    template="go-template={{with index .data \"$4\"}}{{.}}{{end}}"
    value=$(found "$1" "$2" "$3" "$template")
    if [ -z "$value" ]; then return; fi
    if [ "$2" = secret ]; then value=$(echo "$value" | base64 -d); fi
    give "$4" "$value"
}

offline=no
case "$*" in *--dry-run=client*) offline=yes ;; esac

give access-key "${S3_ACCESS_KEY:-$(chance)}"
give secret-key "${S3_SECRET_KEY:-$(chance)}"
again "$namespace" secret posttrain-artifacts access-key
again "$namespace" secret posttrain-artifacts secret-key
make "secret generic" posttrain-artifacts --from-file=access-key --from-file=secret-key "$@"

give username "$namespace"
give password "$(chance)"
make "secret generic" posttrain-mlflow --from-file=username --from-file=password "$@"

if [ -n "${WEBHOOK:-}" ]; then
    give url "$WEBHOOK"
    make "secret generic" posttrain-webhook --from-file=url "$@"
fi

if [ "$namespace" != posttrain ]; then
    again posttrain configmap posttrain-ca ca.crt
    if [ -f ca.crt ]; then make configmap posttrain-ca --from-file=ca.crt "$@"; fi
    exit
fi

give password "$(chance)"
make "secret generic" mlflow-postgres --from-file=password "$@"

give password "$(chance)"
give flask-key "$(chance)"
make "secret generic" mlflow-admin --from-file=password --from-file=flask-key "$@"

if [ -n "${S3_ENDPOINT:-}" ]; then
    cat > store <<ENV
MLFLOW_ARTIFACTS_DESTINATION=s3://${S3_BUCKET:?names no bucket}/mlflow
MLFLOW_S3_ENDPOINT_URL=https://$S3_ENDPOINT
AWS_ACCESS_KEY_ID=$(cat access-key)
AWS_SECRET_ACCESS_KEY=$(cat secret-key)
ENV
    make "secret generic" mlflow-artifacts --from-env-file=store "$@"
else
    cat > s3.json <<JSON
{"identities": [{"name": "argo", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
  "credentials": [{"accessKey": "$(cat access-key)", "secretKey": "$(cat secret-key)"}]}]}
JSON
    make "secret generic" objectstore --from-file=s3.json "$@"
fi

# An authority that signs once: its key goes with this folder.
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 825 \
        -subj "/CN=posttrain" -addext "keyUsage=critical,keyCertSign"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.csr -subj "/CN=mlflow.posttrain.svc"
    echo "subjectAltName=DNS:mlflow.posttrain.svc,DNS:mlflow,DNS:localhost,IP:127.0.0.1" > names
    echo "extendedKeyUsage=serverAuth" >> names
    openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 \
        -extfile names -out tls.crt
} 2> log || { cat log >&2; exit 1; }
make "secret generic" mlflow-tls --type=kubernetes.io/tls \
    --from-file=tls.crt --from-file=tls.key --from-file=ca.crt "$@"
again posttrain secret mlflow-tls ca.crt
make configmap posttrain-ca --from-file=ca.crt "$@"
