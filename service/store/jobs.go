package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

const jobColumns = `number, id, tenant, status, epoch, asked, plan, created, started, finished, result, result_file,
	trained_tokens, failure`

// Claim is a job that a worker has. Its epoch fences what an earlier worker still writes.
type Claim struct {
	tuning.Job
	Epoch int64
}

// ErrFenced is the error of a write for a job that was paused, cancelled or claimed again meanwhile. Nothing was written.
var ErrFenced = errors.New("the job is not this worker's any more")

func scanJob(scan func(into ...any) error) (claim Claim, err error) {
	var number int64
	var asked string
	var plan, failure sql.NullString
	job := &claim.Job
	if err := scan(&number, &job.ID, &job.Tenant, &job.Status, &claim.Epoch, &asked, &plan, &job.Created, &job.Started,
		&job.Finished, &job.Result, &job.ResultFile, &job.TrainedTokens, &failure); err != nil {
		return Claim{}, err
	}
	if err := json.Unmarshal([]byte(asked), &job.Order); err != nil {
		return Claim{}, err
	}
	if plan.Valid {
		if err := json.Unmarshal([]byte(plan.String), &job.Plan); err != nil {
			return Claim{}, err
		}
	}
	if failure.Valid {
		err = json.Unmarshal([]byte(failure.String), &job.Failure)
	}
	return claim, err
}

func (s *Store) jobs(ctx context.Context, query string, arguments ...any) (jobs []tuning.Job, err error) {
	rows, err := s.readers.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	for rows.Next() {
		claim, err := scanJob(rows.Scan)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, claim.Job)
	}
	return jobs, shown(rows.Err())
}

