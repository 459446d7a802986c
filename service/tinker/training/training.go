// Package training makes the trainers of trainings by primitives with the library: adapters over a frozen base, a step in parts.
package training

import (
	"context"
	"fmt"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
	"tessera.dev/service/tuning"
	"tessera.dev/tessera"
)

// Config of trainers. Zero values are the defaults.
type Config struct {
	Devices  string  // as of the library; cpu:1
	Parallel string  // pins the plan's decisions
	Threads  int     // 0: the library's choice
	Alpha    float64 // of adapters, whatever their rank; 32
	Context  int64   // most tokens of a sequence; 2048
	Models   Sources
	Cores    Cores // whose turns trainings take; nil: they compute at any time

	Slots int64 // of a base's trainer that trainings share; 0: each has its own
	Rank  int64 // of adapters there, at most; 32
	Rows  int64 // that are computed at once there; 1
	Log   func(level, message string, fields map[string]any)
}

// Cores are shared with inference by turns.
type Cores interface {
	ShareCores(training *tessera.Runtime) error
}

// Sources says where the files of bases are.
type Sources interface {
	Source(name string) (tuning.Source, error)
}

// Trainers implements tinker.Trainers.
type Trainers struct {
	config  Config
	runtime *tessera.Runtime

	library library
	making  sync.Mutex // one is made at a time

	mutex sync.Mutex
	bases map[string]*base
	made  int // trainers that are shared, so far
}

var _ tinker.Trainers = (*Trainers)(nil)

// New makes trainers with a runtime of their own.
func New(config Config) (*Trainers, error) {
	options := tessera.Options{"log_level": "warning"}
	if config.Threads > 0 {
		options["threads"] = config.Threads
	}
	runtime, err := tessera.NewRuntime(options)
	if err != nil {
		return nil, err
	}
	if config.Cores != nil {
		if err := config.Cores.ShareCores(runtime); err != nil {
			runtime.Close()
			return nil, err
		}
	}
	if config.Devices == "" {
		config.Devices = "cpu:1"
	}
	if config.Alpha == 0 {
		config.Alpha = 32
	}
	for value, otherwise := range map[*int64]int64{&config.Context: 2048, &config.Rank: 32, &config.Rows: 1} {
		if *value == 0 {
			*value = otherwise
		}
	}
	if config.Log == nil {
		config.Log = func(string, string, map[string]any) {}
	}
	made := &Trainers{config: config, runtime: runtime, bases: map[string]*base{}}
	made.library = sideBySide{made}
	return made, nil
}

// Close frees the runtime and the bases.
func (t *Trainers) Close() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, one := range t.bases {
		if one.shared != nil {
			one.shared.close()
		}
		one.model.Close()
	}
	t.bases = map[string]*base{}
	t.runtime.Close()
}

// Base describes a model.
func (t *Trainers) Base(_ context.Context, name string) (tinker.Base, error) {
	found, err := t.base(name)
	if err != nil {
		return tinker.Base{}, err
	}
	return found.Base, nil
}

// base reads a model the first time.
func (t *Trainers) base(name string) (*base, error) {
	source, err := t.config.Models.Source(name)
	if err != nil {
		return nil, err
	}
	if source.Adapter != "" {
		return nil, &inference.Error{Kind: inference.Invalid, Code: "model_not_trainable", Param: "base_model",
			Message: fmt.Sprintf("%q is an adapter over %q: name that one, or load a checkpoint", name, source.Base)}
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if found := t.bases[name]; found != nil && found.path == source.Path {
		return found, nil
	}
	model, err := tessera.LoadModel(source.Path)
	if err != nil {
		return nil, said(err, "base_model")
	}
	made := &base{Base: tinker.Base{Name: name, Tokenizer: name}, path: source.Path, model: model, plans: map[string]int64{}}
	if err := made.describe(t.config.Context); err != nil {
		model.Close()
		return nil, said(err, "base_model")
	}
	t.bases[name] = made
	return made, nil
}

// New makes the trainer of a run: a slot of the one that others share, where that is for such adapters, or one of its own, for which
// what the plan needs is made with the first pass.
func (t *Trainers) New(ctx context.Context, name string, adapters tinker.Adapters, room tinker.Room) (tinker.Trainer, error) {
	found, err := t.base(name)
	if err != nil {
		return nil, err
	}
	t.making.Lock()
	defer t.making.Unlock()
	if one, err := t.newSeat(ctx, found, adapters, room); one != nil || err != nil {
		return one, err
	}
	if err := room.Trainer(ctx, 0); err != nil {
		return nil, err
	}
	model, err := t.adapted(found, adapters)
	if err != nil {
		return nil, err
	}
	return &trainer{trainers: t, base: found, model: model, adapters: adapters}, nil
}

// options are those of all trainers over a base.
func (t *Trainers) options(of *base) tessera.Options {
	options := tessera.Options{"devices": t.config.Devices, "batch": 1, "seq": of.Context, "batch_segments": 1, "losses": losses, "warmup": 0,
		"measure_memory": 0}
	if t.config.Parallel != "" {
		options["parallel"] = t.config.Parallel
	}
	return options
}

// adapterOptions are those of a run's adapters.
func (t *Trainers) adapterOptions(of *base, adapters tinker.Adapters) tessera.Options {
	return tessera.Options{"rank": adapters.Rank, "alpha": t.config.Alpha, "on": of.on(adapters)}
}

// adapted is a base with new adapters.
func (t *Trainers) adapted(found *base, adapters tinker.Adapters) (*tessera.Model, error) {
	model, err := found.model.WithAdapters(t.adapterOptions(found, adapters))
	return model, said(err, "lora_config")
}
