package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"

	"tessera.dev/service/store/fault"
	"tessera.dev/service/tuning"
)

func (s *Store) contentPath(id string) string { return filepath.Join(s.filesFolder(), id) }

// draft is a content under a temporary name, which no row names.
type draft struct {
	store  *Store
	id     string
	file   *os.File
	digest hash.Hash
	bytes  int64
	placed bool // under its final name
	kept   bool // a row names it
}

// Draft begins a file.
func (s *Store) Draft() (tuning.Draft, error) { return s.newDraft() }

func (s *Store) newDraft() (*draft, error) {
	id := tuning.NewID("file-")
	file, err := os.OpenFile(s.contentPath(id)+".part", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, shown(err)
	}
	return &draft{store: s, id: id, file: file, digest: sha256.New()}, nil
}

func (d *draft) Write(data []byte) (int, error) {
	if err := fault.Point("content write"); err != nil {
		return 0, shown(err)
	}
	count, err := d.file.Write(data)
	d.digest.Write(data[:count])
	d.bytes += int64(count)
	return count, shown(err)
}

func (d *draft) Bytes() int64 { return d.bytes }

func (d *draft) Hash() (sum [32]byte) {
	copy(sum[:], d.digest.Sum(nil))
	return sum
}

func (d *draft) Content() (io.ReadCloser, error) { return os.Open(d.path()) }

func (d *draft) path() string {
	if d.placed {
		return d.store.contentPath(d.id)
	}
	return d.store.contentPath(d.id) + ".part"
}

// place syncs the content and gives it its name, which lasts when this returns.
func (d *draft) place() error {
	if d.placed {
		return nil
	}
	steps := []struct {
		name string
		step func() error
	}{
		{"content sync", d.file.Sync},
		{"content rename", d.rename},
		{"content folder", func() error { return syncFolder(d.store.filesFolder()) }},
	}
	for _, each := range steps {
		if err := fault.Point(each.name); err != nil {
			return shown(err)
		}
		if err := each.step(); err != nil {
			return shown(err)
		}
	}
	return nil
}

func (d *draft) rename() error {
	err := os.Rename(d.path(), d.store.contentPath(d.id))
	d.placed = err == nil
	return err
}

// describe completes a description from the content.
func (d *draft) describe(description tuning.File) tuning.File {
	sum := d.Hash()
	description.ID, description.Bytes, description.Hash = d.id, d.bytes, hex.EncodeToString(sum[:])
	if description.Created == 0 {
		description.Created = d.store.now().Unix()
	}
	return description
}

func (d *draft) Commit(ctx context.Context, description tuning.File, once tuning.Once) (tuning.File, error) {
	if err := d.place(); err != nil {
		return tuning.File{}, err
	}
	description = d.describe(description)
	err := d.store.update(ctx, func(tx *sql.Tx) error {
		earlier, found, err := d.store.recall(tx, once)
		if err != nil {
			return err
		}
		if found {
			return &repeated{id: string(earlier)}
		}
		if err := insertFile(tx, description); err != nil {
			return err
		}
		return d.store.remember(tx, once, []byte(description.ID))
	})
	var same *repeated
	if errors.As(err, &same) {
		return d.store.File(ctx, description.Tenant, same.id)
	}
	if err == nil {
		d.kept = true
	}
	return description, err
}

// repeated ends the transaction of a request that was answered before.
type repeated struct{ id string }

func (r *repeated) Error() string { return "answered before" }

// Discard removes a content only where it is certain that no row names it: a commit that failed may have happened.
func (d *draft) Discard() {
	d.file.Close()
	if d.kept {
		return
	}
	if d.placed {
		var count int
		err := d.store.readers.QueryRow("SELECT count(*) FROM files WHERE id = ?", d.id).Scan(&count)
		if err != nil || count > 0 {
			return
		}
	}
	os.Remove(d.path())
}
