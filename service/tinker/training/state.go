package training

import (
	"context"
	"os"
	"path/filepath"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

var errPending = &inference.Error{Kind: inference.Invalid, Code: "failed_precondition", Param: "path",
	Message: "gradients wait for an optimizer step, and are in no checkpoint: make the step first"}

// SaveState writes adapters and optimizer.
func (t *trainer) SaveState(ctx context.Context, folder string) error {
	if t.pending {
		return errPending
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return said(t.library.SaveState(filepath.Join(folder, "state"), nil), "path")
}

// LoadState begins with a checkpoint; it is called before anything else.
func (t *trainer) LoadState(ctx context.Context, folder string, optimizer bool) error {
	t.origin = &origin{filepath.Join(folder, "state"), optimizer}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.origin = nil // its folder may go
	return nil
}

// Live is a model of the base with the adapters as they are.
func (t *trainer) Live(ctx context.Context) (tinker.Live, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	model, err := t.trainers.adapted(t.base, t.adapters)
	if err != nil {
		return nil, err
	}
	if err := t.library.Store(model); err != nil {
		model.Close()
		return nil, said(err, "path")
	}
	return model, nil
}

// SaveAdapters writes the adapters as PEFT has them.
func (t *trainer) SaveAdapters(ctx context.Context, folder string) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.library.Store(t.model); err != nil {
		return said(err, "path")
	}
	_, err := t.model.Export(ctx, folder, tessera.Options{"format": "peft"}, nil)
	return said(err, "path")
}
