package tinker

import (
	"fmt"
	"math"

	"tessera.dev/service/inference"
)

// Bounds of a batch.
const (
	mostSequences = 1 << 16
	mostTargets   = 64 // of a token
)

func invalid(param, format string, arguments ...any) error {
	return &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: param, Message: param + ": " + fmt.Sprintf(format, arguments...)}
}

// lossInputs are the inputs of each loss, by their names on the wire; ? marks inputs that may be left out.
var lossInputs = map[string][]string{
	CrossEntropy:       {"target_tokens", "weights?"},
	ImportanceSampling: {"target_tokens", "logprobs", "advantages"},
	PPO:                {"target_tokens", "logprobs", "advantages"},
	CISPO:              {"target_tokens", "logprobs", "advantages"},
	DRO:                {"target_tokens", "logprobs", "advantages"},
	GSPO:               {"target_tokens", "logprobs", "sequence_ratio_mask", "advantages"},
}

// wantedLosses names them in errors.
const wantedLosses = "cross_entropy, importance_sampling, ppo, cispo, dro or gspo"

// refusedLosses are the losses of Tinker that are not here, and why.
var refusedLosses = map[string]string{
	"stable_reinforce": "it needs records of the sampler that this service does not keep",
	"custom":           "losses are not run here: forward_backward_custom of the SDK computes them on your side",
}

// NewPass checks a batch. targets is how many labels each token of each datum has; a datum of several is as many sequences.
func NewPass(data []Datum, loss Loss) (pass *Pass, targets []int, err error) {
	if why, known := refusedLosses[loss.Name]; known {
		return nil, nil, &inference.Error{Kind: inference.Invalid, Code: "unsupported_value", Param: "loss_fn",
			Message: fmt.Sprintf("the loss %q is not supported: %s; wanted %s", loss.Name, why, wantedLosses)}
	}
	inputs, known := lossInputs[loss.Name]
	if !known {
		return nil, nil, invalid("loss_fn", "found %q, wanted %s", short(loss.Name), wantedLosses)
	}
	if len(data) == 0 || len(data) > mostSequences {
		return nil, nil, invalid("data", "found %d sequences, wanted 1 to %d", len(data), mostSequences)
	}
	pass = &Pass{Loss: loss.Name, EpsLow: 0.2, EpsHigh: 0.2, Beta: 0.05}
	if pass.Loss == GSPO { // the ranges of its paper
		pass.EpsLow, pass.EpsHigh = 3e-4, 4e-4
	}
	if err := pass.configure(loss); err != nil {
		return nil, nil, err
	}
	for i := range data {
		count, err := pass.add(&data[i], inputs, fmt.Sprintf("data[%d]", i))
		if err != nil {
			return nil, nil, err
		}
		targets = append(targets, count)
	}
	return pass, targets, nil
}

// configure reads the ends of the ratio's range, and the factor of dro's penalty.
func (p *Pass) configure(loss Loss) error {
	clips := p.Clips()
	for key, value := range loss.Config {
		switch {
		case loss.Name == DRO && key == "beta" && value >= 0 && value <= 1e6:
			p.Beta = value
		case loss.Name == DRO && key == "beta":
			return invalid("loss_fn_config.beta", "found %v, wanted 0 to 1e6", value)
		case clips && key == "clip_low_threshold" && value >= 0 && value <= 1:
			p.EpsLow = 1 - value
		case clips && key == "clip_high_threshold" && value >= 1 && value < math.MaxFloat32:
			p.EpsHigh = value - 1
		case clips && (key == "clip_low_threshold" || key == "clip_high_threshold"):
			return invalid("loss_fn_config."+key, "found %v, wanted 0 to 1 for the low and 1 or more for the high threshold", value)
		default:
			return invalid("loss_fn_config."+short(key), "the loss %s has no such setting", loss.Name)
		}
	}
	return nil
}

