// Package store is what lasts: a folder with a database of SQLite and files, which one process uses at a time.
//
//	state.db                 keys, files, jobs, events, checkpoints, models, replies
//	files/ID                 contents of files
//	jobs/ID/                 what a job writes: its checkpoint, its results
//	lock                     held by the process that uses the folder
//	reserve                  room for what frees a full disk
//
// A write has happened when its function returns: transactions are synced to the disk, and a file is written, synced and renamed,
// and its folder synced, before a row names it. So a crash leaves at most files without a row, which Open removes.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Store is an open folder. Any goroutine.
type Store struct {
	folder  string
	lock    *os.File
	writer  *sql.DB // one connection
	readers *sql.DB
	// removal is held by what removes files from the disk, and shared by what copies them.
	removal sync.RWMutex
	now     func() time.Time
}

// Options of Open.
type Options struct {
	// Shared opens a folder that another process may have open, for keys only: without its lock, its files are left as they are.
	Shared bool
	// Now is the wall clock; nil for the system's. Nothing is ordered by it.
	Now func() time.Time
}

// ErrInUse is the error of Open where another process uses the folder.
var ErrInUse = errors.New("another process uses it")

// Open makes the folder where there is none.
func Open(folder string, options Options) (*Store, error) {
	s := &Store{folder: folder, now: options.Now}
	if s.now == nil {
		s.now = time.Now
	}
	for _, each := range []string{folder, s.filesFolder(), s.jobsFolder()} {
		if err := os.MkdirAll(each, 0o700); err != nil {
			return nil, fmt.Errorf("folder of the service: %w", err)
		}
	}
	if err := s.takeLock(); err != nil && !(options.Shared && errors.Is(err, ErrInUse)) {
		return nil, err
	}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open() error {
	if err := s.openDatabase(); err != nil {
		return err
	}
	if s.lock == nil {
		return nil
	}
	if err := s.collectOrphans(); err != nil {
		return err
	}
	s.fillReserve()
	return nil
}

// Close ends the use of the folder.
func (s *Store) Close() error {
	var first error
	for _, each := range []*sql.DB{s.readers, s.writer} {
		if each == nil {
			continue
		}
		if err := each.Close(); err != nil && first == nil {
			first = err
		}
	}
	if s.lock != nil {
		s.lock.Close() // and with it the lock
	}
	return first
}

// Folder is its path.
func (s *Store) Folder() string { return s.folder }

func (s *Store) filesFolder() string { return filepath.Join(s.folder, "files") }
func (s *Store) jobsFolder() string  { return filepath.Join(s.folder, "jobs") }

// JobFolder is where a job writes.
func (s *Store) JobFolder(id string) string { return filepath.Join(s.jobsFolder(), id) }

// takeLock locks the file of that name, which the system unlocks when the process ends in any way.
func (s *Store) takeLock() error {
	path := filepath.Join(s.folder, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("lock of the service's folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("folder of the service %s: %w; end that one, or name another folder", s.folder, ErrInUse)
		}
		return fmt.Errorf("lock of the service's folder %s: %w", path, err)
	}
	s.lock = file
	return nil
}

// collectOrphans removes what a crash left: contents and folders without a row.
func (s *Store) collectOrphans() error {
	for _, each := range []struct{ folder, table string }{{s.filesFolder(), "files"}, {s.jobsFolder(), "jobs"}} {
		entries, err := os.ReadDir(each.folder)
		if err != nil {
			return err
		}
		known, err := s.ids(each.table)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if known[entry.Name()] {
				continue
			}
			if err := os.RemoveAll(filepath.Join(each.folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (s *Store) ids(table string) (map[string]bool, error) {
	rows, err := s.readers.Query("SELECT id FROM " + table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		known[id] = true
	}
	return known, rows.Err()
}

// Check says whether the database is sound, and each file of the size that its row has.
func (s *Store) Check(ctx context.Context) error {
	var found string
	if err := s.readers.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("database: %s", found)
	}
	files, _, err := s.files(ctx, "SELECT "+fileColumns+" FROM files ORDER BY number")
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Stat(s.contentPath(file.ID))
		if err != nil {
			return err
		}
		if info.Size() != file.Bytes {
			return fmt.Errorf("file %s has %d bytes, wanted %d", file.ID, info.Size(), file.Bytes)
		}
	}
	return nil
}

// syncFolder makes the names in a folder last, or the content of a file.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// SyncTree makes a file, or a folder with all in it, last, and its name.
func SyncTree(path string) error {
	err := filepath.WalkDir(path, func(each string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncFolder(each)
	})
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
