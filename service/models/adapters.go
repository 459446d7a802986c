package models

import (
	"context"
	"fmt"
	"strings"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// adapter is a model name of its own: a base with an adapter.
type adapter struct {
	name, base, path string
	memory           *tessera.Model // has the adapter, in place of path; else nil
	created          int64
	number           int64           // of the base's engine; -1 while that does not have it
	engine           *tessera.Engine // whose number it is
	users            int             // of a snapshot's
}

// loadInto gives the adapter to an engine.
func (a *adapter) loadInto(engine *tessera.Engine) (int64, error) {
	if a.memory != nil {
		return engine.LoadAdapterFromModel(a.memory)
	}
	return engine.LoadAdapter(a.path)
}

func (a *adapter) infoLocked(base *slot) inference.Info {
	info := base.infoLocked()
	info.Name, info.Base, info.Created = a.name, a.base, a.created
	return info
}

// AddAdapter gives an adapter a name, "base:adapter". It is loaded with its first request.
func (r *Registry) AddAdapter(name, path string) error {
	at := strings.LastIndexByte(name, ':')
	if at <= 0 || at == len(name)-1 {
		return invalid("lora_name", fmt.Sprintf("found the adapter's name %q, wanted BASE:NAME, as \"base:mine\"", name))
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.addAdapterLocked(name, name[:at], path)
}

// LoadAdapter is AddAdapter, and loads it at once, so that a wrong file is an error here.
func (r *Registry) LoadAdapter(ctx context.Context, name, path string) error {
	if err := r.AddAdapter(name, path); err != nil {
		return err
	}
	if err := r.Load(ctx, name); err != nil {
		r.mutex.Lock()
		delete(r.adapters, name)
		r.mutex.Unlock()
		return err
	}
	return nil
}

// UnloadAdapter drops a name; requests with it go on.
func (r *Registry) UnloadAdapter(name string) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	a := r.adapters[name]
	if a == nil {
		return &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "lora_name",
			Message: fmt.Sprintf("the adapter %q does not exist", name)}
	}
	delete(r.adapters, name)
	if ready := r.slots[a.base].ready; ready != nil && a.number >= 0 {
		return serviceError(ready.engine.DropAdapter(a.number))
	}
	return nil
}

// forgetAdaptersLocked: an engine that is freed has no adapters.
func (r *Registry) forgetAdaptersLocked(s *slot) {
	for _, a := range r.adapters {
		if a.base == s.source.name {
			a.number = -1
		}
	}
	for _, one := range r.slots {
		if one.over != nil && one.over.base == s.source.name {
			one.over.number = -1
		}
	}
}

// adapterNumber loads an adapter into its base's engine where it is not there.
func (r *Registry) adapterNumber(a *adapter, base *loaded) (int64, error) {
	base.adapting.Lock()
	defer base.adapting.Unlock()
	r.mutex.Lock()
	number := a.number
	r.mutex.Unlock()
	if number >= 0 {
		return number, nil
	}
	if base.engine == nil {
		return -1, invalid("model", fmt.Sprintf("the model %q does not generate, so that it takes no adapters", base.info.Name))
	}
	number, err := a.loadInto(base.engine)
	if err != nil {
		return -1, adapterError(err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	a.number, a.engine = number, base.engine
	return number, nil
}
