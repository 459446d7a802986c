package tinker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

// saved is a checkpoint for sampling.
func (b *bench) saved(run string, number int64, name string) string {
	b.t.Helper()
	f, err := b.SaveForSampler(context.Background(), tenant, run, at(number, name), tinker.SaveOrder{Name: name, Sampler: -1}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.result(f).(*tinker.SavedSampler).Path
}

// Others copy what is public alone; the copy is theirs, and not public.
func TestCopiesOfOthers(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, tinker.Config{})
	path := b.saved(b.run(0), 1, "one")
	order := tinker.CopyOrder{Source: path, Project: "mine"}
	if _, err := b.Copy(ctx, "another", order); err == nil {
		t.Fatal("a checkpoint that is not public was copied")
	}
	if err := b.Change(ctx, tenant, path, func(one *tinker.Checkpoint) error { one.Public = true; return nil }); err != nil {
		t.Fatal(err)
	}
	made, err := b.Copy(ctx, "another", order)
	if err != nil || made.Public || made.Path() == path {
		t.Fatalf("found %+v, %v", made, err)
	}
	if err := b.Delete(ctx, tenant, path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Checkpoint(ctx, tenant, made.Path()); err == nil {
		t.Error("the source's owner reads the copy")
	}
	if found, err := b.Checkpoint(ctx, "another", made.Path()); err != nil || found.Bytes == 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A copy whose row cannot be written leaves no files.
func TestACopyThatFailsLeavesNothing(t *testing.T) {
	b := newBench(t, tinker.Config{})
	path := b.saved(b.run(0), 1, "one")
	folders := func() int {
		found, err := filepath.Glob(filepath.Join(b.store.Folder, "checkpoint-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	before := folders()
	b.store.Full = true
	if made, err := b.Copy(context.Background(), tenant, tinker.CopyOrder{Source: path, Session: b.session, Number: 5}); err == nil {
		t.Fatal("found", made)
	}
	b.store.Full = false
	if folders() != before {
		t.Errorf("found %d folders, wanted %d", folders(), before)
	}
	if made, err := b.Copy(context.Background(), tenant, tinker.CopyOrder{Source: path, Session: b.session, Number: 5}); err != nil || folders() != before+1 {
		t.Errorf("found %+v, %v", made, err)
	}
}

// Copies and their sources are whole after a restart.
func TestCopiesOutliveTheService(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, tinker.Config{})
	path := b.saved(b.run(0), 1, "one")
	made, err := b.Copy(ctx, tenant, tinker.CopyOrder{Source: path, Project: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	b.open(tinker.Config{})
	link, err := b.ArchiveLink(ctx, tenant, made.Path())
	if err != nil {
		t.Fatal(err)
	}
	content, name, err := b.OpenLink(ctx, link.ID)
	if err != nil || name != "one.tar" {
		t.Fatal(name, err)
	}
	defer content.Close()
	if names := b.models.Names(); len(names) != 2 {
		t.Errorf("served: found %q", names)
	}
	if _, err := os.Stat(filepath.Join(b.store.Folder, made.Folder, "steps")); err != nil {
		t.Error(err)
	}
}

// Links are bounded: who asks for more is told when to ask again.
func TestLinksAreBounded(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, tinker.Config{})
	path := b.saved(b.run(0), 1, "one")
	var err error
	count := 0
	for ; count < 20000 && err == nil; count++ {
		_, err = b.ArchiveLink(ctx, tenant, path)
	}
	var failure *inference.Error
	if !errors.As(err, &failure) || failure.Kind != inference.Limited || failure.RetryAfter == 0 || count != 10001 {
		t.Errorf("found %v after %d links", err, count)
	}
}
