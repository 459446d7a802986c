// Package tinker is trainings by primitives, in the terms of Tinker's wire: sessions, runs, whose requests have numbers, futures,
// checkpoints, samplers, usage. It knows neither HTTP nor the library: package dialect/tinker has the wire, and trainers come
// from a Trainers. Errors for the client's eyes are *inference.Error.
package tinker

import (
	"context"
	"errors"
	"time"

	"tessera.dev/service/inference"
)

// Tensor is one of floats and integers, dense.
type Tensor struct {
	Floats   []float32
	Integers []int64
	Shape    []int64 // nil: one dimension
}

// Datum is a sequence and what a loss needs of its tokens.
type Datum struct {
	Tokens []int32
	Inputs map[string]Tensor
}

// Loss is what is computed of a batch.
type Loss struct {
	Name   string
	Config map[string]float64
}

// Sequence is a checked datum: arrays are as many as tokens, or nil.
type Sequence struct {
	Tokens, Labels []int32
	Weights        []float32 // in gspo: of the labels in the mean of the sequence's ratio
	Logprobs       []float32 // of the labels when they were drawn
	Advantages     []float32
}

// Losses.
const (
	CrossEntropy       = "cross_entropy"
	ImportanceSampling = "importance_sampling"
	PPO                = "ppo"
	CISPO              = "cispo"
	DRO                = "dro"
	GSPO               = "gspo"
)

// Pass is a checked batch.
type Pass struct {
	Sequences       []Sequence
	Loss            string
	EpsLow, EpsHigh float64 // of losses that clip
	Beta            float64 // of dro
}

// Clips says whether the pass's loss clips ratios.
func (p *Pass) Clips() bool { return p.Loss == PPO || p.Loss == CISPO || p.Loss == GSPO }

// Tokens returns the number of tokens of a pass.
func (p *Pass) Tokens() (count int64) {
	for i := range p.Sequences {
		count += int64(len(p.Sequences[i].Tokens))
	}
	return count
}

// Update are the settings of an optimizer step.
type Update struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Eps          float64 `json:"eps"`
	WeightDecay  float64 `json:"weight_decay"`
	ClipNorm     float64 `json:"grad_clip_norm"` // 0: no bound
}

// DefaultUpdate is what Tinker's SDK sends unless it is told otherwise.
var DefaultUpdate = Update{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12}

// Adapters are the settings of the adapters that a run trains.
type Adapters struct {
	Rank      int64 `json:"rank"`
	Seed      int64 `json:"seed"`
	Head      bool  `json:"train_unembed"`
	MLP       bool  `json:"train_mlp"`
	Attention bool  `json:"train_attn"`
}

// Trainer is the training of one run. One goroutine at a time.
type Trainer interface {
	// Forward gives the log probabilities of the labels of each sequence.
	Forward(ctx context.Context, pass *Pass) ([][]float32, error)
	// ForwardBackward adds the gradients of the loss, a sum, and gives its value too.
	ForwardBackward(ctx context.Context, pass *Pass) (loss float64, logprobs [][]float32, err error)
	// Step updates from the gradients added up.
	Step(ctx context.Context, update Update) (metrics map[string]float64, err error)
	// Pending says whether gradients wait for Step: state is not saved then.
	Pending() bool
	// Lost says that an error took the values: nothing follows but Close.
	Lost() bool
	// SaveState writes adapters and the optimizer's state to a folder that is not there yet; LoadState reads both, or only adapters.
	SaveState(ctx context.Context, folder string) error
	LoadState(ctx context.Context, folder string, optimizer bool) error
	// SaveAdapters writes the adapters to a folder, as PublishSnapshot takes them.
	SaveAdapters(ctx context.Context, folder string) error
	// Live gives the adapters as they are now, as PublishLive takes them: a copy in memory.
	Live(ctx context.Context) (Live, error)
	// Shared names the trainer of the library that others' trainings share; "" for one of its own. Bytes are those of the whole.
	Shared() string
	Bytes() int64
	Close()
}

