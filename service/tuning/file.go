package tuning

import (
	"context"
	"io"
)

// File describes data that were uploaded, or a result.
type File struct {
	ID      string
	Tenant  string
	Name    string // the user's; never a name on the disk
	Purpose string
	Bytes   int64
	Hash    string // SHA-256 of the content, hexadecimal
	Created int64  // seconds since 1970
	Expires int64  // likewise; 0: never
}

// Purposes of files that the service makes use of.
const (
	FineTune        = "fine-tune"
	FineTuneResults = "fine-tune-results"
)

// FileQuery selects files.
type FileQuery struct {
	Page
	Purpose string // "": any
}

// Files keeps files. A tenant sees only its own: another's file is NotFound.
type Files interface {
	// Draft begins a file.
	Draft() (Draft, error)
	Files(ctx context.Context, tenant string, query FileQuery) (files []File, more bool, err error)
	File(ctx context.Context, tenant, id string) (File, error)
	OpenFile(ctx context.Context, tenant, id string) (File, io.ReadSeekCloser, error)
	// DeleteFile is a Conflict while a job needs the file.
	DeleteFile(ctx context.Context, tenant, id string) error
}

// Draft is a content that is being written, and no file yet. One goroutine at a time.
type Draft interface {
	io.Writer
	// Hash returns the hash of the bytes written so far.
	Hash() [32]byte
	Bytes() int64
	// Content reads what was written.
	Content() (io.ReadCloser, error)
	// Commit makes it a file: it is on the disk, whole, when this returns. Of the description ID, Bytes and Hash are set here.
	Commit(ctx context.Context, description File, once Once) (File, error)
	// Discard drops a content that is not committed.
	Discard()
}
