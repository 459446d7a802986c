// Package tree copies files, and folders with all in them.
package tree

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy calls one for a file, or for each file of a folder, with the place of its copy, whose folder is there.
func Copy(ctx context.Context, from, to string, one func(from, to string) error) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		within, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, within)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return one(path, target)
	})
}

// CopyFile copies a file to a new one, and syncs it.
func CopyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Sync()
}

// LinkFile links a file that nobody changes, or copies it where links are not to be had.
func LinkFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return CopyFile(from, to)
}
