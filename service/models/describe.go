package models

import "tessera.dev/tessera"

// defaultContext is the engine's context where the options give none.
const defaultContext = 2048

// describeModels reads what each model is, without its weights, so that lists tell it before the models are loaded.
func (r *Registry) describeModels() {
	defer r.stopped.Done()
	r.mutex.Lock()
	slots := make([]*slot, 0, len(r.order))
	for _, name := range r.order {
		slots = append(slots, r.slots[name])
	}
	r.mutex.Unlock()
	for _, s := range slots {
		select {
		case <-r.stop:
			return
		default:
		}
		r.describe(s)
	}
}

func (r *Registry) describe(s *slot) {
	r.mutex.Lock()
	known := len(s.info.Does) > 0
	r.mutex.Unlock()
	if known {
		return
	}
	model, err := tessera.LoadModel(s.source.path)
	if err != nil {
		r.config.log("warning", "model cannot be read", map[string]any{"model": s.source.name, "error": err.Error()})
		return
	}
	defer model.Close()
	report, err := readReport(model)
	if err != nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(s.info.Does) > 0 {
		return // loaded meanwhile
	}
	report.describe(&s.info)
	if does(s.info, "generate") {
		s.info.Context = r.servedContext(s.info.Context)
	}
}

// servedContext returns the context that the engine serves of a model with the context `model`.
func (r *Registry) servedContext(model int64) int64 {
	served := int64(defaultContext)
	switch given := r.config.Engine["context"].(type) {
	case int:
		served = int64(given)
	case int64:
		served = given
	}
	if model > 0 && (model < served || served <= 0) {
		return model
	}
	return served
}
