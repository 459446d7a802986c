package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

var ctx = context.Background()

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func upload(s *Store, tenant, name, content string, once tuning.Once) (tuning.File, error) {
	draft, err := s.Draft()
	if err != nil {
		return tuning.File{}, err
	}
	defer draft.Discard()
	if _, err := io.WriteString(draft, content); err != nil {
		return tuning.File{}, err
	}
	once.Digest = draft.Hash()
	return draft.Commit(ctx, tuning.File{Tenant: tenant, Name: name, Purpose: tuning.FineTune}, once)
}

func mustUpload(t *testing.T, s *Store, tenant, content string) tuning.File {
	t.Helper()
	file, err := upload(s, tenant, "../../etc/passwd", content, tuning.Once{})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func kindOf(err error) inference.Kind {
	var known *inference.Error
	if errors.As(err, &known) {
		return known.Kind
	}
	return 0
}

func TestTheDatabaseHasTheSettingsThatMakeItLast(t *testing.T) {
	s := open(t, t.TempDir())
	for name, wanted := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var found string
		if err := s.writer.QueryRow("PRAGMA " + name).Scan(&found); err != nil || found != wanted {
			t.Errorf("%s is %s, wanted %s (%v)", name, found, wanted, err)
		}
	}
	if _, err := s.readers.Exec("DELETE FROM files"); err == nil {
		t.Error("a reader writes")
	}
}

func TestAFolderHasOneProcess(t *testing.T) {
	folder := t.TempDir()
	open(t, folder)
	if _, err := Open(folder, Options{}); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	shared, err := Open(folder, Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	shared.Close()
}

func TestANewerSchemaIsRefusedAndAnOlderOneGoesForwardWhole(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	file := mustUpload(t, s, "", "x")
	broken := append(append([]string{}, migrations...), "CREATE TABLE more (a)", "CREATE TABLE nonsense (")
	if err := s.migrateTo(broken); err == nil {
		t.Fatal("a broken migration passes")
	}
	var count int
	if err := s.writer.QueryRow("SELECT count(*) FROM sqlite_master WHERE name = 'more'").Scan(&count); err != nil || count != 0 {
		t.Fatal("half of a migration stays", count, err)
	}
	if err := s.migrateTo(append(append([]string{}, migrations...), "CREATE TABLE more (a)")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.File(ctx, "", file.ID); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(folder, Options{}); err == nil || !strings.Contains(err.Error(), "newer tessera-serve") {
		t.Fatal(err)
	}
}

func TestFilesAreOfTheirTenantAloneAndListedByPages(t *testing.T) {
	s := open(t, t.TempDir())
	var ids []string
	for i := 0; i < 5; i++ {
		ids = append(ids, mustUpload(t, s, "a", fmt.Sprint(i)).ID)
	}
	foreign := mustUpload(t, s, "b", "secret")
	if _, err := s.File(ctx, "a", foreign.ID); kindOf(err) != inference.NotFound {
		t.Fatal(err)
	}
	if err := s.DeleteFile(ctx, "a", foreign.ID); kindOf(err) != inference.NotFound {
		t.Fatal(err)
	}
	var seen []string
	page := tuning.Page{Limit: 2, Ascending: true}
	for {
		files, more, err := s.Files(ctx, "a", tuning.FileQuery{Page: page})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			seen = append(seen, file.ID)
			page.After = file.ID
		}
		if !more {
			break
		}
	}
	if fmt.Sprint(seen) != fmt.Sprint(ids) {
		t.Fatal(seen, ids)
	}
	if _, _, err := s.Files(ctx, "a", tuning.FileQuery{Page: tuning.Page{Limit: 2, After: foreign.ID}}); kindOf(err) != inference.Invalid {
		t.Fatal(err)
	}
	file, content, err := s.OpenFile(ctx, "a", ids[3])
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(content)
	content.Close()
	if string(text) != "3" || file.Bytes != 1 {
		t.Fatal(string(text), file)
	}
	if err := s.DeleteFile(ctx, "a", ids[3]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.contentPath(ids[3])); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the content stays", err)
	}
}

