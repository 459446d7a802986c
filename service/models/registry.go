package models

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// Registry is the models by name.
type Registry struct {
	config  Config
	runtime *tessera.Runtime
	devices int64
	stop    chan struct{}
	stopped sync.WaitGroup

	loading  sync.Mutex // one model at a time, so that admission sees what others take
	planning sync.Mutex // one plan at a time, and slots' plans

	mutex    sync.Mutex
	order    []string
	slots    map[string]*slot
	adapters map[string]*adapter // by whole name
	closed   bool
}

// New finds the models; none is loaded yet.
func New(config Config) (*Registry, error) {
	found, order, err := findModels(config.Paths, config.Aliases)
	if err != nil {
		return nil, err
	}
	if err := tessera.CheckOptions("engine", config.Engine); err != nil {
		return nil, err
	}
	if config.QueueTokens == 0 {
		config.QueueTokens = DefaultQueueTokens
	}
	runtime, err := tessera.NewRuntime(tessera.Options{"threads": config.Threads, "log_level": "warning"})
	if err != nil {
		return nil, err
	}
	r := &Registry{config: config, runtime: runtime, devices: 1, stop: make(chan struct{}), order: order,
		slots: map[string]*slot{}, adapters: map[string]*adapter{}}
	if err := r.setShare(); err != nil {
		runtime.Close()
		return nil, err
	}
	if err := r.countDevices(); err != nil {
		runtime.Close()
		return nil, err
	}
	_ = runtime.SetLog(func(record tessera.LogRecord) { r.config.log(record.Level.String(), record.Message, nil) })
	for name, from := range found {
		r.slots[name] = &slot{source: from, info: inference.Info{Name: name, Created: from.created, Bytes: from.bytes}}
	}
	for _, name := range sortedKeys(config.Adapters) {
		if err := r.AddAdapter(name, config.Adapters[name]); err != nil {
			runtime.Close()
			return nil, err
		}
	}
	r.stopped.Add(2)
	go r.unloadIdle()
	go r.describeModels()
	return r, nil
}

func (r *Registry) setShare() error {
	if r.config.InferenceShare == nil {
		return nil
	}
	return r.runtime.SetShare(tessera.Options{"inference_share": *r.config.InferenceShare})
}

// ShareCores makes trainings of another runtime take turns with the models' requests.
func (r *Registry) ShareCores(training *tessera.Runtime) error { return training.JoinShare(r.runtime) }

func (r *Registry) countDevices() error {
	text, given := r.config.Engine["devices"].(string)
	if !given {
		return nil
	}
	devices, err := tessera.OpenDevices(r.runtime, text)
	if err != nil {
		return err
	}
	defer devices.Close()
	r.devices = int64(devices.Count())
	return nil
}

// Close ends all requests and frees all models.
func (r *Registry) Close() {
	r.mutex.Lock()
	if r.closed {
		r.mutex.Unlock()
		return
	}
	r.closed = true
	slots := make([]*slot, 0, len(r.slots))
	for _, s := range r.slots {
		slots = append(slots, s)
	}
	r.mutex.Unlock()
	close(r.stop)
	r.runtime.Cancel()
	r.stopped.Wait()
	r.loading.Lock()
	defer r.loading.Unlock()
	for _, s := range slots {
		r.unload(s)
		s.source.forget()
	}
	r.runtime.Close()
}

// List describes all names but snapshots: models in the order of the command line, each followed by its adapters.
func (r *Registry) List() []inference.Info {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var all []inference.Info
	for _, name := range r.order {
		if r.slots[name].source.isSnapshot() {
			continue
		}
		all = append(all, r.slots[name].infoLocked())
		for _, whole := range sortedKeys(r.adapters) {
			if a := r.adapters[whole]; a.base == name {
				all = append(all, a.infoLocked(r.slots[name]))
			}
		}
	}
	return all
}

