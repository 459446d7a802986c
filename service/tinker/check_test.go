package tinker_test

import (
	"math"
	"strings"
	"testing"

	"tessera.dev/service/tinker"
)

// drawn is a datum with log probabilities, advantages and, for gspo, a mask of its last two tokens.
func drawn(loss, logprobs string) tinker.Datum {
	inputs := map[string]tinker.Tensor{"target_tokens": {Integers: []int64{2, 3, 4}}, logprobs: {Floats: []float32{-1, -2, -3}},
		"advantages": {Floats: []float32{1, -2, 0.5}}}
	if loss == tinker.GSPO {
		inputs["sequence_ratio_mask"] = tinker.Tensor{Integers: []int64{0, 1, 5}}
	}
	return tinker.Datum{Tokens: []int32{1, 2, 3}, Inputs: inputs}
}

func TestDroAndGspoAreTheirFormulas(t *testing.T) {
	found := [][]float32{{-1.5, -2.5, -2}}
	pass, _, err := tinker.NewPass([]tinker.Datum{drawn(tinker.DRO, "logprobs")}, tinker.Loss{Name: tinker.DRO, Config: map[string]float64{"beta": 0.4}})
	if err != nil {
		t.Fatal(err)
	}
	wanted := 0.2*(0.25+0.25+1) - (-1.5 + 5 - 1)
	if value := pass.Value(found); math.Abs(value-wanted) > 1e-12 {
		t.Fatalf("dro is %v, wanted %v", value, wanted)
	}
	for _, name := range []string{"logprobs", "ref_logprobs"} {
		pass, _, err = tinker.NewPass([]tinker.Datum{drawn(tinker.GSPO, name)}, tinker.Loss{Name: tinker.GSPO, Config: map[string]float64{"clip_high_threshold": 1.1}})
		if err != nil {
			t.Fatal(err)
		}
		ratio := math.Exp((-0.5 + 1) / 2) // of the tokens in the mask
		wanted = -(1.1*1 - ratio*2 + 1.1*0.5)
		if value := pass.Value(found); math.Abs(value-wanted) > 1e-12 || pass.EpsLow != 3e-4 {
			t.Fatalf("gspo is %v, wanted %v", value, wanted)
		}
	}
}

func TestWrongInputsOfDroAndGspoAreRefused(t *testing.T) {
	unmarked, unweighed := drawn(tinker.GSPO, "logprobs"), drawn(tinker.PPO, "logprobs")
	unmarked.Inputs["sequence_ratio_mask"] = tinker.Tensor{Floats: []float32{0, 0, 0}}
	for wanted, one := range map[string]struct {
		datum  tinker.Datum
		loss   string
		config map[string]float64
	}{
		"found only zeros":                       {unmarked, tinker.GSPO, nil},
		"sequence_ratio_mask: is missing":        {unweighed, tinker.GSPO, nil},
		"beta: found -1, wanted 0 to":            {drawn(tinker.DRO, "logprobs"), tinker.DRO, map[string]float64{"beta": -1}},
		"clip_low_threshold: the loss dro":       {drawn(tinker.DRO, "logprobs"), tinker.DRO, map[string]float64{"clip_low_threshold": 0.8}},
		"beta: the loss gspo has no such":        {drawn(tinker.GSPO, "logprobs"), tinker.GSPO, map[string]float64{"beta": 1}},
		"clip_high_threshold: found 0.5, wanted": {drawn(tinker.GSPO, "logprobs"), tinker.GSPO, map[string]float64{"clip_high_threshold": 0.5}},
		"logprobs: is missing; the loss dro":     {drawn(tinker.DRO, "ref_logprobs"), tinker.DRO, nil},
	} {
		_, _, err := tinker.NewPass([]tinker.Datum{one.datum}, tinker.Loss{Name: one.loss, Config: one.config})
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("found %v, wanted %q", err, wanted)
		}
	}
}