func TestNamesOnTheDiskAreIdsAndOrphansGo(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	file := mustUpload(t, s, "", "x")
	draft, _ := s.newDraft()
	draft.Write([]byte("half"))
	os.WriteFile(s.contentPath("file-orphan"), []byte("x"), 0o600)
	os.MkdirAll(filepath.Join(s.JobFolder("ftjob-orphan"), "checkpoint"), 0o700)
	s.Close()
	s = open(t, folder)
	entries, _ := os.ReadDir(s.filesFolder())
	if len(entries) != 1 || entries[0].Name() != file.ID {
		t.Fatal(entries)
	}
	if jobs, _ := os.ReadDir(s.jobsFolder()); len(jobs) != 0 {
		t.Fatal(jobs)
	}
	if err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyOfIdempotencyRepeatsForADay(t *testing.T) {
	now := time.Now()
	s, err := Open(t.TempDir(), Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	once := tuning.Once{Tenant: "a", Route: "POST /v1/files", Key: "k"}
	first, err := upload(s, "a", "n", "x", once)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := upload(s, "a", "n", "x", once); err != nil || again.ID != first.ID {
		t.Fatal(again, err)
	}
	if _, err := upload(s, "a", "n", "y", once); kindOf(err) != inference.Conflict {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.filesFolder()); len(entries) != 1 {
		t.Fatal("a content that was not needed stays", entries)
	}
	other := once
	other.Tenant = "b"
	if file, err := upload(s, "b", "n", "y", other); err != nil || file.ID == first.ID {
		t.Fatal(file, err)
	}
	now = now.Add(-time.Hour) // set back: nothing is forgotten early
	if err := s.Expire(ctx); err != nil {
		t.Fatal(err)
	}
	if again, err := upload(s, "a", "n", "x", once); err != nil || again.ID != first.ID {
		t.Fatal(again, err)
	}
	now = now.Add(26 * time.Hour)
	if err := s.Expire(ctx); err != nil {
		t.Fatal(err)
	}
	if later, err := upload(s, "a", "n", "y", once); err != nil || later.ID == first.ID {
		t.Fatal(later, err)
	}
}

func TestABackupOpensWithItsFiles(t *testing.T) {
	s := open(t, t.TempDir())
	file := mustUpload(t, s, "a", "content")
	folder := filepath.Join(t.TempDir(), "copy")
	done := make(chan error)
	go func() { // writes go on meanwhile
		for i := 0; i < 20; i++ {
			if _, err := upload(s, "a", "n", "later", tuning.Once{}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if err := s.Backup(ctx, folder); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	copied := open(t, folder)
	if err := copied.Check(ctx); err != nil {
		t.Fatal(err)
	}
	_, content, err := copied.OpenFile(ctx, "a", file.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, _ := io.ReadAll(content); !bytes.Equal(text, []byte("content")) {
		t.Fatal(string(text))
	}
	if err := s.Backup(ctx, folder); err == nil {
		t.Fatal("a backup is written over")
	}
}

func TestAFileThatAJobNeedsStays(t *testing.T) {
	s := open(t, t.TempDir())
	file := mustUpload(t, s, "a", "x")
	job := newJob(file.ID)
	if _, err := s.InsertJob(ctx, job, tuning.Once{}, event()); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteFile(ctx, "a", file.ID); kindOf(err) != inference.Conflict {
		t.Fatal(err)
	}
	if err := s.MoveJob(ctx, "a", job.ID, []tuning.Status{tuning.Validating}, tuning.Cancelled, event()); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteFile(ctx, "a", file.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.InsertJob(ctx, newJob(file.ID), tuning.Once{}, event()); kindOf(err) != inference.Invalid {
		t.Fatal(err)
	}
}

func newJob(file string) tuning.Job {
	return tuning.Job{ID: tuning.NewID("ftjob-"), Status: tuning.Validating, Created: 1,
		Order: tuning.Order{Tenant: "a", Model: "m", TrainingFile: file, Metadata: map[string]string{"k'\"]": "v"}}}
}

func event() tuning.Event {
	return tuning.Event{ID: tuning.NewID("ftevent-"), Level: "info", Kind: "message", Message: "m"}
}

func TestAWorkerThatLostItsJobWritesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	file := mustUpload(t, s, "a", "x")
	job := newJob(file.ID)
	s.InsertJob(ctx, job, tuning.Once{}, event())
	claim, err := s.ClaimJob(ctx, tuning.Validating, tuning.Validating)
	if err != nil || claim.ID != job.ID || claim.Metadata["k'\"]"] != "v" {
		t.Fatal(claim, err)
	}
	if err := s.PlanJob(ctx, claim, tuning.Plan{Steps: 3}, nil); err != nil {
		t.Fatal(err)
	}
	first, err := s.ClaimJob(ctx, tuning.Queued, tuning.Running)
	if err != nil || first.Plan.Steps != 3 {
		t.Fatal(first, err)
	}
	if none, err := s.ClaimJob(ctx, tuning.Queued, tuning.Running); none != nil || err != nil {
		t.Fatal(none, err)
	}
	if err := s.MoveJob(ctx, "a", job.ID, []tuning.Status{tuning.Running}, tuning.Paused, event()); err != nil {
		t.Fatal(err)
	}
	if err := s.MoveJob(ctx, "a", job.ID, []tuning.Status{tuning.Paused}, tuning.Queued, event()); err != nil {
		t.Fatal(err)
	}
	second, err := s.ClaimJob(ctx, tuning.Queued, tuning.Running)
	if err != nil || second.Epoch <= first.Epoch {
		t.Fatal(second, err)
	}
	metrics, _ := s.Draft()
	defer metrics.Discard()
	outcome := Outcome{Model: Model{Name: "ft:m", Path: s.JobFolder(job.ID), Tenant: "a", Job: job.ID}, Metrics: metrics}
	if err := s.FinishJob(ctx, first, outcome); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
	if models, _ := s.Models(ctx); len(models) != 0 {
		t.Fatal("a fenced worker left a model", models)
	}
	if err := s.FinishJob(ctx, second, outcome); err != nil {
		t.Fatal(err)
	}
	if found, _ := s.Job(ctx, "a", job.ID); found.Status != tuning.Succeeded || found.Result != "ft:m" {
		t.Fatal(found)
	}
	for _, each := range []struct {
		query  tuning.JobQuery
		wanted int
	}{{tuning.JobQuery{}, 1}, {tuning.JobQuery{Metadata: map[string]string{"k'\"]": "v"}}, 1},
		{tuning.JobQuery{Metadata: map[string]string{"k'\"]": "w"}}, 0}, {tuning.JobQuery{NullMetadata: true}, 0}} {
		each.query.Limit = 10
		if jobs, _, err := s.Jobs(ctx, "a", each.query); err != nil || len(jobs) != each.wanted {
			t.Fatal(each, jobs, err)
		}
	}
}

func TestStepsThatAreMadeAgainLeaveOneEvent(t *testing.T) {
	s := open(t, t.TempDir())
	file := mustUpload(t, s, "a", "x")
	job := newJob(file.ID)
	s.InsertJob(ctx, job, tuning.Once{}, event())
	for i := 0; i < 2; i++ {
		step := event()
		step.Kind, step.Step, step.Data = "metrics", 7, []byte(`{"step":7}`)
		if err := s.AddEvents(ctx, job.ID, []tuning.Event{step}); err != nil {
			t.Fatal(err)
		}
	}
	events, more, err := s.Events(ctx, job.ID, tuning.Page{Limit: 1})
	if err != nil || !more || len(events) != 1 || events[0].Step != 7 {
		t.Fatal(events, more, err)
	}
	events, more, err = s.Events(ctx, job.ID, tuning.Page{Limit: 5, After: events[0].ID})
	if err != nil || more || len(events) != 1 {
		t.Fatal(events, more, err)
	}
}
