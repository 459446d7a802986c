package models

import (
	"context"
	"encoding/json"
	"os"
	"time"
)

// toldPlan is the serving plan of a model's file, with the file's size and time when it was planned.
type toldPlan struct {
	bytes   int64
	changed time.Time
	info    json.RawMessage
}

// Plan returns the serving plan of a model, loaded or not, as JSON. It is made once for each state of the model's file: planning may
// take as long as loading, and pages ask for it whenever they are opened.
func (r *Registry) Plan(ctx context.Context, name string) (json.RawMessage, error) {
	s, _, err := r.find(name)
	if err != nil {
		return nil, err
	}
	r.planning.Lock()
	defer r.planning.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	state, lost := os.Stat(s.source.path)
	if told := s.plan; told != nil && lost == nil && told.bytes == state.Size() && told.changed.Equal(state.ModTime()) {
		return told.info, nil
	}
	model, err := s.source.load()
	if err != nil {
		return nil, serviceError(err)
	}
	defer s.source.close(model)
	text, err := r.planFor(ctx, model, r.config.Engine)
	if err != nil {
		return nil, serviceError(err)
	}
	info := json.RawMessage(text)
	if lost == nil {
		s.plan = &toldPlan{state.Size(), state.ModTime(), info}
	}
	return info, nil
}