// add adds a datum.
func (p *Pass) add(datum *Datum, inputs []string, where string) (targets int, err error) {
	count := len(datum.Tokens)
	if count == 0 {
		return 0, invalid(where+".model_input", "found no tokens, wanted at least one")
	}
	if ref, there := datum.Inputs["ref_logprobs"]; there && p.Loss == GSPO && datum.Inputs["logprobs"].Floats == nil {
		datum.Inputs["logprobs"] = ref // its other name
		delete(datum.Inputs, "ref_logprobs")
	}
	known := map[string]bool{}
	for _, name := range inputs {
		optional := name[len(name)-1] == '?'
		if optional {
			name = name[:len(name)-1]
		}
		known[name] = true
		if _, given := datum.Inputs[name]; !given && !optional {
			return 0, invalid(where+".loss_fn_inputs."+name, "is missing; the loss %s needs it", p.Loss)
		}
	}
	for name := range datum.Inputs {
		if !known[name] {
			return 0, invalid(where+".loss_fn_inputs."+short(name), "the loss %s has no such input", p.Loss)
		}
	}
	at := where + ".loss_fn_inputs."
	labels := datum.Inputs["target_tokens"]
	if labels.Integers == nil || len(labels.Integers)%count != 0 || len(labels.Integers) == 0 {
		return 0, invalid(at+"target_tokens", "found %d integers, wanted one for each of the %d tokens", len(labels.Integers), count)
	}
	targets = len(labels.Integers) / count
	if targets > 1 && (p.Loss != CrossEntropy || len(labels.Shape) != 2 || targets > mostTargets) {
		return 0, invalid(at+"target_tokens", "found %d for each token, wanted 1, or with cross_entropy and a shape of two dimensions up to %d", targets, mostTargets)
	}
	values, err := valuesOf(datum, len(labels.Integers), at)
	if err != nil {
		return 0, err
	}
	if mask := values["sequence_ratio_mask"]; p.Loss == GSPO {
		if values["weights"] = marked(mask); values["weights"] == nil {
			return 0, invalid(at+"sequence_ratio_mask", "found only zeros, wanted at least one token in the mean of the sequence's ratio")
		}
	}
	for column := 0; column < targets; column++ {
		made := Sequence{Tokens: datum.Tokens, Labels: make([]int32, count)}
		for i := range made.Labels {
			label := labels.Integers[i*targets+column]
			if label < 0 || label > math.MaxInt32 {
				return 0, invalid(at+"target_tokens", "found the token %d, wanted one of the vocabulary", label)
			}
			made.Labels[i] = int32(label)
		}
		made.Weights = columnOf(values["weights"], targets, column)
		made.Logprobs, made.Advantages = values["logprobs"], values["advantages"]
		p.Sequences = append(p.Sequences, made)
	}
	return targets, nil
}

// valuesOf returns the inputs of a datum other than its labels, one value for each label.
func valuesOf(datum *Datum, count int, at string) (map[string][]float32, error) {
	values := map[string][]float32{}
	for _, name := range []string{"weights", "logprobs", "advantages", "sequence_ratio_mask"} {
		given, there := datum.Inputs[name]
		if !there {
			continue
		}
		if given.Floats == nil && given.Integers != nil { // whole weights
			given.Floats = make([]float32, len(given.Integers))
			for i, one := range given.Integers {
				given.Floats[i] = float32(one)
			}
		}
		if len(given.Floats) != count {
			return nil, invalid(at+name, "found %d values, wanted as many as target_tokens, %d", len(given.Floats), count)
		}
		for i, one := range given.Floats {
			if math.IsNaN(float64(one)) || math.IsInf(float64(one), 0) {
				return nil, invalid(fmt.Sprintf("%s%s[%d]", at, name, i), "found %v, wanted a finite number", one)
			}
		}
		values[name] = given.Floats
	}
	return values, nil
}

// marked is 1 where the mask is not 0; nil where it is 0 everywhere.
func marked(mask []float32) (weights []float32) {
	found := false
	weights = make([]float32, len(mask))
	for i, one := range mask {
		if one != 0 {
			weights[i], found = 1, true
		}
	}
	if !found {
		return nil
	}
	return weights
}

func columnOf(values []float32, columns, column int) []float32 {
	if columns == 1 || values == nil {
		return values
	}
	made := make([]float32, 0, len(values)/columns)
	for i := column; i < len(values); i += columns {
		made = append(made, values[i])
	}
	return made
}

// computed returns the reply to a pass.
func (p *Pass) computed(loss float64, logprobs [][]float32, targets []int) *Computed {
	made := &Computed{Metrics: map[string]float64{"loss:sum": loss}}
	at := 0
	for _, columns := range targets {
		sequences := p.Sequences[at : at+columns]
		count := len(sequences[0].Tokens)
		shape := []int64{int64(count)}
		if columns > 1 {
			shape = []int64{int64(count), int64(columns)}
		}
		all := Tensor{Floats: make([]float32, count*columns), Shape: shape}
		losses := Tensor{Floats: make([]float32, count*columns), Shape: shape}
		for column := range sequences {
			for i := 0; i < count; i++ {
				value := logprobs[at+column][i]
				all.Floats[i*columns+column] = value
				weight := float32(1)
				if weights := sequences[column].Weights; weights != nil {
					weight = weights[i]
				}
				if weight != 0 {
					losses.Floats[i*columns+column] = -weight * value
				}
			}
		}
		fields := map[string]Tensor{"logprobs": all}
		if p.Loss == CrossEntropy {
			fields["elementwise_loss"] = losses
		}
		made.Fields = append(made.Fields, fields)
		at += columns
	}
	return made
}
