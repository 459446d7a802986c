// Package metrics counts, and writes what was counted in the text format of Prometheus.
package metrics

import (
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Registry holds families by name.
type Registry struct {
	prefix   string
	mutex    sync.Mutex
	families map[string]*family
	order    []string
}

// family is the samples of one name.
type family struct {
	kind, help string
	buckets    []float64
	samples    map[string]*sample // by labels as written
}

type sample struct {
	value  float64 // of a histogram: the sum
	count  uint64
	counts []uint64 // by bucket
}

// New makes a registry whose names begin with the prefix and a colon.
func New(prefix string) *Registry { return &Registry{prefix: prefix, families: map[string]*family{}} }

// Labels are pairs of names and values.
type Labels []string

func (l Labels) text() string {
	if len(l) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(l)/2)
	for i := 0; i+1 < len(l); i += 2 {
		pairs = append(pairs, l[i]+`="`+escape.Replace(l[i+1])+`"`)
	}
	return strings.Join(pairs, ",")
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (r *Registry) sample(kind, name, help string, buckets []float64, labels Labels) *sample {
	f := r.families[name]
	if f == nil {
		f = &family{kind: kind, help: help, buckets: buckets, samples: map[string]*sample{}}
		r.families[name] = f
		r.order = append(r.order, name)
	}
	key := labels.text()
	s := f.samples[key]
	if s == nil {
		s = &sample{counts: make([]uint64, len(f.buckets))}
		f.samples[key] = s
	}
	return s
}

// Add adds to a counter.
func (r *Registry) Add(name, help string, value float64, labels ...string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sample("counter", name, help, nil, labels).value += value
}

// Set sets a gauge.
func (r *Registry) Set(name, help string, value float64, labels ...string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sample("gauge", name, help, nil, labels).value = value
}

// SetCounter sets a counter that something else counts.
func (r *Registry) SetCounter(name, help string, value float64, labels ...string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sample("counter", name, help, nil, labels).value = value
}

// Seconds, Tokens and Delays (in seconds, of the service's own work) are bounds of buckets.
var (
	Seconds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	Tokens  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
	Delays  = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5}
)

// Observe counts a value in a histogram.
func (r *Registry) Observe(name, help string, buckets []float64, value float64, labels ...string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	s := r.sample("histogram", name, help, buckets, labels)
	s.value += value
	s.count++
	for i, bound := range buckets {
		if value <= bound {
			s.counts[i]++
		}
	}
}

// Write writes all families, in the order of their first samples.
func (r *Registry) Write(out io.Writer) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var text strings.Builder
	for _, name := range r.order {
		r.families[name].write(&text, r.prefix+":"+name)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (f *family) write(text *strings.Builder, name string) {
	fmt.Fprintf(text, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
	keys := make([]string, 0, len(f.samples))
	for key := range f.samples {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		s := f.samples[key]
		if f.kind != "histogram" {
			fmt.Fprintf(text, "%s%s %s\n", name, braced(key), number(s.value))
			continue
		}
		for i, bound := range f.buckets {
			fmt.Fprintf(text, "%s_bucket%s %d\n", name, braced(with(key, number(bound))), s.counts[i])
		}
		fmt.Fprintf(text, "%s_bucket%s %d\n%s_sum%s %s\n%s_count%s %d\n", name, braced(with(key, "+Inf")), s.count,
			name, braced(key), number(s.value), name, braced(key), s.count)
	}
}

func with(key, bound string) string {
	if key == "" {
		return `le="` + bound + `"`
	}
	return key + `,le="` + bound + `"`
}

func braced(key string) string {
	if key == "" {
		return ""
	}
	return "{" + key + "}"
}

func number(value float64) string {
	if math.IsInf(value, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
