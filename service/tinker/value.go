package tinker

import "math"

// Value is the loss of a forward pass: a sum.
func (p *Pass) Value(logprobs [][]float32) (sum float64) {
	for i := range p.Sequences {
		one := &p.Sequences[i]
		mean := 0.0
		if p.Loss == GSPO {
			mean = one.meanLogRatio(logprobs[i])
		}
		for t, value := range logprobs[i] {
			sum += p.valueAt(one, t, float64(value), mean)
		}
	}
	return sum
}

// meanLogRatio is the log of the sequence's ratio: the mean over the tokens that its weights mark.
func (s *Sequence) meanLogRatio(logprobs []float32) float64 {
	sum, count := 0.0, 0.0
	for t, value := range logprobs {
		sum += float64(s.Weights[t]) * (float64(value) - float64(s.Logprobs[t]))
		count += float64(s.Weights[t])
	}
	return sum / count
}

func (p *Pass) valueAt(one *Sequence, t int, logprob, mean float64) float64 {
	if p.Loss == CrossEntropy {
		weight := 1.0
		if one.Weights != nil {
			weight = float64(one.Weights[t])
		}
		if weight == 0 {
			return 0
		}
		return -weight * logprob
	}
	difference, advantage := logprob-float64(one.Logprobs[t]), float64(one.Advantages[t])
	if p.Loss == DRO {
		return p.Beta/2*difference*difference - advantage*logprob
	}
	if p.Loss == GSPO {
		difference = mean
	}
	ratio := math.Exp(difference)
	clipped := math.Min(math.Max(ratio, 1-p.EpsLow), 1+p.EpsHigh)
	switch p.Loss {
	case PPO, GSPO:
		return -math.Min(ratio*advantage, clipped*advantage)
	case CISPO:
		return -clipped * advantage * logprob
	}
	return -ratio * advantage
}
