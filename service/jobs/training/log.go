package training

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"

	"tessera.dev/service/tuning"
)

// readLog reads the steps of a run's log, which a resumed run has cut behind its checkpoint.
func readLog(path string) ([]tuning.Measures, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var steps []tuning.Measures
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var line struct {
			Kind      string
			Step      int64
			Loss      *float64
			Reward    *float64 `json:"reward_accuracy"`
			ValidLoss *float64 `json:"eval_loss"`
			Accuracy  *float64
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // a line that a kill cut off
		}
		switch line.Kind {
		case "step":
			steps = append(steps, tuning.Measures{Step: line.Step, Loss: orNaN(line.Loss), Accuracy: orNaN(line.Reward),
				ValidLoss: math.NaN(), ValidAccuracy: math.NaN()})
		case "evaluation":
			if last := len(steps) - 1; last >= 0 && steps[last].Step == line.Step {
				steps[last].ValidLoss, steps[last].ValidAccuracy = orNaN(line.ValidLoss), orNaN(line.Accuracy)
			}
		}
	}
	return steps, lines.Err()
}

func orNaN(value *float64) float64 {
	if value == nil {
		return math.NaN()
	}
	return *value
}
