// Package models has the models that the service serves: names, files, engines. Only it knows the library.
package models

import (
	"time"

	"tessera.dev/tessera"
)

// Config is how models are found, loaded and unloaded.
type Config struct {
	// Paths are files (.gguf, .tsr), Hugging Face folders, and folders of these.
	Paths []string
	// Aliases are further names: of paths, or of names that paths have.
	Aliases map[string]string
	// Adapters are loaded with their bases: name "base:adapter" to path.
	Adapters map[string]string
	// Engine options of every model, by the names of tsr_engine_new; those that are absent have the library's defaults.
	Engine tessera.Options
	// Threads of the kernels; 0: as many as the process may run on.
	Threads int
	// MemoryLimit bounds the planned bytes of all loaded models together; 0: the devices' own limits.
	MemoryLimit int64
	// InferenceShare is the share of the cores' time that requests have while trainings run too, from 0 to 1; nil: no turns.
	InferenceShare *float64
	// Idle is after how long without requests a model is unloaded; 0: never.
	Idle time.Duration
	// QueueTokens bounds the estimated tokens of a model's requests that have not begun; 0: DefaultQueueTokens.
	QueueTokens int64
	// Log takes what happens to models, and the library's records.
	Log func(level, message string, fields map[string]any)
}

// DefaultQueueTokens is some minutes of work for a small model on few cores.
const DefaultQueueTokens = 1 << 20

func (c *Config) log(level, message string, fields map[string]any) {
	if c.Log != nil {
		c.Log(level, message, fields)
	}
}

// withOptions returns a copy of the options with those of more set.
func withOptions(options tessera.Options, more tessera.Options) tessera.Options {
	all := make(tessera.Options, len(options)+len(more))
	for key, value := range options {
		all[key] = value
	}
	for key, value := range more {
		all[key] = value
	}
	return all
}