// InsertJob makes a row of a job whose files the tenant has; one of a repeated request is the first one's.
func (s *Store) InsertJob(ctx context.Context, job tuning.Job, once tuning.Once, event tuning.Event) (id string, err error) {
	asked, err := json.Marshal(job.Order)
	if err != nil {
		return "", err
	}
	id = job.ID
	err = s.update(ctx, func(tx *sql.Tx) error {
		earlier, found, err := s.recall(tx, once)
		if err != nil || found {
			id = string(earlier)
			return err
		}
		for param, file := range map[string]string{"training_file": job.TrainingFile, "validation_file": job.ValidationFile} {
			if err := s.checkTrainingFile(tx, job.Tenant, param, file); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(`INSERT INTO jobs (id, tenant, status, training_file, validation_file, asked, created)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, job.ID, job.Tenant, job.Status, job.TrainingFile, job.ValidationFile, string(asked),
			job.Created); err != nil {
			return err
		}
		if err := insertEvents(tx, job.ID, []tuning.Event{event}); err != nil {
			return err
		}
		return s.remember(tx, once, []byte(job.ID))
	})
	return id, err
}

func (s *Store) checkTrainingFile(tx *sql.Tx, tenant, param, id string) error {
	if id == "" {
		return nil
	}
	var purpose string
	err := tx.QueryRow("SELECT purpose FROM files WHERE id = ? AND tenant = ? AND (expires = 0 OR expires > ?)", id, tenant,
		s.now().Unix()).Scan(&purpose)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &inference.Error{Kind: inference.Invalid, Code: "invalid_file", Param: param,
			Message: fmt.Sprintf("'%s' is %q, and there is no file of that id: upload it first", param, id)}
	case err != nil:
		return err
	case purpose != tuning.FineTune:
		return &inference.Error{Kind: inference.Invalid, Code: "invalid_file_purpose", Param: param,
			Message: fmt.Sprintf("'%s' is %s of purpose %q; %q is wanted", param, id, purpose, tuning.FineTune)}
	}
	return nil
}

// Job is one of a tenant's.
func (s *Store) Job(ctx context.Context, tenant, id string) (tuning.Job, error) {
	jobs, err := s.jobs(ctx, "SELECT "+jobColumns+" FROM jobs WHERE id = ? AND tenant = ?", id, tenant)
	if err == nil && len(jobs) == 0 {
		err = missing("fine-tuning job", id)
	}
	if err != nil {
		return tuning.Job{}, err
	}
	return jobs[0], nil
}

// Jobs lists those of a tenant, the newest first.
func (s *Store) Jobs(ctx context.Context, tenant string, query tuning.JobQuery) ([]tuning.Job, bool, error) {
	bound, more, err := s.after(ctx, "jobs", "tenant", tenant, query.Page)
	if err != nil {
		return nil, false, err
	}
	text, arguments := "SELECT "+jobColumns+" FROM jobs WHERE tenant = ?", []any{tenant}
	for key, value := range query.Metadata {
		text += " AND EXISTS (SELECT 1 FROM json_each(asked, '$.metadata') AS pair WHERE pair.key = ? AND pair.value = ?)"
		arguments = append(arguments, key, value)
	}
	if query.NullMetadata {
		text += " AND json_type(asked, '$.metadata') IS NULL"
	}
	jobs, err := s.jobs(ctx, text+bound, append(arguments, more...)...)
	if err != nil {
		return nil, false, err
	}
	if len(jobs) > query.Limit {
		return jobs[:query.Limit], true, nil
	}
	return jobs, false, nil
}

// ClaimJob takes the oldest job of a status into another (or the same), for one worker; nil where there is none.
func (s *Store) ClaimJob(ctx context.Context, from, to tuning.Status) (*Claim, error) {
	var claim Claim
	err := s.update(ctx, func(tx *sql.Tx) (err error) {
		row := tx.QueryRow(`UPDATE jobs SET status = ?, epoch = epoch + 1
			WHERE number = (SELECT number FROM jobs WHERE status = ? ORDER BY number LIMIT 1) RETURNING `+jobColumns, to, from)
		claim, err = scanJob(row.Scan)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &claim, err
}

// MoveJob changes the status of a tenant's job that has one of some statuses; Conflict elsewhere.
func (s *Store) MoveJob(ctx context.Context, tenant, id string, from []tuning.Status, to tuning.Status, event tuning.Event) error {
	return s.release(ctx, func(tx *sql.Tx) error {
		var status tuning.Status
		err := tx.QueryRow("SELECT status FROM jobs WHERE id = ? AND tenant = ?", id, tenant).Scan(&status)
		if errors.Is(err, sql.ErrNoRows) {
			return missing("fine-tuning job", id)
		}
		if err != nil {
			return err
		}
		allowed := false
		var names []string
		for _, each := range from {
			allowed = allowed || status == each
			names = append(names, string(each))
		}
		if !allowed {
			return &inference.Error{Kind: inference.Conflict, Code: "invalid_job_status", Param: "fine_tuning_job_id",
				Message: fmt.Sprintf("job %s is %s; only %s can become %s", id, status, strings.Join(names, ", "), to)}
		}
		finished := int64(0)
		if to.Ended() {
			finished = s.now().Unix()
		}
		// The epoch counts on: what a worker of the earlier status still writes is fenced.
		if _, err := tx.Exec("UPDATE jobs SET status = ?, finished = ?, epoch = epoch + 1 WHERE id = ?", to, finished, id); err != nil {
			return err
		}
		return insertEvents(tx, id, []tuning.Event{event})
	})
}

// fenced is a change of a job that its worker still has.
func (s *Store) fenced(ctx context.Context, claim *Claim, change string, arguments []any, also func(tx *sql.Tx) error) error {
	return s.release(ctx, func(tx *sql.Tx) error {
		result, err := tx.Exec("UPDATE jobs SET "+change+" WHERE id = ? AND epoch = ?", append(arguments, claim.ID, claim.Epoch)...)
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count != 1 {
			return ErrFenced
		}
		if also == nil {
			return nil
		}
		return also(tx)
	})
}

// PlanJob queues a job whose files were checked.
func (s *Store) PlanJob(ctx context.Context, claim *Claim, plan tuning.Plan, events []tuning.Event) error {
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return s.fenced(ctx, claim, "status = ?, plan = ?", []any{tuning.Queued, string(text)}, func(tx *sql.Tx) error {
		return insertEvents(tx, claim.ID, events)
	})
}

// StartJob notes the time of the first step.
func (s *Store) StartJob(ctx context.Context, claim *Claim, event tuning.Event) error {
	return s.fenced(ctx, claim, "started = CASE started WHEN 0 THEN ? ELSE started END", []any{s.now().Unix()}, func(tx *sql.Tx) error {
		return insertEvents(tx, claim.ID, []tuning.Event{event})
	})
}

// PauseJob is the worker's own pause, where a job cannot go on for now.
func (s *Store) PauseJob(ctx context.Context, claim *Claim, event tuning.Event) error {
	return s.fenced(ctx, claim, "status = ?", []any{tuning.Paused}, func(tx *sql.Tx) error {
		return insertEvents(tx, claim.ID, []tuning.Event{event})
	})
}

// FailJob ends a job with a failure.
func (s *Store) FailJob(ctx context.Context, claim *Claim, failure tuning.Failure, event tuning.Event) error {
	text, err := json.Marshal(failure)
	if err != nil {
		return err
	}
	return s.fenced(ctx, claim, "status = ?, finished = ?, failure = ?", []any{tuning.Failed, s.now().Unix(), string(text)},
		func(tx *sql.Tx) error { return insertEvents(tx, claim.ID, []tuning.Event{event}) })
}

// Outcome is the result of a job that succeeded.
type Outcome struct {
	Model   Model
	Metrics tuning.Draft // the content of the result's file
	Name    string       // of that file
	Tokens  int64
	Events  []tuning.Event
}

// FinishJob ends a job with its model and its result's file: all of it, or nothing.
func (s *Store) FinishJob(ctx context.Context, claim *Claim, outcome Outcome) error {
	metrics, ok := outcome.Metrics.(*draft)
	if !ok {
		return fmt.Errorf("draft of another store")
	}
	if err := metrics.place(); err != nil {
		return err
	}
	file := metrics.describe(tuning.File{Tenant: claim.Tenant, Name: outcome.Name, Purpose: tuning.FineTuneResults})
	err := s.fenced(ctx, claim, "status = ?, finished = ?, result = ?, result_file = ?, trained_tokens = ?",
		[]any{tuning.Succeeded, s.now().Unix(), outcome.Model.Name, file.ID, outcome.Tokens}, func(tx *sql.Tx) error {
			if err := insertFile(tx, file); err != nil {
				return err
			}
			if err := s.insertModel(tx, outcome.Model); err != nil {
				return err
			}
			return insertEvents(tx, claim.ID, outcome.Events)
		})
	metrics.kept = metrics.kept || err == nil
	return err
}

// RecoverJobs queues the jobs that ran when the last process ended, at their old places.
func (s *Store) RecoverJobs(ctx context.Context) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE jobs SET status = ?, epoch = epoch + 1 WHERE status = ?", tuning.Queued, tuning.Running)
		return err
	})
}

// CountJobs is how many jobs of a tenant have not ended.
func (s *Store) CountJobs(ctx context.Context, tenant string) (count int64, err error) {
	err = s.readers.QueryRowContext(ctx, `SELECT count(*) FROM jobs WHERE tenant = ?
		AND status NOT IN ('succeeded', 'failed', 'cancelled')`, tenant).Scan(&count)
	return count, shown(err)
}

// EndedJobs are the ids of those that nothing follows, and whose folders need no checkpoint.
func (s *Store) EndedJobs(ctx context.Context) ([]string, error) {
	rows, err := s.readers.QueryContext(ctx, "SELECT id FROM jobs WHERE status IN ('succeeded', 'failed', 'cancelled')")
	if err != nil {
		return nil, shown(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, shown(rows.Err())
}
