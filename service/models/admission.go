package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// servingPlan is what tsr_plan_info says of an engine.
type servingPlan struct {
	Serving struct {
		Context int64
		Devices []struct {
			Name  string
			Arena struct{ Predicted int64 } `json:"arena_bytes"`
			Draft int64                     `json:"draft_bytes"`
			Fits  bool
		}
	}
}

// planBytes returns the bytes of a serving plan on all devices.
func planBytes(info string) (int64, error) {
	var plan servingPlan
	if err := json.Unmarshal([]byte(info), &plan); err != nil {
		return 0, fmt.Errorf("plan: %w", err)
	}
	total := int64(0)
	for _, device := range plan.Serving.Devices {
		total += device.Arena.Predicted + device.Draft
	}
	return total, nil
}

// planFor returns the serving plan of a model as JSON.
func (r *Registry) planFor(ctx context.Context, model *tessera.Model, options tessera.Options) (string, error) {
	planned := tessera.Options{"mode": "serve"}
	for key, value := range options {
		planned[key] = value
	}
	plan, err := tessera.NewPlanContext(ctx, r.runtime, model, planned, nil)
	if err != nil {
		return "", err
	}
	defer plan.Close()
	return plan.Info()
}

// admit makes room for a model, and gives the engine options that keep it within that, and its bytes.
func (r *Registry) admit(ctx context.Context, s *slot, model *tessera.Model) (tessera.Options, int64, error) {
	options := r.config.Engine
	info, err := r.planFor(ctx, model, options)
	if err != nil {
		return nil, 0, err
	}
	bytes, err := planBytes(info)
	if err != nil {
		return nil, 0, err
	}
	limit := r.config.MemoryLimit
	if bytes > limit { // alone, with a smaller cache
		options = withOptions(options, tessera.Options{"memory_limit": limit / r.devices})
		if info, err = r.planFor(ctx, model, options); err != nil {
			return nil, 0, err
		}
		if bytes, err = planBytes(info); err != nil {
			return nil, 0, err
		}
	}
	return options, bytes, r.makeRoom(s, bytes)
}

// makeRoom unloads models without requests, the longest unused first, until so many bytes fit.
func (r *Registry) makeRoom(s *slot, bytes int64) error {
	for {
		taken, inUse := r.takenBytes()
		if taken+bytes <= r.config.MemoryLimit {
			return nil
		}
		idle := r.idleSlots(0)
		if len(idle) == 0 {
			return &inference.Error{Kind: inference.Overloaded, Code: "no_memory", RetryAfter: 10,
				Message: fmt.Sprintf("the model %q needs %d bytes by its plan, and %d of %d are free beside %d models in use; retry later, or "+
					"raise --memory-limit, or lower --sequences or --cache-tokens", s.source.name, bytes, r.config.MemoryLimit-taken, r.config.MemoryLimit, inUse)}
		}
		r.unloadUnused(idle[0])
	}
}

// takenBytes returns the planned bytes of loaded models, and the count of those in use.
func (r *Registry) takenBytes() (bytes int64, inUse int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, s := range r.slots {
		if s.ready == nil {
			continue
		}
		bytes += s.ready.bytes
		if s.users > 0 {
			inUse++
		}
	}
	return bytes, inUse
}

// loadModel reads a model, makes room for it and its engine.
func (r *Registry) loadModel(ctx context.Context, s *slot) (*loaded, error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	select {
	case <-r.stop:
		return nil, &inference.Error{Kind: inference.Overloaded, Message: errStopping.Error()}
	default:
	}
	begun := time.Now()
	model, err := s.source.load()
	if err != nil {
		return nil, err
	}
	made, err := r.newLoaded(ctx, s, model)
	if err != nil {
		s.source.close(model)
		r.config.log("error", "model not loaded", map[string]any{"model": s.source.name, "error": err.Error()})
		return nil, err
	}
	r.config.log("info", "model loaded", map[string]any{"model": s.source.name, "seconds": time.Since(begun).Seconds(),
		"plan_bytes": made.bytes, "context": made.info.Context})
	return made, nil
}
