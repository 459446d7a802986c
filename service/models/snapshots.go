package models

import (
	"fmt"
	"os"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// A snapshot is a base with adapters, of a folder or in memory. It has a name, and is in no list. The base's engine serves it where
// it has room for such adapters (by their rank and weights); else it has an engine of its own, which takes any.

// load reads the model.
func (s *source) load() (*tessera.Model, error) {
	if s.memory != nil {
		return s.memory, nil
	}
	model, err := tessera.LoadModel(s.path)
	if err != nil || s.adapters == "" {
		return model, err
	}
	defer model.Close()
	return model.LoadAdapters(s.adapters, nil)
}

// close closes what load gave, unless that stays.
func (s *source) close(model *tessera.Model) {
	if model != s.memory {
		model.Close()
	}
}

// forget frees a snapshot in memory.
func (s *source) forget() {
	if s.memory != nil {
		s.memory.Close()
	}
}

// PublishSnapshot makes the adapters in a folder, over a base, a model of this name. The folder stays as long as the name does.
func (r *Registry) PublishSnapshot(name, base, folder string) error {
	state, err := os.Stat(folder)
	if err != nil {
		return err
	}
	return r.publishSnapshot(source{name: name, base: base, adapters: folder, created: state.ModTime().Unix()})
}

// PublishLive makes a model with adapters, in memory, a model of this name: weights is a *tessera.Model, which is the registry's
// from then on.
func (r *Registry) PublishLive(name, base string, weights interface{ Close() }) error {
	model, known := weights.(*tessera.Model)
	if !known {
		return fmt.Errorf("the weights of %s are a %T, wanted a *tessera.Model", name, weights)
	}
	return r.publishSnapshot(source{name: name, base: base, memory: model, created: time.Now().Unix()})
}

func (r *Registry) publishSnapshot(made source) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	below := r.slots[made.base]
	if below == nil || below.source.isSnapshot() {
		return &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "base_model",
			Message: fmt.Sprintf("the base model %q does not exist", made.base)}
	}
	if err := r.checkFreeLocked(made.name); err != nil {
		return err
	}
	made.path, made.bytes = below.source.path, below.source.bytes
	r.slots[made.name] = &slot{source: made, info: inference.Info{Name: made.name, Base: made.base, Created: made.created, Bytes: made.bytes},
		over: &adapter{name: made.name, base: made.base, path: made.adapters, memory: made.memory, created: made.created, number: -1}}
	r.order = append(r.order, made.name)
	return nil
}

// standAlone gives a snapshot an engine of its own, since the base's does not take it.
func (r *Registry) standAlone(s *slot, reason error) {
	r.mutex.Lock()
	s.over = nil
	r.mutex.Unlock()
	r.config.log("info", "snapshot in an engine of its own", map[string]any{"model": s.source.name, "reason": reason.Error()})
}

// dropFromBaseLocked takes a snapshot from its base's engine, where it is there.
func (r *Registry) dropFromBaseLocked(s *slot) {
	if s.over == nil || s.over.number < 0 {
		return
	}
	if ready := r.slots[s.over.base].ready; ready != nil && ready.engine == s.over.engine {
		_ = ready.engine.DropAdapter(s.over.number)
	}
	s.over.number = -1
}

// RetractSnapshot drops a name; what is in memory is freed once its requests have ended.
func (r *Registry) RetractSnapshot(name string) {
	r.mutex.Lock()
	s := r.slots[name]
	if s == nil || !s.source.isSnapshot() {
		r.mutex.Unlock()
		return
	}
	delete(r.slots, name)
	for i, one := range r.order {
		if one == name {
			r.order = append(r.order[:i:i], r.order[i+1:]...)
			break
		}
	}
	closed := r.closed
	if !closed {
		r.stopped.Add(1)
	}
	r.mutex.Unlock()
	if !closed {
		go r.drop(s)
	}
}

// drop frees a model that has no name any more.
func (r *Registry) drop(s *slot) {
	defer r.stopped.Done()
	for {
		r.loading.Lock()
		r.mutex.Lock()
		loading := s.load != nil
		r.mutex.Unlock()
		if !loading && r.unloadUnused(s) {
			r.loading.Unlock()
			s.source.forget()
			return
		}
		r.loading.Unlock()
		select {
		case <-r.stop:
			r.unload(s)
			s.source.forget()
			return
		case <-time.After(dropPeriod):
		}
	}
}

// dropPeriod is how often it is asked whether requests with a retracted model have ended.
const dropPeriod = 200 * time.Millisecond
