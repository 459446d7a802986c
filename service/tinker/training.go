package tinker

import "context"

// Compute is a forward pass, with a backward one or without. failure is what is wrong with the batch already.
func (s *Service) Compute(ctx context.Context, tenant, id string, given Numbered, data []Datum, loss Loss, backward bool, failure error) (*Future, error) {
	var pass *Pass
	var targets []int
	if failure == nil {
		pass, targets, failure = NewPass(data, loss)
	}
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (result any, err error) {
		err = s.residence.enter(ctx, one, func(trainer Trainer) error {
			var value float64
			var logprobs [][]float32
			if backward {
				value, logprobs, err = trainer.ForwardBackward(ctx, pass)
			} else if logprobs, err = trainer.Forward(ctx, pass); err == nil {
				value = pass.Value(logprobs)
			}
			if err == nil {
				result = pass.computed(value, logprobs, targets)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		s.count(one.Tenant, one.Session, one.Base, TrainingTokens, pass.Tokens())
		return result, nil
	})
}

// Step submits an optimizer step.
func (s *Service) Step(ctx context.Context, tenant, id string, given Numbered, update Update, failure error) (*Future, error) {
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (any, error) {
		made := &Stepped{}
		err := s.residence.enter(ctx, one, func(trainer Trainer) (err error) {
			made.Metrics, err = trainer.Step(ctx, update)
			return err
		})
		if err != nil {
			return nil, err
		}
		return made, nil
	})
}

// Load begins a run that has computed nothing yet with a checkpoint.
func (s *Service) Load(ctx context.Context, tenant, id string, given Numbered, origin Origin, failure error) (*Future, error) {
	var from Checkpoint
	if failure == nil {
		from, failure = s.checkpointAt(ctx, tenant, origin.Checkpoint, Weights)
	}
	return s.submit(ctx, tenant, id, given, failure, func(ctx context.Context, one *run) (any, error) {
		if err := one.begins(&from, origin); err != nil {
			return nil, err
		}
		if err := s.residence.enter(ctx, one, func(Trainer) error { return nil }); err != nil {
			return nil, err
		}
		return &Loaded{one.ID, origin.Checkpoint}, nil
	})
}

// begins sets what a run begins with.
func (one *run) begins(from *Checkpoint, origin Origin) error {
	one.working.Lock()
	defer one.working.Unlock()
	switch {
	case one.Dirty:
		return invalid("path", "the training has begun: a checkpoint is loaded as its first request, or by load_weights with session_id, which creates a training")
	case from.Base != one.Base:
		return invalid("path", "the checkpoint is of %q, and the training of %q", from.Base, one.Base)
	case from.Adapters.Rank != one.Adapters.Rank:
		return invalid("path", "the checkpoint has adapters of rank %d, and the training of rank %d", from.Adapters.Rank, one.Adapters.Rank)
	}
	one.Adapters, one.Origin = from.Adapters, &origin
	return nil
}
