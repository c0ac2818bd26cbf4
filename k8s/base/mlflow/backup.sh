#!/bin/sh
# Dump the database that PGHOST and PGDATABASE name into BACKUPS; the newest KEEP stay.
# A dump gets its name when it is whole and can be read.
set -eu
rm -f "$BACKUPS"/.mlflow-*.dump
name="mlflow-$(date -u +%Y%m%dT%H%M%SZ).dump"
pg_dump --format=custom --file="$BACKUPS/.$name"
pg_restore --list "$BACKUPS/.$name" > /dev/null
sync "$BACKUPS/.$name"
mv "$BACKUPS/.$name" "$BACKUPS/$name"
ls "$BACKUPS"/mlflow-*.dump | sort -r | tail -n +"$((KEEP + 1))" | xargs -r rm --
echo "wrote $name"
