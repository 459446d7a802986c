package tinker

import "math"

// Value is the loss of a forward pass: a sum.
func (p *Pass) Value(logprobs [][]float32) (sum float64) {
	for i := range p.Sequences {
		one := &p.Sequences[i]
		for t, value := range logprobs[i] {
			sum += p.valueAt(one, t, float64(value))
		}
	}
	return sum
}

func (p *Pass) valueAt(one *Sequence, t int, logprob float64) float64 {
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
	ratio, advantage := math.Exp(logprob-float64(one.Logprobs[t])), float64(one.Advantages[t])
	clipped := math.Min(math.Max(ratio, 1-p.EpsLow), 1+p.EpsHigh)
	switch p.Loss {
	case PPO:
		return -math.Min(ratio*advantage, clipped*advantage)
	case CISPO:
		return -clipped * advantage * logprob
	}
	return -ratio * advantage
}
