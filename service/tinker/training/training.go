// Package training makes the trainers of trainings by primitives with the library: adapters over a frozen base, a step in parts.
package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
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

	mutex sync.Mutex
	bases map[string]*base
}

// base is a model that was read: trainers share its values.
type base struct {
	tinker.Base
	path       string
	model      *tessera.Model
	vocabulary int64
	// Weights that get adapters, by their part.
	attention, mlp, head []string
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
	if config.Context == 0 {
		config.Context = 2048
	}
	return &Trainers{config: config, runtime: runtime, bases: map[string]*base{}}, nil
}

// Close frees the runtime and the bases.
func (t *Trainers) Close() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, one := range t.bases {
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
	made := &base{Base: tinker.Base{Name: name, Tokenizer: name}, path: source.Path, model: model}
	if err := made.describe(t.config.Context); err != nil {
		model.Close()
		return nil, said(err, "base_model")
	}
	t.bases[name] = made
	return made, nil
}

// describe finds the weights that get adapters, as the library chooses them, and the head's.
func (b *base) describe(mostContext int64) error {
	text, err := b.model.Info()
	if err != nil {
		return err
	}
	var info struct {
		Architecture string
		Outputs      []struct {
			Name  string
			Shape []any
		}
		Symbols []struct {
			Name     string
			Capacity int64
		}
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return err
	}
	b.Architecture, b.Context = info.Architecture, mostContext
	for _, symbol := range info.Symbols {
		if symbol.Name == "T" && symbol.Capacity > 0 && symbol.Capacity < mostContext {
			b.Context = symbol.Capacity
		}
	}
	for _, output := range info.Outputs {
		if count := len(output.Shape); output.Name == "logits" && count == 3 {
			size, _ := output.Shape[count-1].(float64)
			b.vocabulary = int64(size)
		}
	}
	if b.vocabulary == 0 {
		return &tessera.Error{Code: tessera.Unsupported, Message: "the model has no logits of a vocabulary: it cannot be trained by tokens"}
	}
	targets, err := targetsOf(b.model, tessera.Options{"rank": 1})
	if err != nil {
		return err
	}
	for _, name := range targets {
		if isAttention(name) {
			b.attention = append(b.attention, name)
		} else {
			b.mlp = append(b.mlp, name)
		}
	}
	// A head that is the token table has none of its own; the library names what it cannot take.
	if b.head, err = targetsOf(b.model, tessera.Options{"rank": 1, "on": "lm_head"}); err != nil {
		b.head = nil
	}
	b.Head = len(b.head) > 0
	return nil
}

// targetsOf are the weights that get adapters with some options.
func targetsOf(model *tessera.Model, options tessera.Options) (names []string, err error) {
	adapted, err := model.WithAdapters(options)
	if err != nil {
		return nil, err
	}
	defer adapted.Close()
	all, err := adapted.Parameters()
	for _, name := range all {
		if target := strings.TrimSuffix(name, ".lora_a"); target != name {
			names = append(names, target)
		}
	}
	sort.Strings(names)
	return names, err
}

// attentionWords are those that name weights of attention in the families that the library knows.
var attentionWords = map[string]bool{"q": true, "k": true, "v": true, "o": true, "qkv": true, "kv": true, "attention": true, "attn": true,
	"q_a": true, "q_b": true, "kv_a": true, "kv_b": true}

func isAttention(name string) bool {
	for _, word := range strings.Split(name, ".") {
		if attentionWords[word] {
			return true
		}
	}
	return false
}

// on are the weights that a run's adapters are on.
func (b *base) on(adapters tinker.Adapters) string {
	var names []string
	if adapters.Attention {
		names = append(names, b.attention...)
	}
	if adapters.MLP {
		names = append(names, b.mlp...)
	}
	if adapters.Head {
		names = append(names, b.head...)
	}
	return strings.Join(names, ",")
}

// New makes the trainer of a run. What the plan needs is made with the first pass.
func (t *Trainers) New(ctx context.Context, name string, adapters tinker.Adapters, room tinker.Room) (tinker.Trainer, error) {
	found, err := t.base(name)
	if err != nil {
		return nil, err
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

// adapted is a base with new adapters.
func (t *Trainers) adapted(found *base, adapters tinker.Adapters) (*tessera.Model, error) {
	model, err := found.model.WithAdapters(tessera.Options{"rank": adapters.Rank, "alpha": t.config.Alpha, "on": found.on(adapters)})
	return model, said(err, "lora_config")
}

// said turns an error of the library into one for the client's eyes.
func said(err error, param string) error {
	var known *tessera.Error
	if !errors.As(err, &known) {
		return err
	}
	switch known.Code {
	case tessera.InvalidArgument, tessera.Unsupported, tessera.FailedPrecondition, tessera.NotFinite, tessera.NotFound:
		return &inference.Error{Kind: inference.Invalid, Code: known.Code.String(), Param: param, Message: known.Message}
	case tessera.OutOfMemory:
		return &inference.Error{Kind: inference.Invalid, Code: "out_of_memory", Param: param, Message: known.Message}
	}
	return &inference.Error{Kind: inference.Internal, Code: known.Code.String(), Message: known.Message}
}
