package store

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"tessera.dev/service/tinker"
)

var _ tinker.Store = (*Store)(nil)

// TinkerFolder is where checkpoints of trainings by primitives lie.
func (s *Store) TinkerFolder() string { return filepath.Join(s.folder, "tinker") }

// PutRow writes a row, whole, in place of one with its kind and id.
func (s *Store) PutRow(ctx context.Context, row tinker.Row) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO primitives (kind, id, tenant, parent, data) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (kind, id) DO UPDATE SET data = excluded.data`, row.Kind, row.ID, row.Tenant, row.Parent, string(row.Data))
		return err
	})
}

// DropRow deletes a row; nothing happens where there is none.
func (s *Store) DropRow(ctx context.Context, kind, id string) error {
	return s.release(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM primitives WHERE kind = ? AND id = ?", kind, id)
		return err
	})
}

// Row finds one.
func (s *Store) Row(ctx context.Context, kind, id string) (row tinker.Row, found bool, err error) {
	var data string
	err = s.readers.QueryRowContext(ctx, "SELECT tenant, parent, data FROM primitives WHERE kind = ? AND id = ?", kind, id).
		Scan(&row.Tenant, &row.Parent, &data)
	if errors.Is(err, sql.ErrNoRows) {
		return row, false, nil
	}
	row.Kind, row.ID, row.Data = kind, id, []byte(data)
	return row, err == nil, shown(err)
}

// Rows lists those of a kind, the newest first. Limit 0: all.
func (s *Store) Rows(ctx context.Context, query tinker.RowQuery) (rows []tinker.Row, all int, err error) {
	where := " FROM primitives WHERE kind = ?1 AND (?2 = '' OR parent = ?2) AND (?3 OR tenant = ?4)"
	arguments := []any{query.Kind, query.Parent, query.AnyTenant, query.Tenant}
	if err := s.readers.QueryRowContext(ctx, "SELECT count(*)"+where, arguments...).Scan(&all); err != nil {
		return nil, 0, shown(err)
	}
	limit := query.Limit
	if limit == 0 {
		limit = -1
	}
	found, err := s.readers.QueryContext(ctx, "SELECT id, tenant, parent, data"+where+" ORDER BY number DESC LIMIT ?5 OFFSET ?6",
		append(arguments, limit, query.Offset)...)
	if err != nil {
		return nil, 0, shown(err)
	}
	defer found.Close()
	for found.Next() {
		row := tinker.Row{Kind: query.Kind}
		var data string
		if err := found.Scan(&row.ID, &row.Tenant, &row.Parent, &data); err != nil {
			return nil, 0, err
		}
		row.Data = []byte(data)
		rows = append(rows, row)
	}
	return rows, all, shown(found.Err())
}

// AddUsage adds counts to their hours.
func (s *Store) AddUsage(ctx context.Context, counts []tinker.Count) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		for _, one := range counts {
			_, err := tx.Exec(`INSERT INTO usage (hour, tenant, session, base, kind, count) VALUES (?, ?, ?, ?, ?, ?)
				ON CONFLICT (hour, tenant, session, base, kind) DO UPDATE SET count = count + excluded.count`,
				one.Hour, one.Tenant, one.Session, one.Base, one.Kind, one.Count)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Usage lists a tenant's counts of some hours, in the order of the hours.
func (s *Store) Usage(ctx context.Context, tenant string, from, until int64) (counts []tinker.Count, err error) {
	rows, err := s.readers.QueryContext(ctx, `SELECT hour, session, base, kind, count FROM usage
		WHERE tenant = ? AND hour >= ? AND hour < ? ORDER BY hour, count DESC`, tenant, from, until)
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	for rows.Next() {
		one := tinker.Count{Tenant: tenant}
		if err := rows.Scan(&one.Hour, &one.Session, &one.Base, &one.Kind, &one.Count); err != nil {
			return nil, err
		}
		counts = append(counts, one)
	}
	return counts, shown(rows.Err())
}