// Open returns a model ready for requests. It loads the model if it is not loaded.
func (r *Registry) Open(ctx context.Context, name string) (inference.Model, error) {
	s, a, err := r.find(name)
	if err != nil {
		return nil, err
	}
	for {
		r.mutex.Lock()
		if r.closed {
			r.mutex.Unlock()
			return nil, &inference.Error{Kind: inference.Overloaded, Message: "the service is stopping"}
		}
		at, with := s, a
		if s.over != nil {
			at, with = r.slots[s.over.base], s.over
			with.users++
		}
		if at.ready != nil {
			at.users++
			loaded := at.ready
			r.mutex.Unlock()
			opened := &opened{registry: r, slot: at, loaded: loaded, adapter: with}
			if err := opened.prepare(); err != nil {
				opened.Release()
				if with != a {
					r.standAlone(s, err)
					continue
				}
				return nil, err
			}
			return opened, nil
		}
		if with != a {
			with.users--
		}
		load := at.beginLocked(r)
		r.mutex.Unlock()
		select {
		case <-load.done:
			if load.err != nil {
				return nil, load.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// find returns the slot of a name, and the adapter if it names one.
func (r *Registry) find(name string) (*slot, *adapter, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if s := r.slots[name]; s != nil {
		return s, nil, nil
	}
	if a := r.adapters[name]; a != nil {
		return r.slots[a.base], a, nil
	}
	if s := r.slots[strings.TrimSuffix(name, ":latest")]; s != nil { // as Ollama's clients name models without a tag
		return s, nil, nil
	}
	return nil, nil, &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("the model %q does not exist; there are: %s", name, strings.Join(r.namesLocked(20), ", "))}
}

func (r *Registry) namesLocked(most int) []string {
	var names []string
	for _, name := range append(append([]string{}, r.order...), sortedKeys(r.adapters)...) {
		if s := r.slots[name]; s != nil && s.source.isSnapshot() {
			continue
		}
		if len(names) == most {
			return append(names, "...")
		}
		names = append(names, name)
	}
	return names
}

// Load loads a model that is not loaded yet.
func (r *Registry) Load(ctx context.Context, name string) error {
	model, err := r.Open(ctx, name)
	if err == nil {
		model.Release()
	}
	return err
}

// Unload frees a model without requests.
func (r *Registry) Unload(name string) error {
	s, _, err := r.find(name)
	if err != nil {
		return err
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	r.mutex.Lock()
	users := s.users
	if s.over != nil {
		users = s.over.users
	}
	r.mutex.Unlock()
	if users > 0 || !r.unloadUnused(s) {
		return &inference.Error{Kind: inference.Conflict, Code: "model_in_use", Param: "model", RetryAfter: 5,
			Message: fmt.Sprintf("the model %q serves %d requests; it is unloaded once they have ended", name, users)}
	}
	return nil
}

func (r *Registry) unloadUnused(s *slot) bool {
	r.mutex.Lock()
	if s.users > 0 || s.over != nil && s.over.users > 0 {
		r.mutex.Unlock()
		return false
	}
	r.dropFromBaseLocked(s)
	loaded := s.ready
	s.ready = nil
	r.forgetAdaptersLocked(s)
	r.mutex.Unlock()
	if loaded != nil {
		loaded.close()
		r.config.log("info", "model unloaded", map[string]any{"model": s.source.name})
	}
	return true
}

// unload frees a model with whatever uses it.
func (r *Registry) unload(s *slot) {
	r.mutex.Lock()
	loaded := s.ready
	s.ready = nil
	r.mutex.Unlock()
	if loaded != nil {
		loaded.close()
	}
}

func (r *Registry) unloadIdle() {
	defer r.stopped.Done()
	if r.config.Idle <= 0 {
		return
	}
	period := r.config.Idle / 4
	if period > time.Second {
		period = time.Second
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		for _, s := range r.idleSlots(r.config.Idle) {
			if r.loading.TryLock() { // no model is loaded right now: that one may evict others itself
				r.unloadUnused(s)
				r.loading.Unlock()
			}
		}
	}
}

// idleSlots returns the loaded models that had no requests for the time `idle`, the longest unused first.
func (r *Registry) idleSlots(idle time.Duration) []*slot {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var all []*slot
	for _, name := range r.order {
		s := r.slots[name]
		if s.ready == nil || s.users > 0 || time.Since(s.used) < idle {
			continue
		}
		at := len(all)
		for at > 0 && all[at-1].used.After(s.used) {
			at--
		}
		all = append(all[:at], append([]*slot{s}, all[at:]...)...)
	}
	return all
}

// errStopping is the error of loads while the service stops.
var errStopping = errors.New("the service is stopping")
