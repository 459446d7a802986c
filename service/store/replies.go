package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// replyTime is how long a request may be repeated by its key.
const replyTime = 24 * time.Hour

// Recall gives the reply of an earlier request with this key; a Conflict where that one was another request.
func (s *Store) Recall(ctx context.Context, once tuning.Once) (reply []byte, found bool, err error) {
	return s.recall(readerOf{s, ctx}, once)
}

// Remember keeps the reply of a request. It is a Conflict where another request with the key came first, and changes nothing
// where the same one did.
func (s *Store) Remember(ctx context.Context, once tuning.Once, reply []byte) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		if _, found, err := s.recall(tx, once); err != nil || found {
			return err
		}
		return s.remember(tx, once, reply)
	})
}

type rowReader interface {
	QueryRow(query string, arguments ...any) *sql.Row
}

type readerOf struct {
	store *Store
	ctx   context.Context
}

func (r readerOf) QueryRow(query string, arguments ...any) *sql.Row {
	return r.store.readers.QueryRowContext(r.ctx, query, arguments...)
}

func (s *Store) recall(from rowReader, once tuning.Once) (reply []byte, found bool, err error) {
	if once.Key == "" {
		return nil, false, nil
	}
	var digest []byte
	var created int64
	err = from.QueryRow("SELECT digest, reply, created FROM replies WHERE tenant = ? AND route = ? AND key = ?",
		once.Tenant, once.Route, once.Key).Scan(&digest, &reply, &created)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, shown(err)
	case s.now().Sub(time.Unix(created, 0)) >= replyTime:
		return nil, false, nil
	case string(digest) != string(once.Digest[:]):
		return nil, false, &inference.Error{Kind: inference.Conflict, Code: "idempotency_key_reused", Param: "Idempotency-Key",
			Message: "the idempotency key was used with another request: use a new key for a new request"}
	}
	return reply, true, nil
}

func (s *Store) remember(tx *sql.Tx, once tuning.Once, reply []byte) error {
	if once.Key == "" {
		return nil
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO replies (tenant, route, key, digest, reply, created) VALUES (?, ?, ?, ?, ?, ?)",
		once.Tenant, once.Route, once.Key, once.Digest[:], reply, s.now().Unix())
	return err
}

func (s *Store) expireReplies(ctx context.Context) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM replies WHERE created <= ?", s.now().Add(-replyTime).Unix())
		return err
	})
}
