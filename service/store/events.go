package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"

	"tessera.dev/service/tuning"
)

// insertEvents adds events. Metrics of a step that are there already stay: a job that goes on from a checkpoint makes the same
// steps again.
func insertEvents(tx *sql.Tx, job string, events []tuning.Event) error {
	for _, event := range events {
		var step any
		if event.Kind == "metrics" {
			step = event.Step
		}
		_, err := tx.Exec(`INSERT INTO events (id, job, created, level, kind, message, data, step) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (job, step) WHERE kind = 'metrics' DO NOTHING`, event.ID, job, event.Created, event.Level, event.Kind,
			event.Message, nullable(event.Data), step)
		if err != nil {
			return err
		}
	}
	return nil
}

// AddEvents adds events of a job.
func (s *Store) AddEvents(ctx context.Context, job string, events []tuning.Event) error {
	return s.update(ctx, func(tx *sql.Tx) error { return insertEvents(tx, job, events) })
}

// Events lists those of a job, the newest first.
func (s *Store) Events(ctx context.Context, job string, page tuning.Page) ([]tuning.Event, bool, error) {
	bound, arguments, err := s.after(ctx, "events", "job", job, page)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.readers.QueryContext(ctx, "SELECT id, created, level, kind, message, data, coalesce(step, 0) FROM events WHERE job = ?"+
		bound, append([]any{job}, arguments...)...)
	if err != nil {
		return nil, false, shown(err)
	}
	defer rows.Close()
	var events []tuning.Event
	for rows.Next() {
		var event tuning.Event
		var data sql.NullString
		if err := rows.Scan(&event.ID, &event.Created, &event.Level, &event.Kind, &event.Message, &data, &event.Step); err != nil {
			return nil, false, err
		}
		if data.Valid {
			event.Data = []byte(data.String)
		}
		events = append(events, event)
	}
	if len(events) > page.Limit {
		return events[:page.Limit], true, shown(rows.Err())
	}
	return events, false, shown(rows.Err())
}

// measures is Measures in JSON, which has no NaN.
type measures struct {
	Loss, Accuracy, ValidLoss, ValidAccuracy *float64
}

func known(value float64) *float64 {
	if math.IsNaN(value) {
		return nil
	}
	return &value
}

func orNaN(value *float64) float64 {
	if value == nil {
		return math.NaN()
	}
	return *value
}

// AddCheckpoint adds a checkpoint and its model; one of a step that is there already stays.
func (s *Store) AddCheckpoint(ctx context.Context, checkpoint tuning.Checkpoint, model Model) error {
	text, err := json.Marshal(measures{known(checkpoint.Loss), known(checkpoint.Accuracy), known(checkpoint.ValidLoss),
		known(checkpoint.ValidAccuracy)})
	if err != nil {
		return err
	}
	return s.update(ctx, func(tx *sql.Tx) error {
		if err := s.insertModel(tx, model); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO checkpoints (id, job, step, model, created, measures) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (job, step) DO NOTHING`, checkpoint.ID, checkpoint.Job, checkpoint.Step, checkpoint.Model, checkpoint.Created,
			string(text))
		return err
	})
}

// Checkpoints lists those of a job, the newest first.
func (s *Store) Checkpoints(ctx context.Context, job string, page tuning.Page) ([]tuning.Checkpoint, bool, error) {
	bound, arguments, err := s.after(ctx, "checkpoints", "job", job, page)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.readers.QueryContext(ctx, "SELECT id, job, step, model, created, measures FROM checkpoints WHERE job = ?"+bound,
		append([]any{job}, arguments...)...)
	if err != nil {
		return nil, false, shown(err)
	}
	defer rows.Close()
	var found []tuning.Checkpoint
	for rows.Next() {
		var each tuning.Checkpoint
		var text string
		var values measures
		if err := rows.Scan(&each.ID, &each.Job, &each.Step, &each.Model, &each.Created, &text); err != nil {
			return nil, false, err
		}
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			return nil, false, err
		}
		each.Loss, each.Accuracy = orNaN(values.Loss), orNaN(values.Accuracy)
		each.ValidLoss, each.ValidAccuracy = orNaN(values.ValidLoss), orNaN(values.ValidAccuracy)
		found = append(found, each)
	}
	if len(found) > page.Limit {
		return found[:page.Limit], true, shown(rows.Err())
	}
	return found, false, shown(rows.Err())
}

// Metrics are the steps of a job.
func (s *Store) Metrics(ctx context.Context, job string) ([]tuning.Measures, error) {
	rows, err := s.readers.QueryContext(ctx, "SELECT step, data FROM events WHERE job = ? AND kind = 'metrics' ORDER BY step", job)
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	var steps []tuning.Measures
	for rows.Next() {
		var step int64
		var text string
		if err := rows.Scan(&step, &text); err != nil {
			return nil, err
		}
		var data struct {
			Loss          *float64 `json:"train_loss"`
			Accuracy      *float64 `json:"train_mean_token_accuracy"`
			ValidLoss     *float64 `json:"valid_loss"`
			ValidAccuracy *float64 `json:"valid_mean_token_accuracy"`
		}
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			return nil, err
		}
		steps = append(steps, tuning.Measures{Step: step, Loss: orNaN(data.Loss), Accuracy: orNaN(data.Accuracy),
			ValidLoss: orNaN(data.ValidLoss), ValidAccuracy: orNaN(data.ValidAccuracy)})
	}
	return steps, shown(rows.Err())
}
