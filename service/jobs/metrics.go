package jobs

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"tessera.dev/service/tuning"
)

// writeMetrics writes OpenAI's table of a result: a line a step, empty where a number is unknown.
func writeMetrics(out io.Writer, steps []tuning.Measures) error {
	var table strings.Builder
	table.WriteString("step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy\n")
	for _, each := range steps {
		fmt.Fprintf(&table, "%d,%s,%s,%s,%s\n", each.Step, number(each.Loss), number(each.Accuracy), number(each.ValidLoss),
			number(each.ValidAccuracy))
	}
	_, err := io.WriteString(out, table.String())
	return err
}

func number(value float64) string {
	if math.IsNaN(value) {
		return ""
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
