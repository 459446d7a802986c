package training

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/tessera"
)

// settings are what a checkpoint of the library does not have.
type settings struct {
	Update  tinker.Update `json:"update"`
	Stepped bool          `json:"stepped"`
}

// SaveState writes adapters, optimizer and settings.
func (t *trainer) SaveState(ctx context.Context, folder string) error {
	if t.pending {
		return &inference.Error{Kind: inference.Invalid, Code: "failed_precondition", Param: "path",
			Message: "gradients wait for an optimizer step, and are in no checkpoint: make the step first"}
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := t.library.SaveState(filepath.Join(folder, "state"), nil); err != nil {
		return said(err, "path")
	}
	text, err := json.Marshal(settings{t.update, t.stepped})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, settingsFile), text, 0o600)
}

// LoadState begins with a checkpoint; it is called before anything else.
func (t *trainer) LoadState(ctx context.Context, folder string, optimizer bool) error {
	if optimizer {
		text, err := os.ReadFile(filepath.Join(folder, settingsFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var found settings
		if err == nil {
			if err := json.Unmarshal(text, &found); err != nil {
				return err
			}
			t.update, t.stepped = found.Update, found.Stepped
		}
	}
	t.origin = &origin{filepath.Join(folder, "state"), optimizer}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.origin = nil // its folder may go
	if t.stepped {
		return nil
	}
	return said(t.library.Store(t.model), "path") // the first step may make the library's trainer again
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
