// Package training makes the trainings of jobs with the library: adapters over a frozen base, or all weights, as the library's
// runs, which resume from their folder with the same final bits.
package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tessera.dev/service/jobs"
	"tessera.dev/service/tuning"
	"tessera.dev/tessera"
)

// Config of trainings. Zero values are the defaults.
type Config struct {
	Devices  string // as of the library; cpu:1
	Parallel string // pins the plan's decisions
	Threads  int    // 0: the library's choice
	Memory   int64  // bytes of a device; 0: the library's choice
	Rank     int64  // of adapters; 16
	MostRank int64  // that the service's engines take; 0: any
	Context  int64  // most tokens of an example; 2048
	Cores    Cores  // whose turns trainings take; nil: they compute at any time
}

// Cores are shared with inference by turns.
type Cores interface {
	ShareCores(training *tessera.Runtime) error
}

// Runner implements jobs.Runner.
type Runner struct {
	config  Config
	runtime *tessera.Runtime
}

// New makes a runner with a runtime of its own.
func New(config Config) (*Runner, error) {
	options := tessera.Options{}
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
	if config.Rank == 0 {
		config.Rank = 16
	}
	if config.Context == 0 {
		config.Context = 2048
	}
	if config.MostRank > 0 && config.Rank > config.MostRank {
		config.Rank = config.MostRank
	}
	return &Runner{config, runtime}, nil
}

// Close frees the runtime.
func (r *Runner) Close() { r.runtime.Close() }

var _ jobs.Runner = (*Runner)(nil)

// open loads the base of a task, its tokenizer, and the template of its chats.
func open(task jobs.Task) (model *tessera.Model, tokenizer *tessera.Tokenizer, template string, err error) {
	if model, err = tessera.LoadModel(task.Source.Path); err != nil {
		return nil, nil, "", said(err, task, "model_not_trainable", "model")
	}
	if tokenizer, err = model.Tokenizer(); err != nil {
		model.Close()
		return nil, nil, "", said(err, task, "model_not_trainable", "model")
	}
	if template = task.Source.Template; template == "" {
		if template, _, err = model.Metadata("chat_template"); err != nil {
			model.Close()
			return nil, nil, "", err
		}
	}
	return model, tokenizer, template, nil
}

// contextOf is the most tokens of a sequence.
func contextOf(model *tessera.Model) int64 {
	text, _, err := model.Metadata("context_length")
	if err != nil || text == "" {
		return 0
	}
	length, _ := strconv.ParseInt(text, 10, 64)
	return length
}

// dataOptions describe the rows of a task.
func dataOptions(task jobs.Task, template string, tokens int64) tessera.Options {
	options := tessera.Options{"seq": tokens, "seed": task.Seed}
	if template != "" {
		options["template"] = template
	}
	if task.Validation != "" {
		options["eval_file"] = task.Validation
	}
	return options
}

// dataInfo is what the library tells of a dataset.
type dataInfo struct {
	Tokens    int64
	Seq       int64
	Train     int64 `json:"train_samples"`
	Held      int64 `json:"eval_samples"`
	Kinds     map[string]int64
	Longest   int64
	Truncated int64
	Untrained int64
	Ignored   []string
	Note      string
}

func infoOf(data *tessera.Dataset) (info dataInfo, err error) {
	text, err := data.Info()
	if err == nil {
		err = json.Unmarshal([]byte(text), &info)
	}
	return info, err
}

// said turns an error of the library into what the user reads, without paths of the service.
func said(err error, task jobs.Task, code, param string) error {
	var known *tessera.Error
	if !errors.As(err, &known) {
		return err
	}
	text := known.Message
	if task.Validation != "" && strings.Contains(text, task.Validation) {
		param = "validation_file"
	}
	for path, name := range map[string]string{task.Training: task.TrainingFile, task.Validation: task.ValidationFile,
		task.Source.Path: task.Model, task.Folder: task.ID} {
		if path != "" {
			text = strings.ReplaceAll(text, path, name)
		}
	}
	switch known.Code {
	case tessera.IO:
		return &jobs.ErrPaused{Reason: text}
	case tessera.Cancelled:
		return err
	case tessera.OutOfMemory:
		return &tuning.Failure{Code: "out_of_memory", Message: text}
	case tessera.NotFinite:
		return &tuning.Failure{Code: "not_finite", Message: text, Param: "hyperparameters"}
	case tessera.InvalidArgument, tessera.Unsupported, tessera.Corrupt, tessera.Changed, tessera.NotFound:
		return &tuning.Failure{Code: code, Message: text, Param: param}
	}
	return fmt.Errorf("training of %s: %w", task.ID, err)
}
