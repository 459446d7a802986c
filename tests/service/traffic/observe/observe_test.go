package observe

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestMetrics(t *testing.T) {
	read := func(text string) Metrics {
		found, err := parseMetrics(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := read("# HELP vllm:h Help.\nvllm:h_bucket{model_name=\"a b\",le=\"0.5\"} 1\nvllm:h_bucket{model_name=\"a b\",le=\"+Inf\"} 1\nvllm:h_count{model_name=\"a b\"} 1\n")
	after := read("vllm:h_bucket{le=\"0.5\"} 3\nvllm:h_bucket{le=\"2\"} 9\nvllm:h_bucket{le=\"+Inf\"} 11\nvllm:h_count 11\nvllm:g{x=\"1\"} 2\nvllm:g{x=\"2\"} 3\n")
	since := after.Since(before)
	for _, each := range []struct{ found, wanted float64 }{
		{since.Percentile("h", 0.2), 0.5}, {since.Percentile("h", 0.5), 2}, {since.Percentile("h", 1), math.Inf(1)}, {after["g"], 5},
	} {
		if each.found != each.wanted {
			t.Errorf("found %v, wanted %v in %v", each.found, each.wanted, since)
		}
	}
	if !math.IsNaN(since.Percentile("none", 0.5)) {
		t.Error("a histogram without values has a percentile")
	}
	if _, err := parseMetrics(strings.NewReader("x y\n")); err == nil {
		t.Error("no number is read as one")
	}
}

func TestProcess(t *testing.T) {
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if took, err := Self().CPU(); err != nil || took <= 0 || took > time.Hour {
		t.Errorf("found %v, %v", took, err)
	}
	if memory, err := Self().Memory(); err != nil || memory.Anonymous <= 0 || memory.Resident < memory.Anonymous {
		t.Errorf("found %v, %v", memory, err)
	}
	if _, err := Process(1 << 30).Memory(); err == nil {
		t.Error("a process that is none has memory")
	}
}
