package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// Key is a row of a key: the hash of its secret, never the secret.
type Key struct {
	ID       string // visible, a part of the key
	Hash     []byte // SHA-256 of the secret
	Name     string
	Tenant   string
	Scopes   []string
	Requests int64 // a minute; 0: any number
	Tokens   int64 // a minute; 0: any number
	Memory   int64 // bytes at most; 0: any
	Created  int64
	Revoked  int64 // 0: valid
}

const keyColumns = "id, hash, name, tenant, scopes, requests, tokens, memory, created, revoked"

func scanKey(scan func(into ...any) error) (key Key, err error) {
	var scopes string
	err = scan(&key.ID, &key.Hash, &key.Name, &key.Tenant, &scopes, &key.Requests, &key.Tokens, &key.Memory, &key.Created, &key.Revoked)
	key.Scopes = strings.Fields(scopes)
	return key, err
}

// InsertKey adds one.
func (s *Store) InsertKey(ctx context.Context, key Key) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO keys ("+keyColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", key.ID, key.Hash, key.Name, key.Tenant,
			strings.Join(key.Scopes, " "), key.Requests, key.Tokens, key.Memory, key.Created, key.Revoked)
		return err
	})
}

// Key finds one by its id, revoked or not.
func (s *Store) Key(ctx context.Context, id string) (key Key, found bool, err error) {
	key, err = scanKey(s.readers.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM keys WHERE id = ?", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Key{}, false, nil
	}
	return key, err == nil, shown(err)
}

// Keys are all, the oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	rows, err := s.readers.QueryContext(ctx, "SELECT "+keyColumns+" FROM keys ORDER BY number")
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	var all []Key
	for rows.Next() {
		key, err := scanKey(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, shown(rows.Err())
}

// RevokeKey makes a key invalid for good.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		result, err := tx.Exec("UPDATE keys SET revoked = CASE revoked WHEN 0 THEN ? ELSE revoked END WHERE id = ?", s.now().Unix(), id)
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count == 0 {
			return missing("key", id)
		}
		return nil
	})
}
