package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"tessera.dev/service/inference"
	"tessera.dev/service/store/fault"
)

// readerCount is the number of connections that read; each sees the database as it was when its statement began.
const readerCount = 4

func (s *Store) openDatabase() error {
	path := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.Join(s.folder, "state.db")}).EscapedPath()}
	settings := "?_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_busy_timeout=30000"
	var err error
	if s.writer, err = sql.Open("sqlite3", path.String()+settings+"&_txlock=immediate"); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.migrate(); err != nil {
		return fmt.Errorf("database of the service in %s: %w", s.folder, err)
	}
	if s.readers, err = sql.Open("sqlite3", path.String()+settings+"&_query_only=1"); err != nil {
		return err
	}
	s.readers.SetMaxOpenConns(readerCount)
	s.readers.SetMaxIdleConns(readerCount)
	return nil
}

// update is a transaction that writes: all of it is on the disk when this returns nil, else nothing happened.
func (s *Store) update(ctx context.Context, change func(tx *sql.Tx) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return shown(err)
	}
	defer tx.Rollback()
	if err := change(tx); err != nil {
		return shown(err)
	}
	if err := fault.Point("before commit"); err != nil {
		return shown(err)
	}
	if err := tx.Commit(); err != nil {
		return shown(err)
	}
	return fault.Point("after commit")
}

// shown turns the errors that a client can do something about, or that it has to wait for, into errors for its eyes.
func shown(err error) error {
	var sqlite sqlite3.Error
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if errors.As(err, &sqlite) {
		full = full || sqlite.Code == sqlite3.ErrFull
		if sqlite.Code == sqlite3.ErrBusy {
			return &inference.Error{Kind: inference.Overloaded, Code: "busy", RetryAfter: 1,
				Message: "the database is busy; ask again"}
		}
		if sqlite.Code == sqlite3.ErrIoErr {
			full = full || sqlite.SystemErrno == syscall.ENOSPC || sqlite.SystemErrno == syscall.EDQUOT
		}
	}
	if full {
		return &inference.Error{Kind: inference.Overloaded, Code: "storage_full", RetryAfter: 60,
			Message: "the disk of the service is full: nothing was written; delete files, or ask again once there is room"}
	}
	return err
}

// IsFull says whether a full disk caused an error.
func IsFull(err error) bool {
	var known *inference.Error
	return errors.As(err, &known) && known.Code == "storage_full" || errors.Is(err, syscall.ENOSPC)
}

// missing returns the error for an id that names nothing of this tenant.
func missing(what, id string) error {
	return &inference.Error{Kind: inference.NotFound, Code: "not_found", Param: "id",
		Message: fmt.Sprintf("no %s with id %q", what, id)}
}

// nullable returns a text as a value of the database: NULL for nil.
func nullable(text []byte) any {
	if text == nil {
		return nil
	}
	return string(text)
}
