package store

import (
	"context"
	"database/sql"
	"fmt"
)

// applicationID marks databases of this service ("tsr1").
const applicationID = 0x74737231

// migrations make each version of the schema from the one before it. Those that were released are never changed.
var migrations = []string{`
CREATE TABLE keys (
  number   INTEGER PRIMARY KEY AUTOINCREMENT,
  id       TEXT NOT NULL UNIQUE,
  hash     BLOB NOT NULL,
  name     TEXT NOT NULL,
  tenant   TEXT NOT NULL,
  scopes   TEXT NOT NULL,
  requests INTEGER NOT NULL,
  tokens   INTEGER NOT NULL,
  memory   INTEGER NOT NULL,
  created  INTEGER NOT NULL,
  revoked  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE files (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,
  id      TEXT NOT NULL UNIQUE,
  tenant  TEXT NOT NULL,
  name    TEXT NOT NULL,
  purpose TEXT NOT NULL,
  bytes   INTEGER NOT NULL,
  hash    TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL
) STRICT;
CREATE INDEX files_by_tenant ON files (tenant, number);
CREATE TABLE jobs (
  number    INTEGER PRIMARY KEY AUTOINCREMENT,
  id        TEXT NOT NULL UNIQUE,
  tenant    TEXT NOT NULL,
  status    TEXT NOT NULL,
  epoch     INTEGER NOT NULL DEFAULT 0,
  training_file   TEXT NOT NULL,
  validation_file TEXT NOT NULL,
  asked     TEXT NOT NULL,
  plan      TEXT,
  created   INTEGER NOT NULL,
  started   INTEGER NOT NULL DEFAULT 0,
  finished  INTEGER NOT NULL DEFAULT 0,
  result    TEXT NOT NULL DEFAULT '',
  result_file    TEXT NOT NULL DEFAULT '',
  trained_tokens INTEGER NOT NULL DEFAULT 0,
  failure   TEXT
) STRICT;
CREATE INDEX jobs_by_tenant ON jobs (tenant, number);
CREATE INDEX jobs_by_status ON jobs (status, number);
CREATE TABLE events (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,
  id      TEXT NOT NULL UNIQUE,
  job     TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  created INTEGER NOT NULL,
  level   TEXT NOT NULL,
  kind    TEXT NOT NULL,
  message TEXT NOT NULL,
  data    TEXT,
  step    INTEGER
) STRICT;
CREATE INDEX events_by_job ON events (job, number);
CREATE UNIQUE INDEX metrics_by_step ON events (job, step) WHERE kind = 'metrics';
CREATE TABLE checkpoints (
  number   INTEGER PRIMARY KEY AUTOINCREMENT,
  id       TEXT NOT NULL UNIQUE,
  job      TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  step     INTEGER NOT NULL,
  model    TEXT NOT NULL,
  created  INTEGER NOT NULL,
  measures TEXT NOT NULL,
  UNIQUE (job, step)
) STRICT;
CREATE TABLE models (
  name    TEXT PRIMARY KEY,
  base    TEXT NOT NULL,
  path    TEXT NOT NULL,
  tenant  TEXT NOT NULL,
  job     TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE TABLE replies (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant  TEXT NOT NULL,
  route   TEXT NOT NULL,
  key     TEXT NOT NULL,
  digest  BLOB NOT NULL,
  reply   BLOB NOT NULL,
  created INTEGER NOT NULL,
  UNIQUE (tenant, route, key)
) STRICT;
`, `
CREATE TABLE primitives (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,
  kind    TEXT NOT NULL,
  id      TEXT NOT NULL,
  tenant  TEXT NOT NULL,
  parent  TEXT NOT NULL,
  data    TEXT NOT NULL,
  UNIQUE (kind, id)
) STRICT;
CREATE INDEX primitives_by_tenant ON primitives (kind, tenant, number);
CREATE INDEX primitives_by_parent ON primitives (kind, parent, number);
CREATE TABLE usage (
  hour    INTEGER NOT NULL,
  tenant  TEXT NOT NULL,
  session TEXT NOT NULL,
  base    TEXT NOT NULL,
  kind    TEXT NOT NULL,
  count   INTEGER NOT NULL,
  PRIMARY KEY (hour, tenant, session, base, kind)
) STRICT, WITHOUT ROWID;
`}

// migrate brings the schema to the newest version, in one transaction, and refuses one that is newer.
func (s *Store) migrate() error { return s.migrateTo(migrations) }

func (s *Store) migrateTo(steps []string) error {
	return s.update(context.Background(), func(tx *sql.Tx) error {
		var version, application int
		if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if err := tx.QueryRow("PRAGMA application_id").Scan(&application); err != nil {
			return err
		}
		switch {
		case version > len(steps):
			return fmt.Errorf("schema of version %d, wanted at most %d: a newer tessera-serve made it; use that one", version, len(steps))
		case application != applicationID && (application != 0 || version != 0):
			return fmt.Errorf("application id %#x, wanted %#x: another program's database", application, applicationID)
		case version == len(steps):
			return nil
		}
		for _, step := range steps[version:] {
			if _, err := tx.Exec(step); err != nil {
				return err
			}
		}
		_, err := tx.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(steps)))
		return err
	})
}
