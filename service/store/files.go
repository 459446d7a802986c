package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

const fileColumns = "number, id, tenant, name, purpose, bytes, hash, created, expires"

func insertFile(tx *sql.Tx, file tuning.File) error {
	_, err := tx.Exec("INSERT INTO files (id, tenant, name, purpose, bytes, hash, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		file.ID, file.Tenant, file.Name, file.Purpose, file.Bytes, file.Hash, file.Created, file.Expires)
	return err
}

// files reads rows of fileColumns, and returns the files with the numbers of their rows.
func (s *Store) files(ctx context.Context, query string, arguments ...any) (files []tuning.File, numbers []int64, err error) {
	rows, err := s.readers.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, nil, shown(err)
	}
	defer rows.Close()
	for rows.Next() {
		var number int64
		var file tuning.File
		if err := rows.Scan(&number, &file.ID, &file.Tenant, &file.Name, &file.Purpose, &file.Bytes, &file.Hash, &file.Created,
			&file.Expires); err != nil {
			return nil, nil, err
		}
		files, numbers = append(files, file), append(numbers, number)
	}
	return files, numbers, shown(rows.Err())
}

// File returns the description of a file.
func (s *Store) File(ctx context.Context, tenant, id string) (tuning.File, error) {
	files, _, err := s.files(ctx, "SELECT "+fileColumns+" FROM files WHERE id = ? AND tenant = ? AND (expires = 0 OR expires > ?)",
		id, tenant, s.now().Unix())
	if err != nil {
		return tuning.File{}, err
	}
	if len(files) == 0 {
		return tuning.File{}, missing("file", id)
	}
	return files[0], nil
}

// Files lists the files of a tenant, the newest first unless the page says otherwise.
func (s *Store) Files(ctx context.Context, tenant string, query tuning.FileQuery) ([]tuning.File, bool, error) {
	bound, arguments, err := s.after(ctx, "files", "tenant", tenant, query.Page)
	if err != nil {
		return nil, false, err
	}
	arguments = append([]any{tenant, s.now().Unix(), query.Purpose, query.Purpose}, arguments...)
	files, _, err := s.files(ctx, "SELECT "+fileColumns+` FROM files WHERE tenant = ? AND (expires = 0 OR expires > ?)
		AND (? = '' OR purpose = ?)`+bound, arguments...)
	if err != nil {
		return nil, false, err
	}
	if len(files) > query.Limit {
		return files[:query.Limit], true, nil
	}
	return files, false, nil
}

// after returns the end of a query for a page, which asks for one row more than the page has, and its arguments.
func (s *Store) after(ctx context.Context, table, owner, name string, page tuning.Page) (string, []any, error) {
	order, compare := "DESC", "<"
	if page.Ascending {
		order, compare = "ASC", ">"
	}
	end := fmt.Sprintf(" ORDER BY number %s LIMIT %d", order, page.Limit+1)
	if page.After == "" {
		return end, nil, nil
	}
	var number int64
	err := s.readers.QueryRowContext(ctx, "SELECT number FROM "+table+" WHERE id = ? AND "+owner+" = ?", page.After, name).Scan(&number)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil, &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: "after",
			Message: fmt.Sprintf("'after' is %q, which names nothing in this list", page.After)}
	}
	return " AND number " + compare + " ?" + end, []any{number}, shown(err)
}

// OpenFile opens the content of a file.
func (s *Store) OpenFile(ctx context.Context, tenant, id string) (tuning.File, io.ReadSeekCloser, error) {
	s.removal.RLock()
	defer s.removal.RUnlock()
	file, err := s.File(ctx, tenant, id)
	if err != nil {
		return tuning.File{}, nil, err
	}
	content, err := os.Open(s.contentPath(file.ID))
	if err != nil {
		return tuning.File{}, nil, err
	}
	return file, content, nil
}

// ContentPath returns the path of a file's content, for readers that open it by name.
func (s *Store) ContentPath(id string) string { return s.contentPath(id) }

// DeleteFile deletes the row, and then the content.
func (s *Store) DeleteFile(ctx context.Context, tenant, id string) error {
	s.removal.Lock()
	defer s.removal.Unlock()
	err := s.release(ctx, func(tx *sql.Tx) error {
		var job, status string
		err := tx.QueryRow(`SELECT id, status FROM jobs WHERE (training_file = ?1 OR validation_file = ?1) AND tenant = ?2
			AND status NOT IN ('succeeded', 'failed', 'cancelled')`, id, tenant).Scan(&job, &status)
		if err == nil {
			return &inference.Error{Kind: inference.Conflict, Code: "file_in_use", Param: "file_id",
				Message: fmt.Sprintf("file %s is used by job %s, which is %s: cancel the job first", id, job, status)}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		result, err := tx.Exec("DELETE FROM files WHERE id = ? AND tenant = ?", id, tenant)
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count == 0 {
			return missing("file", id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer s.fillReserve()
	return os.Remove(s.contentPath(id))
}

// Expire deletes files whose time has come and that no job needs, and replies of requests that are not repeated any more.
func (s *Store) Expire(ctx context.Context) error {
	files, _, err := s.files(ctx, "SELECT "+fileColumns+" FROM files WHERE expires > 0 AND expires <= ?", s.now().Unix())
	if err != nil {
		return err
	}
	for _, file := range files {
		var known *inference.Error
		if err := s.DeleteFile(ctx, file.Tenant, file.ID); err != nil && !errors.As(err, &known) {
			return err
		}
	}
	return s.expireReplies(ctx)
}
