package tinker

import (
	"sort"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
	"tessera.dev/service/tinker"
)

func (s *service) capabilities(call *dialect.Call, models inference.Models) (any, error) {
	type model struct {
		Name      string `json:"model_name"`
		Context   int64  `json:"max_context_length,omitempty"`
		Trainable bool   `json:"trainable"`
		Sampled   bool   `json:"sampleable"`
	}
	all := []model{}
	for _, info := range models.List() {
		generates := len(info.Does) == 0
		for _, one := range info.Does {
			generates = generates || one == "generate"
		}
		all = append(all, model{info.Name, info.Context, generates && info.Base == "", generates})
	}
	return map[string]any{"supported_models": all}, nil
}

type cursor struct {
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
	Total  int `json:"total_count"`
}

func page(call *dialect.Call, otherwise int) (cursor, error) {
	query := openai.NewQuery(call.Query)
	made := pageOf(query, otherwise)
	return made, query.Done()
}

func pageOf(query *openai.Query, otherwise int) cursor {
	query.Text("access_scope") // others' things are accessible to nobody here
	return cursor{Offset: query.Integer("offset", 0, 0, 1<<30), Limit: query.Integer("limit", otherwise, 1, 1000)}
}

func (s *service) sessions(call *dialect.Call) (any, error) {
	at, err := page(call, 20)
	if err != nil {
		return nil, err
	}
	ids, err := s.work.Sessions(call.Context, call.Tenant, at.Limit, at.Offset)
	return map[string]any{"sessions": ids}, err
}

func (s *service) session(call *dialect.Call) (any, error) {
	found, runs, samplers, err := s.work.Session(call.Context, call.Tenant, call.Names["id"])
	made := map[string]any{"training_run_ids": runs, "sampler_ids": samplers, "user_metadata": found.Metadata}
	if found.Name != "" {
		made["display_name"] = found.Name
	}
	return made, err
}

// finishSession ends a session as its client says.
func (s *service) finishSession(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	var finish tinker.Finish
	reason := given.NeedObject("reason")
	reason.NeedText("type")
	finish.Reason, _ = reason.Choice("type", "success", "errored", "interrupted")
	_ = reason.Done()
	finish.Detail, _ = given.Text("detail")
	if err := given.Done(); err != nil {
		return nil, err
	}
	return map[string]any{}, s.work.FinishSession(call.Context, call.Tenant, call.Names["id"], finish)
}

// info describes a run. lora_config says which weights really have adapters.
func (s *service) info(call *dialect.Call) (any, error) {
	given, err := body(call, "get_info")
	if err != nil {
		return nil, err
	}
	id := given.NeedText("model_id")
	if err := given.Done(); err != nil {
		return nil, err
	}
	run, err := s.work.Info(call.Context, call.Tenant, id)
	if err != nil {
		return nil, err
	}
	return map[string]any{"type": "get_info", "model_id": run.ID, "is_lora": true, "lora_rank": run.Adapters.Rank, "model_name": run.Base,
		"model_data":       map[string]any{"arch": run.Sort.Architecture, "model_name": run.Base, "tokenizer_id": run.Sort.Tokenizer},
		"optimizer_config": map[string]string{"type": "adamw"}, "lora_config": run.Adapters}, nil
}

