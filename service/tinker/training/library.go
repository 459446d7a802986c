package training

import (
	"context"
	"encoding/json"

	"tessera.dev/tessera"
)

// adapterTrainer is what is used of tessera.AdapterTrainer.
type adapterTrainer interface {
	Add(options tessera.Options) (int64, error)
	Drop(adapter int64) error
	Forward(adapter int64, batch tessera.Batch) (int64, error)
	ForwardBackward(adapter int64, batch tessera.Batch, loss string, options tessera.Options) (int64, error)
	Update(adapter int64, options tessera.Options) (int64, error)
	CancelPass(pass int64) error
	Next(ctx context.Context) (*tessera.Pass, error)
	Save(adapter int64, folder string) error
	Load(folder string, options tessera.Options) (int64, error)
	Model(adapter int64) (*tessera.Model, error)
	Close()
}

var _ adapterTrainer = (*tessera.AdapterTrainer)(nil)

// library makes trainers of adapters side by side.
type library interface {
	// plan gives the bytes that open would need.
	plan(ctx context.Context, model *tessera.Model, options tessera.Options) (int64, error)
	open(ctx context.Context, model *tessera.Model, options tessera.Options) (adapterTrainer, error)
}

// sideBySide is the library itself.
type sideBySide struct{ trainers *Trainers }

func (l sideBySide) plan(ctx context.Context, model *tessera.Model, options tessera.Options) (int64, error) {
	plan, err := tessera.NewPlanContext(ctx, l.trainers.runtime, model, options, nil)
	if err != nil {
		return 0, err
	}
	defer plan.Close()
	text, err := plan.Info()
	return arenaBytes(text), err
}

func (l sideBySide) open(ctx context.Context, model *tessera.Model, options tessera.Options) (adapterTrainer, error) {
	return tessera.NewAdapterTrainer(ctx, l.trainers.runtime, model, options)
}

// arenaBytes are those of a plan or of a trainer's report, on all devices.
func arenaBytes(text string) (bytes int64) {
	var report struct {
		Devices []struct {
			Arena struct{ Predicted int64 } `json:"arena_bytes"`
		}
	}
	if json.Unmarshal([]byte(text), &report) != nil {
		return 0
	}
	for _, device := range report.Devices {
		bytes += device.Arena.Predicted
	}
	return bytes
}
