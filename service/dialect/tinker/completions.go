package tinker

import (
	"math"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
)

// completions waits for requests of a sampler's client to be done, whose results are retrieved one by one.
func (s *service) completions(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	target := given.NeedObject("target")
	target.Only("type", `"sampling_session"`)
	sampler := target.NeedText("sampling_session_id")
	clone, _ := target.Integer("cloned_sampler_id", 0, mostNumber)
	_ = target.Done()
	cursor, _ := given.Integer("prev_cursor", 0, mostNumber)
	patience := time.Duration(math.MaxInt64)
	if seconds, ok := given.Number("timeout", 0, 3600); ok {
		patience = time.Duration(seconds * float64(time.Second))
	}
	var retrieved []string
	if ids, ok := given.Value("retrieved_request_ids"); ok {
		retrieved = ids.Texts(0, 1<<16)
	}
	if err := given.Done(); err != nil {
		return nil, err
	}
	done, next, err := s.work.Completions(call.Context, call.Tenant, sampler, clone, cursor, patience, retrieved)
	if err != nil {
		return nil, err
	}
	made := []any{}
	for _, one := range done {
		state := "finished"
		if one.Failed {
			state = "failed"
		}
		made = append(made, map[string]string{"state": state, "request_id": one.Request})
	}
	return map[string]any{"completions": made, "cursor": next}, nil
}
