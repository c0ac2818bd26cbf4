#!/bin/sh
# Put the newest dump of BACKUPS (or the one that DUMP names) in the place of the database.
# It is read into a new database first; the one that was there stays under another name.
# MLflow must be scaled to nothing: a database that is in use is not renamed.
set -eu
dump="${DUMP:-$(ls "$BACKUPS"/mlflow-*.dump | sort -r | head -n 1)}"
kept="${PGDATABASE}_before_$(date -u +%Y%m%d%H%M%S)"
dropdb --if-exists "${PGDATABASE}_new"
createdb "${PGDATABASE}_new"
pg_restore --exit-on-error --single-transaction --dbname="${PGDATABASE}_new" "$dump"
psql --dbname=postgres --set=ON_ERROR_STOP=1 --single-transaction \
  --command="ALTER DATABASE \"$PGDATABASE\" RENAME TO \"$kept\"" \
  --command="ALTER DATABASE \"${PGDATABASE}_new\" RENAME TO \"$PGDATABASE\""
echo "restored $dump; the former database is $kept"
