package models

import (
	"fmt"
	"os"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// A snapshot is a model with adapters of any rank and on any weights, the head too, in an engine of its own. It has a name, and
// is in no list.

// load reads the model.
func (s *source) load() (*tessera.Model, error) {
	model, err := tessera.LoadModel(s.path)
	if err != nil || s.adapters == "" {
		return model, err
	}
	defer model.Close()
	return model.LoadAdapters(s.adapters, nil)
}

// PublishSnapshot makes the adapters in a folder, over a base, a model of this name. The folder stays as long as the name does.
func (r *Registry) PublishSnapshot(name, base, folder string) error {
	state, err := os.Stat(folder)
	if err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	below := r.slots[base]
	if below == nil || below.source.adapters != "" {
		return &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "base_model",
			Message: fmt.Sprintf("the base model %q does not exist", base)}
	}
	if err := r.checkFreeLocked(name); err != nil {
		return err
	}
	made := source{name: name, path: below.source.path, created: state.ModTime().Unix(), bytes: below.source.bytes, adapters: folder, base: base}
	r.slots[name] = &slot{source: made, info: inference.Info{Name: name, Base: base, Created: made.created, Bytes: made.bytes}}
	r.order = append(r.order, name)
	return nil
}

// RetractSnapshot drops a name; what is in memory is freed once its requests have ended.
func (r *Registry) RetractSnapshot(name string) {
	r.mutex.Lock()
	s := r.slots[name]
	if s == nil || s.source.adapters == "" {
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
			return
		}
		r.loading.Unlock()
		select {
		case <-r.stop:
			r.unload(s)
			return
		case <-time.After(dropPeriod):
		}
	}
}

// dropPeriod is how often it is asked whether requests with a retracted model have ended.
const dropPeriod = 200 * time.Millisecond
