package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mattn/go-sqlite3"
	"tessera.dev/service/tree"
)

// Backup copies the database and the files that it names into a new folder, which Open opens, while the store is in use. What
// jobs in progress have written is left out: in the copy they begin again, and end the same.
func (s *Store) Backup(ctx context.Context, folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	s.removal.RLock()
	defer s.removal.RUnlock()
	if err := s.backupDatabase(ctx, filepath.Join(folder, "state.db")); err != nil {
		return fmt.Errorf("backup of the database: %w", err)
	}
	copied := &Store{folder: folder, now: s.now}
	if err := copied.openDatabase(); err != nil {
		return err
	}
	defer copied.Close()
	files, _, err := copied.files(ctx, "SELECT "+fileColumns+" FROM files")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := tree.Copy(ctx, s.contentPath(file.ID), copied.contentPath(file.ID), tree.CopyFile); err != nil {
			return fmt.Errorf("backup of file %s: %w", file.ID, err)
		}
	}
	models, err := copied.Models(ctx)
	if err != nil {
		return err
	}
	for _, model := range models {
		path, err := filepath.Rel(folder, model.Path)
		if err != nil {
			return err
		}
		if err := tree.Copy(ctx, filepath.Join(s.folder, path), model.Path, tree.CopyFile); err != nil {
			return fmt.Errorf("backup of model %s: %w", model.Name, err)
		}
	}
	return syncFolder(folder)
}

func (s *Store) backupDatabase(ctx context.Context, path string) error {
	source, err := s.readers.Conn(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := (&sqlite3.SQLiteDriver{}).Open("file:" + path + "?_synchronous=FULL")
	if err != nil {
		return err
	}
	defer target.Close()
	return source.Raw(func(driver any) error {
		backup, err := target.(*sqlite3.SQLiteConn).Backup("main", driver.(*sqlite3.SQLiteConn), "main")
		if err != nil {
			return err
		}
		if _, err := backup.Step(-1); err != nil {
			backup.Finish()
			return err
		}
		return backup.Finish()
	})
}
