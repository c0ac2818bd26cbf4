"""The scripts of the backup, as they stand in the manifests, against a real Postgres."""

import subprocess
import time
from pathlib import Path

from tests.k8s.pods import K8S

SCRIPTS = K8S / "base/mlflow"


def sql(postgres: dict[str, str], text: str, database: str = "mlflow") -> str:
    done = subprocess.run(
        ["psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text],
        env=postgres,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def script(name: str, postgres: dict[str, str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(SCRIPTS / name)], env=postgres | env, capture_output=True, text=True, check=False
    )


def test_a_backup_is_kept_thinned_and_restored(postgres: dict[str, str], tmp_path: Path) -> None:
    sql(postgres, "CREATE DATABASE mlflow", "postgres")
    sql(postgres, "CREATE TABLE runs (id int primary key); INSERT INTO runs VALUES (1), (2)")
    for old in range(3):
        (tmp_path / f"mlflow-2020010{old}T000000Z.dump").write_bytes(b"old")
    (tmp_path / ".mlflow-torn.dump").write_bytes(b"torn")

    done = script("backup.sh", postgres, BACKUPS=str(tmp_path), KEEP="2")
    assert done.returncode == 0, done.stderr
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == 2
    assert kept[0] == "mlflow-20200102T000000Z.dump"

    sql(postgres, "DELETE FROM runs; CREATE TABLE strayed (id int)")
    held = subprocess.Popen(
        ["psql", "-d", "mlflow"], env=postgres, stdin=subprocess.PIPE, text=True
    )
    assert held.stdin
    held.stdin.write("SELECT 1;\n")
    held.stdin.flush()
    while sql(postgres, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'mlflow'") != "2":
        time.sleep(0.1)
    in_use = script("restore.sh", postgres, BACKUPS=str(tmp_path))
    assert in_use.returncode != 0
    assert "being accessed by other users" in in_use.stderr
    held.communicate()

    done = script("restore.sh", postgres, BACKUPS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sql(postgres, "SELECT id FROM runs ORDER BY id") == "1\n2"
    assert sql(postgres, "SELECT to_regclass('strayed')") == ""
    former = sql(postgres, "SELECT datname FROM pg_database WHERE datname LIKE 'mlflow_before_%'")
    assert sql(postgres, "SELECT count(*) FROM runs", former) == "0"


def test_a_backup_that_fails_leaves_the_last_ones(postgres: dict[str, str], tmp_path: Path) -> None:
    last = tmp_path / "mlflow-20200101T000000Z.dump"
    last.write_bytes(b"the last one")
    done = script("backup.sh", postgres, BACKUPS=str(tmp_path), KEEP="1", PGDATABASE="absent")
    assert done.returncode != 0
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == [last.name]
