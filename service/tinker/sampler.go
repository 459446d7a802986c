package tinker

import (
	"context"
	"fmt"

	"tessera.dev/service/inference"
)

// Sampler is what samples are asked of: a base, a checkpoint, or an ephemeral snapshot of a run.
type Sampler struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Base    string `json:"base"`
	Path    string `json:"path,omitempty"` // of a checkpoint
	Run     string `json:"run,omitempty"`  // of an ephemeral one, whose weights are in memory
	Digest  string `json:"digest"`

	clients int64 // clones of the first client
}

// model returns the name that the sampler's weights have among the models.
func (p *Sampler) model() string {
	switch {
	case p.Run != "":
		return p.ID
	case p.Path != "":
		return p.Path
	}
	return p.Base
}

// NewSampler makes a sampler of a base or a checkpoint.
func (s *Service) NewSampler(ctx context.Context, tenant, session string, number int64, base, path string) (string, error) {
	owner, err := s.session(ctx, tenant, session)
	if err != nil {
		return "", err
	}
	made := &Sampler{ID: fmt.Sprintf("%s:sample:%d", session, number), Tenant: tenant, Session: owner.ID, Base: base, Path: path, Digest: digestOf(base, path)}
	if known, err := s.Sampler(ctx, tenant, made.ID); err == nil {
		if known.Digest != made.Digest {
			return "", &inference.Error{Kind: inference.Conflict, Code: "sampling_session_seq_id_reused", Param: "sampling_session_seq_id",
				Message: fmt.Sprintf("sampling_session_seq_id %d of this session was used with another request", number)}
		}
		return known.ID, nil
	}
	if err := s.resolve(ctx, made); err != nil {
		return "", err
	}
	return made.ID, s.keepSampler(ctx, made)
}

// resolve finds the base of what a sampler names.
func (s *Service) resolve(ctx context.Context, made *Sampler) error {
	if made.Path != "" {
		found, err := s.checkpointAt(ctx, made.Tenant, made.Path, SamplerWeights)
		if err != nil {
			return err
		}
		if made.Base != "" && made.Base != found.Base {
			return invalid("base_model", "found %q, and the checkpoint is of %q", short(made.Base), found.Base)
		}
		made.Base = found.Base
		return nil
	}
	if made.Base == "" {
		return invalid("base_model", "is missing; wanted base_model or model_path")
	}
	for _, info := range s.config.Models.List() {
		if info.Name == made.Base {
			return nil
		}
	}
	return &inference.Error{Kind: inference.NotFound, Code: "model_not_found", Param: "base_model", Message: fmt.Sprintf("the model %q does not exist", short(made.Base))}
}

func (s *Service) keepSampler(ctx context.Context, made *Sampler) error {
	if made.Run == "" { // an ephemeral one ends with the process
		if err := s.put(ctx, samplerRow, made.ID, made.Tenant, made.Session, made); err != nil {
			return err
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.samplers[made.ID] = made
	return nil
}

// Sampler finds one.
func (s *Service) Sampler(ctx context.Context, tenant, id string) (*Sampler, error) {
	s.mutex.Lock()
	found := s.samplers[id]
	s.mutex.Unlock()
	if found != nil {
		if found.Tenant != tenant {
			return nil, missing(samplerRow, id)
		}
		return found, nil
	}
	read := &Sampler{}
	if err := s.get(ctx, samplerRow, id, tenant, read); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.samplers[id] = read
	return read, nil
}

// saveEphemeral makes a sampler of a run as it is now, which ends with its session or the service. Earlier ones of the run leave
// the memory, and come back where they are asked.
func (s *Service) saveEphemeral(ctx context.Context, one *run, order SaveOrder) (any, error) {
	made := &Sampler{ID: fmt.Sprintf("%s:sample:%d", one.Session, order.Sampler), Tenant: one.Tenant, Session: one.Session, Base: one.Base, Run: one.ID}
	if _, err := s.Sampler(ctx, one.Tenant, made.ID); err == nil {
		return nil, &inference.Error{Kind: inference.Conflict, Code: "sampling_session_seq_id_reused", Param: "sampling_session_seq_id",
			Message: fmt.Sprintf("sampling_session_seq_id %d of this session was used before", order.Sampler)}
	}
	err := s.residence.enter(ctx, one, func(trainer Trainer) error {
		weights, err := trainer.Live(ctx)
		if err != nil {
			return err
		}
		if err := s.config.Models.PublishLive(made.model(), made.Base, weights); err != nil {
			weights.Close()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	var earlier []string
	for _, each := range s.samplers {
		if each.Run == one.ID {
			earlier = append(earlier, each.model())
		}
	}
	s.mutex.Unlock()
	for _, name := range earlier {
		_ = s.config.Models.Unload(name) // one in use stays
	}
	return &SavedSampler{Sampler: made.ID}, s.keepSampler(ctx, made)
}

func (s *Service) dropEphemeral(one *Sampler) { s.config.Models.RetractSnapshot(one.model()) }

// Join gives another client of a sampler a number, from 1 on.
func (s *Service) Join(ctx context.Context, tenant, id string) (int64, error) {
	found, err := s.Sampler(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found.clients++
	return found.clients, nil
}
