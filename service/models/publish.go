package models

import (
	"fmt"
	"os"
	"strings"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

var _ tuning.Registry = (*Registry)(nil)

// Source returns the paths of a model's files, for trainings.
func (r *Registry) Source(name string) (tuning.Source, error) {
	s, a, err := r.find(name)
	if err != nil {
		return tuning.Source{}, err
	}
	if s.source.isSnapshot() {
		return tuning.Source{}, invalid("model", fmt.Sprintf("the model %q is a snapshot of a training: load its checkpoint", name))
	}
	r.mutex.Lock()
	info := s.info
	r.mutex.Unlock()
	if len(info.Does) > 0 && !does(info, "generate") {
		return tuning.Source{}, invalid("model", fmt.Sprintf("the model %q writes no texts, so that it cannot be trained here; it does: %v", name, info.Does))
	}
	if a != nil {
		return tuning.Source{Path: s.source.path, Adapter: a.path, Base: a.base}, nil
	}
	return tuning.Source{Path: s.source.path, Base: s.source.name}, nil
}

// Publish makes the files at path a model of this name: adapters over base, or where base is "" a model's file. With the
// arguments of an earlier call it changes nothing.
func (r *Registry) Publish(name, base, path string) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if a := r.adapters[name]; a != nil && a.base == base && a.path == path {
		return nil
	}
	if s := r.slots[name]; s != nil && base == "" && s.source.path == path {
		return nil
	}
	if base != "" {
		return r.addAdapterLocked(name, base, path)
	}
	if err := r.checkFreeLocked(name); err != nil {
		return err
	}
	made, err := newSource(name, path)
	if err != nil {
		return err
	}
	s := &slot{source: made, info: inference.Info{Name: name, Created: made.created, Bytes: made.bytes}}
	r.slots[name] = s
	r.order = append(r.order, name)
	if !r.closed {
		r.stopped.Add(1)
		go func() {
			defer r.stopped.Done()
			r.describe(s)
		}()
	}
	return nil
}

// checkFreeLocked refuses a name that is taken.
func (r *Registry) checkFreeLocked(name string) error {
	if r.slots[name] != nil || r.adapters[name] != nil {
		return &inference.Error{Kind: inference.Conflict, Param: "lora_name", Message: fmt.Sprintf("the name %q is taken; unload it first, or give another", name)}
	}
	return nil
}

// addAdapterLocked gives an adapter over a base a name.
func (r *Registry) addAdapterLocked(name, base, path string) error {
	state, err := os.Stat(path)
	if err != nil {
		return &inference.Error{Kind: inference.NotFound, Param: "lora_path", Message: fmt.Sprintf("%s: found no adapter there", path)}
	}
	if r.slots[base] == nil {
		return &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "lora_name",
			Message: fmt.Sprintf("the adapter %q has the base %q, which does not exist; there are: %s", name, base, strings.Join(r.namesLocked(20), ", "))}
	}
	if err := r.checkFreeLocked(name); err != nil {
		return err
	}
	r.adapters[name] = &adapter{name: name, base: base, path: path, created: state.ModTime().Unix(), number: -1}
	return nil
}