// Base is a model that can be trained.
type Base struct {
	Name, Architecture, Tokenizer string
	Context                       int64
	Head                          bool // has a head of its own, which takes adapters
}

// Live is the weights of a training in memory: the library's, of which this package knows nothing.
type Live = interface{ Close() }

// Trainers makes them.
type Trainers interface {
	Base(ctx context.Context, name string) (Base, error)
	// New asks room for what it needs in memory before it makes it.
	New(ctx context.Context, base string, adapters Adapters, room Room) (Trainer, error)
}

// Room lets trainings leave the memory for one that enters.
type Room interface {
	// Trainer makes room for one more trainer of the library, of so many bytes by its plan; 0: not known. ErrTooLarge: more than
	// there may be.
	Trainer(ctx context.Context, bytes int64) error
	// Slot lets one of the trainings that share a trainer leave.
	Slot(ctx context.Context, shared string) error
}

// ErrTooLarge: the trainer does not fit, even if all others leave.
var ErrTooLarge = errors.New("the trainer needs more memory than there may be")

// Models are what samples come from: bases, and snapshots of trainings.
type Models interface {
	inference.Models
	PublishSnapshot(name, base, folder string) error
	PublishLive(name, base string, weights Live) error // weights are closed with the name
	RetractSnapshot(name string)
	Unload(name string) error
}

// Row is what lasts of a noun: JSON with a kind, an id and the id of what it belongs to.
type Row struct {
	Kind, ID, Tenant, Parent string
	Data                     []byte
}

// RowQuery selects rows.
type RowQuery struct {
	Kind, Tenant, Parent string // Parent "": any
	AnyTenant            bool
	Limit, Offset        int // Limit 0: all
}

// Count is some usage of an hour.
type Count struct {
	Hour                        int64 // seconds since 1970 of its begin
	Tenant, Session, Base, Kind string
	Count                       int64
}

// Kinds of usage.
const (
	TrainingTokens  = "training"
	PrefillTokens   = "sampling_prefill"
	CachedTokens    = "sampling_prefill_cached"
	SampledTokens   = "sampling_sample"
	CheckpointCount = "checkpoint"
)

// Store keeps what lasts.
type Store interface {
	PutRow(ctx context.Context, row Row) error
	DropRow(ctx context.Context, kind, id string) error
	Row(ctx context.Context, kind, id string) (row Row, found bool, err error)
	Rows(ctx context.Context, query RowQuery) (rows []Row, all int, err error)
	AddUsage(ctx context.Context, counts []Count) error
	Usage(ctx context.Context, tenant string, from, until int64) ([]Count, error)
	TinkerFolder() string
}

// Config of a service. Zero values are the defaults.
type Config struct {
	Trainers Trainers
	Models   Models
	Store    Store
	Sync     func(path string) error // makes a folder last
	Log      func(level, message string, fields map[string]any)

	MostTrainers int   // of the library, in memory; 4
	MostBytes    int64 // of these; 0: any

	PollTime    time.Duration // a future is waited for; 30 s
	GapTime     time.Duration // a number that does not come; 10 min
	SessionTime time.Duration // without a heartbeat; 30 min
	KeepTime    time.Duration // of results; 1 h
}

func (c *Config) fill() {
	for _, one := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&c.PollTime, 30 * time.Second}, {&c.GapTime, 10 * time.Minute}, {&c.SessionTime, 30 * time.Minute}, {&c.KeepTime, time.Hour}} {
		if *one.value == 0 {
			*one.value = one.otherwise
		}
	}
	if c.MostTrainers == 0 {
		c.MostTrainers = 4
	}
	if c.Log == nil {
		c.Log = func(string, string, map[string]any) {}
	}
	if c.Sync == nil {
		c.Sync = func(string) error { return nil }
	}
}
