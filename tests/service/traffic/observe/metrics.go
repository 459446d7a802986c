package observe

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net/http"
	"sort"
	"strconv"
	"strings"
)

// Metrics are samples by name, without prefix and labels; those of all models are added up. A bucket's name ends with its bound in
// braces.
type Metrics map[string]float64

// ReadMetrics asks a service at an address for its metrics.
func ReadMetrics(address, key string) (Metrics, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: found the status %s, wanted 200", reply.Status)
	}
	return parseMetrics(reply.Body)
}

func parseMetrics(text io.Reader) (Metrics, error) {
	found := Metrics{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: found %q, wanted a name and a number", line)
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		if _, bare, prefixed := strings.Cut(name, ":"); prefixed {
			name = bare
		}
		if _, bound, bucket := strings.Cut(labels, `le="`); bucket {
			name += "{" + strings.TrimRight(bound, `"}`) + "}"
		}
		found[name] += value
	}
	return found, lines.Err()
}

// Since are the samples less those of an earlier time.
func (m Metrics) Since(before Metrics) Metrics {
	made := Metrics{}
	for name, value := range m {
		made[name] = value - before[name]
	}
	return made
}

// Percentile is the bound of the bucket of a histogram below which a share of its values are: at most so much. NaN without values.
func (m Metrics) Percentile(name string, share float64) float64 {
	type bucket struct{ bound, count float64 }
	var buckets []bucket
	for sample, count := range m {
		if rest := strings.TrimPrefix(sample, name+"_bucket{"); rest != sample {
			bound, err := strconv.ParseFloat(strings.TrimSuffix(rest, "}"), 64)
			if err != nil {
				return math.NaN()
			}
			buckets = append(buckets, bucket{bound, count})
		}
	}
	sort.Slice(buckets, func(i, j int) bool { return buckets[i].bound < buckets[j].bound })
	all := m[name+"_count"]
	for _, each := range buckets {
		if all > 0 && each.count >= share*all {
			return each.bound
		}
	}
	return math.NaN()
}
