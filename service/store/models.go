package store

import (
	"context"
	"database/sql"
	"path/filepath"
)

// Model is a model that a job made.
type Model struct {
	Name    string
	Base    string // the name of the model below an adapter; "" for a model's file
	Path    string // of its files, in the job's folder
	Tenant  string
	Job     string
	Created int64
}

// insertModel keeps paths relative to the folder, which may be moved.
func (s *Store) insertModel(tx *sql.Tx, model Model) error {
	path, err := filepath.Rel(s.folder, model.Path)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR IGNORE INTO models (name, base, path, tenant, job, created) VALUES (?, ?, ?, ?, ?, ?)",
		model.Name, model.Base, path, model.Tenant, model.Job, model.Created)
	return err
}

// Models are all models that jobs made, in the order of their making.
func (s *Store) Models(ctx context.Context) ([]Model, error) {
	rows, err := s.readers.QueryContext(ctx, "SELECT name, base, path, tenant, job, created FROM models ORDER BY rowid")
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	var models []Model
	for rows.Next() {
		var model Model
		if err := rows.Scan(&model.Name, &model.Base, &model.Path, &model.Tenant, &model.Job, &model.Created); err != nil {
			return nil, err
		}
		model.Path = filepath.Join(s.folder, model.Path)
		models = append(models, model)
	}
	return models, shown(rows.Err())
}

// DeleteModel forgets a model of a tenant. Its files go with the next start of the service, or with its job.
func (s *Store) DeleteModel(ctx context.Context, tenant, name string) error {
	return s.release(ctx, func(tx *sql.Tx) error {
		result, err := tx.Exec("DELETE FROM models WHERE name = ? AND tenant = ?", name, tenant)
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count == 0 {
			return missing("model", name)
		}
		return nil
	})
}
