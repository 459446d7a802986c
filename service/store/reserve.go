package store

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"syscall"
)

// reserveBytes is what the log of the database may take for what frees a full disk: deletions, and the ends of jobs.
const reserveBytes = 1 << 20

func (s *Store) reservePath() string { return filepath.Join(s.folder, "reserve") }

// fillReserve takes the room, where there is some.
func (s *Store) fillReserve() {
	file, err := os.OpenFile(s.reservePath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, reserveBytes); err != nil {
		os.Remove(s.reservePath())
	}
}

// release is an update that gives up the reserve where the disk is full.
func (s *Store) release(ctx context.Context, change func(tx *sql.Tx) error) error {
	err := s.update(ctx, change)
	if !IsFull(err) || os.Remove(s.reservePath()) != nil {
		return err
	}
	defer s.fillReserve()
	return s.update(ctx, change)
}
