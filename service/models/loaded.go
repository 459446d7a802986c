package models

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// loaded is a model in memory with its engine.
type loaded struct {
	runtime   *tessera.Runtime
	options   tessera.Options // of the engine
	model     *tessera.Model
	engine    *tessera.Engine // nil for models that do not generate
	tokenizer *tessera.Tokenizer
	pieces    *pieces
	queue     queue
	info      inference.Info
	bytes     int64 // planned
	kept      bool  // the model stays, with its slot

	chatOnce sync.Once
	chat     *tessera.Chat
	chatErr  error

	adapting  sync.Mutex // one adapter is loaded at a time
	embedding sync.Mutex // one call of an embedder at a time, and the map
	embedders map[string]*tessera.Embedder
}

// modelReport is what tsr_model_info says.
type modelReport struct {
	Architecture string
	Parameters   int64
	Bytes        int64 `json:"parameter_bytes"`
	Inputs       []struct{ Name string }
	Outputs      []struct {
		Name  string
		Shape []any
	}
	Symbols []struct {
		Name     string
		Capacity int64
	}
	Metadata map[string]string
	File     *struct {
		Stored []struct {
			Type  string
			Bytes int64
		}
	}
}

func readReport(model *tessera.Model) (report modelReport, err error) {
	text, err := model.Info()
	if err == nil {
		err = json.Unmarshal([]byte(text), &report)
	}
	return report, err
}

func (m *modelReport) has(input string) bool {
	for _, one := range m.Inputs {
		if one.Name == input {
			return true
		}
	}
	return false
}

// rank returns the number of dimensions of an output; 0 if the model has no such output.
func (m *modelReport) rank(output string) int {
	for _, one := range m.Outputs {
		if one.Name == output {
			return len(one.Shape)
		}
	}
	return 0
}

// describe sets the fields of info that the report tells.
func (m *modelReport) describe(info *inference.Info) {
	info.Architecture, info.Parameters = m.Architecture, m.Parameters
	info.Template = m.Metadata["chat_template"]
	info.Does = nil
	if m.has("tokens") && m.has("positions") && m.rank("logits") == 3 {
		info.Does = append(info.Does, "generate")
		if info.Template != "" {
			info.Does = append(info.Does, "chat")
		}
	}
	if m.has("tokens") && (m.rank("hidden") > 0 || m.rank("logits") == 3) {
		info.Does = append(info.Does, "embed")
	}
	if m.rank("class_logits") > 0 || m.rank("logits") == 2 {
		info.Does = append(info.Does, "score")
	}
	for _, symbol := range m.Symbols {
		if symbol.Name == "T" {
			info.Context = symbol.Capacity
		}
	}
	largest := int64(0)
	if m.File != nil {
		for _, stored := range m.File.Stored {
			if stored.Bytes > largest {
				largest, info.Type = stored.Bytes, stored.Type
			}
		}
	}
}

func does(info inference.Info, what string) bool {
	for _, one := range info.Does {
		if one == what {
			return true
		}
	}
	return false
}

// newLoaded makes the engine of a model that was read.
func (r *Registry) newLoaded(ctx context.Context, s *slot, model *tessera.Model) (*loaded, error) {
	report, err := readReport(model)
	if err != nil {
		return nil, err
	}
	made := &loaded{runtime: r.runtime, model: model, kept: s.source.memory != nil, options: r.config.Engine, embedders: map[string]*tessera.Embedder{},
		queue: queue{limit: r.config.QueueTokens},
		info:  inference.Info{Name: s.source.name, Base: s.source.base, Created: s.source.created, Bytes: s.source.bytes, Loaded: true}}
	report.describe(&made.info)
	if made.tokenizer, err = model.Tokenizer(); err != nil {
		return nil, fmt.Errorf("the model %q: %w", s.source.name, err)
	}
	made.pieces = newPieces(made.tokenizer)
	if !does(made.info, "generate") {
		made.bytes = report.Bytes
		if r.config.MemoryLimit > 0 {
			err = r.makeRoom(s, made.bytes)
		}
		return made, err
	}
	if r.config.MemoryLimit > 0 {
		if made.options, made.bytes, err = r.admit(ctx, s, model); err != nil {
			return nil, err
		}
	}
	if made.engine, err = tessera.NewEngineContext(ctx, r.runtime, model, made.options); err != nil {
		return nil, err
	}
	if report, err := made.report(); err == nil {
		made.info.Context = report.Context
		made.bytes = report.planned()
	}
	return made, nil
}

// engineReport is what tsr_engine_report says.
type engineReport struct {
	Context, Sequences           int64
	Requests, Running, Waiting   int64
	Tokens, Generated            int64
	Cached                       int64 `json:"cached_tokens"`
	Preemptions                  int64
	Speculated, Accepted         int64
	CacheTokens, FreeCacheTokens int64
	Devices, Draft               []deviceReport
}

type deviceReport struct {
	Arena struct{ Predicted int64 } `json:"arena_bytes"`
}

// planned returns the bytes of the engine's plan on all devices.
func (e *engineReport) planned() (bytes int64) {
	for _, device := range append(append([]deviceReport{}, e.Devices...), e.Draft...) {
		bytes += device.Arena.Predicted
	}
	return bytes
}

func (m *loaded) report() (report engineReport, err error) {
	text, err := m.engine.Report()
	if err != nil {
		return report, err
	}
	var cache struct {
		All   int64          `json:"cache_tokens"`
		Free  int64          `json:"free_cache_tokens"`
		Draft []deviceReport `json:"draft_devices"`
	}
	if err = json.Unmarshal([]byte(text), &report); err == nil {
		err = json.Unmarshal([]byte(text), &cache)
	}
	report.CacheTokens, report.FreeCacheTokens, report.Draft = cache.All, cache.Free, cache.Draft
	return report, err
}

// template returns the model's chat template, made at its first use.
func (m *loaded) template() (*tessera.Chat, error) {
	m.chatOnce.Do(func() { m.chat, m.chatErr = tessera.NewChat(m.model, nil) })
	return m.chat, m.chatErr
}

func (m *loaded) close() {
	if m.engine != nil {
		m.engine.Close()
	}
	m.embedding.Lock()
	for _, embedder := range m.embedders {
		embedder.Close()
	}
	m.embedding.Unlock()
	if m.chat != nil {
		m.chat.Close()
	}
	m.tokenizer.Close()
	if !m.kept {
		m.model.Close()
	}
}