func stamp(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

type checkpoint struct {
	ID       string            `json:"checkpoint_id"`
	Type     string            `json:"checkpoint_type"`
	Time     string            `json:"time"`
	Path     string            `json:"tinker_path"`
	Bytes    int64             `json:"size_bytes"`
	Public   bool              `json:"public"`
	Metadata map[string]string `json:"user_metadata,omitempty"`
	Expires  string            `json:"expires_at,omitempty"`
}

func newCheckpoint(one *tinker.Checkpoint) checkpoint {
	made := checkpoint{ID: one.ID(), Type: "training", Time: stamp(one.Created), Path: one.Path(), Bytes: one.Bytes, Public: one.Public, Metadata: one.Metadata}
	switch one.Kind {
	case tinker.SamplerWeights:
		made.Type = "sampler"
	case tinker.ExternalWeights:
		made.Type = "external"
	}
	if one.Expires > 0 {
		made.Expires = stamp(one.Expires)
	}
	return made
}

func newCheckpoints(found []tinker.Checkpoint) []checkpoint {
	made := []checkpoint{}
	for i := range found {
		made = append(made, newCheckpoint(&found[i]))
	}
	return made
}

func (s *service) runCheckpoints(call *dialect.Call) (any, error) {
	if _, err := s.work.Info(call.Context, call.Tenant, call.Names["run"]); err != nil {
		return nil, err
	}
	found, _, err := s.work.Checkpoints(call.Context, call.Tenant, call.Names["run"], 0, 0)
	return map[string]any{"checkpoints": newCheckpoints(found)}, err
}

func (s *service) checkpoints(call *dialect.Call) (any, error) {
	at, err := page(call, 100)
	if err != nil {
		return nil, err
	}
	found, all, err := s.work.Checkpoints(call.Context, call.Tenant, "", at.Limit, at.Offset)
	at.Total = all
	return map[string]any{"checkpoints": newCheckpoints(found), "cursor": at}, err
}

// runObject describes a run with its latest checkpoints.
func (s *service) runObject(call *dialect.Call, run *tinker.Run) (any, error) {
	found, _, err := s.work.Checkpoints(call.Context, call.Tenant, run.ID, 0, 0)
	if err != nil {
		return nil, err
	}
	made := map[string]any{"training_run_id": run.ID, "base_model": run.Base, "model_owner": owner(call.Tenant), "is_lora": true, "lora_rank": run.Adapters.Rank,
		"corrupted": run.Dirty && run.Swap == "" && !s.work.Lives(run.ID), "last_request_time": stamp(run.Latest), "user_metadata": run.Metadata}
	for i := len(found) - 1; i >= 0; i-- {
		switch found[i].Kind {
		case tinker.Weights:
			made["last_checkpoint"] = newCheckpoint(&found[i])
		case tinker.SamplerWeights:
			made["last_sampler_checkpoint"] = newCheckpoint(&found[i])
		}
	}
	return made, nil
}

func (s *service) run(call *dialect.Call) (any, error) {
	run, err := s.work.Info(call.Context, call.Tenant, call.Names["run"])
	if err != nil {
		return nil, err
	}
	return s.runObject(call, &run)
}

func (s *service) runs(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	at, project := pageOf(query, 20), query.Text("project_id")
	if err := query.Done(); err != nil {
		return nil, err
	}
	found, all, err := s.work.Runs(call.Context, call.Tenant, project, at.Limit, at.Offset)
	if err != nil {
		return nil, err
	}
	made := []any{}
	for i := range found {
		one, err := s.runObject(call, &found[i])
		if err != nil {
			return nil, err
		}
		made = append(made, one)
	}
	at.Total = all
	return map[string]any{"training_runs": made, "cursor": at}, nil
}

func (s *service) weightsInfo(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	path := given.NeedText("tinker_path")
	if err := given.Done(); err != nil {
		return nil, err
	}
	found, err := s.work.Checkpoint(call.Context, call.Tenant, path)
	if err != nil {
		return nil, err
	}
	return map[string]any{"base_model": found.Base, "is_lora": true, "lora_rank": found.Adapters.Rank, "train_unembed": found.Adapters.Head,
		"train_mlp": found.Adapters.MLP, "train_attn": found.Adapters.Attention, "optimizer_config": map[string]string{"type": "adamw"}}, nil
}

// path builds the checkpoint's tinker:// path from the parts of the URL path.
func path(call *dialect.Call) string {
	return "tinker://" + call.Names["run"] + "/" + call.Names["kind"] + "/" + call.Names["name"]
}

func (s *service) deleteCheckpoint(call *dialect.Call) (any, error) {
	return map[string]any{}, s.work.Delete(call.Context, call.Tenant, path(call))
}

func (s *service) publish(call *dialect.Call) (any, error)   { return s.setPublic(call, true) }
func (s *service) unpublish(call *dialect.Call) (any, error) { return s.setPublic(call, false) }

func (s *service) setPublic(call *dialect.Call, public bool) (any, error) {
	return map[string]any{}, s.work.Change(call.Context, call.Tenant, path(call), func(one *tinker.Checkpoint) error {
		one.Public = public
		return nil
	})
}

func (s *service) setLife(call *dialect.Call) (any, error) {
	given, err := fields.Body(call.Body)
	if err != nil {
		return nil, err
	}
	seconds, _ := given.Integer("ttl_seconds", 1, mostNumber)
	if err := given.Done(); err != nil {
		return nil, err
	}
	return map[string]any{}, s.work.Change(call.Context, call.Tenant, path(call), func(one *tinker.Checkpoint) error { return tinker.SetLife(one, seconds) })
}

const maxUsageRange = 14 * 24 * time.Hour

// usage lists counts by the hour.
func (s *service) usage(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	read := func(name string, otherwise time.Time) time.Time {
		text := query.Text(name)
		if text == "" {
			return otherwise
		}
		for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02"} {
			if found, err := time.Parse(form, text); err == nil {
				return found
			}
		}
		query.Fail(name, fields.InvalidValue, "is %q; a time such as 2026-11-30T00:00:00Z is wanted", text)
		return otherwise
	}
	until := read("ending_before", call.Now.UTC().Truncate(time.Hour).Add(time.Hour))
	from := read("starting_on", until.Add(-24*time.Hour))
	if until.Sub(from) > maxUsageRange || from.After(until) {
		query.Fail("ending_before", fields.InvalidValue, "is not within 14 days after starting_on")
	}
	if err := query.Done(); err != nil {
		return nil, err
	}
	counts, err := s.work.Usage(call.Context, call.Tenant, from.Unix(), until.Unix())
	if err != nil {
		return nil, err
	}
	all, err := s.work.AllSessions(call.Context, call.Tenant)
	if err != nil {
		return nil, err
	}
	known := map[string]*tinker.Session{}
	for i := range all {
		known[all[i].ID] = &all[i]
	}
	sort.SliceStable(counts, func(i, j int) bool {
		a, b := counts[i], counts[j]
		return a.Hour < b.Hour || a.Hour == b.Hour && a.Count > b.Count
	})
	data, sessions := []any{}, map[string]any{}
	for _, one := range counts {
		event := map[string]any{"bucket_start": stamp(one.Hour), "bucket_end": stamp(one.Hour + 3600), "base_model": one.Base, "user_id": owner(call.Tenant),
			"session_id": nil, "event_info": usageEvent(one)}
		if session := known[one.Session]; session != nil { // samples of a base may be of none
			event["session_id"], event["project_id"] = one.Session, session.InProject()
			sessions[one.Session] = map[string]any{"user_metadata": session.Metadata}
		}
		data = append(data, event)
	}
	return map[string]any{"data": data, "sessions": sessions}, nil
}

// storage sums the checkpoints of the caller by projects. They cost nothing here.
func (s *service) storage(call *dialect.Call) (any, error) {
	query := openai.NewQuery(call.Query)
	project := query.Text("project_id")
	if err := query.Done(); err != nil {
		return nil, err
	}
	found, err := s.work.Storage(call.Context, call.Tenant, project)
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, one := range found {
		data = append(data, map[string]any{"project_id": one.Project, "org_user_urn": owner(call.Tenant), "user_name": call.Tenant,
			"checkpoint_count": one.Checkpoints, "size_bytes": one.Bytes, "size_gigabytes": float64(one.Bytes) / 1e9})
	}
	return map[string]any{"data": data}, nil
}

func usageEvent(one tinker.Count) map[string]any {
	switch one.Kind {
	case tinker.CheckpointCount:
		return map[string]any{"type": "checkpoint", "count": one.Count}
	case tinker.PrefillTokens, tinker.CachedTokens:
		return map[string]any{"type": "sampling_prefill", "cached": one.Kind == tinker.CachedTokens, "token_count": one.Count}
	}
	return map[string]any{"type": one.Kind, "token_count": one.Count}
}
