package metrics

import (
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	r := New("vllm")
	r.Add("a_total", "Help.", 2, "model_name", "x\"\\\n")
	r.Add("a_total", "Help.", 1, "model_name", "x\"\\\n")
	r.Set("g", "Gauge.", 0.5)
	r.Observe("h", "Histogram.", []float64{1, 2}, 1.5, "k", "v")
	r.Observe("h", "Histogram.", []float64{1, 2}, 3, "k", "v")
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	const wanted = `# HELP vllm:a_total Help.
# TYPE vllm:a_total counter
vllm:a_total{model_name="x\"\\\n"} 3
# HELP vllm:g Gauge.
# TYPE vllm:g gauge
vllm:g 0.5
# HELP vllm:h Histogram.
# TYPE vllm:h histogram
vllm:h_bucket{k="v",le="1"} 0
vllm:h_bucket{k="v",le="2"} 1
vllm:h_bucket{k="v",le="+Inf"} 2
vllm:h_sum{k="v"} 4.5
vllm:h_count{k="v"} 2
`
	if text.String() != wanted {
		t.Errorf("found\n%s", text.String())
	}
}
