package main

import (
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"tessera.dev/traffic/observe"
)

// printed is a result.
type printed interface{ print(out io.Writer) }

// percentiles are in milliseconds, of values that were sorted.
type percentiles struct {
	Median float64 `json:"p50"`
	Last   float64 `json:"p99"`
}

func percentilesOf(times []time.Duration) percentiles {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(share float64) float64 {
		if len(times) == 0 {
			return 0
		}
		rank := int(math.Ceil(share * float64(len(times))))
		return times[rank-1].Seconds() * 1e3
	}
	return percentiles{at(0.5), at(0.99)}
}

// delays are those of the service, by the stamps in it: the bounds of buckets, in milliseconds; 0 where nothing was counted.
func delays(of observe.Metrics, name string) percentiles {
	at := func(share float64) float64 {
		if bound := 1e3 * of.Percentile(name, share); bound < 1e9 {
			return bound
		}
		return 0
	}
	return percentiles{at(0.5), at(0.99)}
}

// result is a load's.
type result struct {
	Clients         int         `json:"clients"`
	Requests        int64       `json:"requests"`
	Errors          int64       `json:"errors"`
	Tokens          int64       `json:"tokens"`
	Seconds         float64     `json:"seconds"`
	TokensPerSecond float64     `json:"tokens_per_second"`
	ServerCPU       float64     `json:"server_cpu_seconds_per_token"`
	GeneratorCPU    float64     `json:"generator_cpu_seconds_per_token"`
	GeneratorCores  float64     `json:"generator_cores"` // CPU seconds a second
	ServerCores     float64     `json:"server_cores"`
	First           percentiles `json:"first_event_milliseconds"`
	Between         percentiles `json:"between_events_milliseconds"`
	Submit          percentiles `json:"service_submit_milliseconds"`
	Write           percentiles `json:"service_write_milliseconds"`
	FirstDelay      percentiles `json:"service_first_token_milliseconds"`
	Resident        int64       `json:"server_resident_bytes"`
	Anonymous       int64       `json:"server_anonymous_bytes"`
}

// moment is what both processes have taken so far.
type moment struct {
	at                time.Time
	server, generator time.Duration
	metrics           observe.Metrics
}

func (l *load) moment() (m moment, err error) {
	if m.metrics, err = observe.ReadMetrics(l.address, l.key); err != nil {
		return m, err
	}
	if m.server, err = l.process.CPU(); err != nil {
		return m, err
	}
	m.generator, err = observe.Self().CPU()
	m.at = time.Now()
	return m, err
}

// warmUp loads the model and fills what the engine fills once: a text of each client.
func (l *load) warmUp(clients []*client, tokens int) error {
	l.each(clients, func(c *client) { c.exchange(tokens) })
	for _, c := range clients {
		if c.counts.failed > 0 {
			return fmt.Errorf("the first request failed: %w", c.counts.failures[0])
		}
		c.counts = counts{}
	}
	return nil
}

func (l *load) each(clients []*client, act func(c *client)) {
	var running sync.WaitGroup
	for _, c := range clients {
		running.Add(1)
		go func(c *client) {
			defer running.Done()
			act(c)
		}(c)
	}
	running.Wait()
}

func (l *load) newClients(count int) []*client {
	made := make([]*client, count)
	for i := range made {
		made[i] = &client{load: l, random: rand.New(rand.NewSource(int64(i) + 1))}
	}
	return made
}

// measure is the whole load.
func (l *load) measure() (printed, error) {
	clients := l.newClients(l.clients)
	if err := l.warmUp(clients, min(l.tokens, 4)); err != nil {
		return nil, err
	}
	before, err := l.moment()
	if err != nil {
		return nil, err
	}
	var begun atomic.Int64
	goesOn := func() bool {
		if l.requests > 0 {
			return begun.Add(1) <= l.requests
		}
		return time.Since(before.at) < l.duration
	}
	l.each(clients, func(c *client) {
		for failed := int64(0); goesOn(); {
			c.exchange(l.tokens)
			if c.counts.failed > failed { // the service is gone, or refuses
				failed = c.counts.failed
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	after, err := l.moment()
	if err != nil {
		return nil, err
	}
	memory, err := l.process.Memory()
	if err != nil {
		return nil, err
	}
	var all counts
	for _, c := range clients {
		all.add(c.counts)
		c.close()
	}
	for _, failure := range all.failures {
		fmt.Fprintln(os.Stderr, "load: a request failed:", failure)
	}
	return l.result(before, after, all, memory), nil
}

func (l *load) result(before, after moment, all counts, memory observe.Memory) *result {
	seconds, tokens := after.at.Sub(before.at).Seconds(), math.Max(float64(all.tokens), 1)
	server, generator := (after.server - before.server).Seconds(), (after.generator - before.generator).Seconds()
	metrics := after.metrics.Since(before.metrics)
	return &result{Clients: l.clients, Requests: all.requests, Errors: all.failed, Tokens: all.tokens, Seconds: seconds,
		TokensPerSecond: float64(all.tokens) / seconds, ServerCPU: server / tokens, GeneratorCPU: generator / tokens,
		GeneratorCores: generator / seconds, ServerCores: server / seconds, First: percentilesOf(all.first), Between: percentilesOf(all.between),
		Submit: delays(metrics, "request_submit_time_seconds"), Write: delays(metrics, "event_write_time_seconds"),
		FirstDelay: delays(metrics, "first_token_delay_seconds"), Resident: memory.Resident, Anonymous: memory.Anonymous}
}

func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "%d clients   %d requests, %d tokens in %.1f s: %.1f tokens/s; %d errors\n", r.Clients, r.Requests, r.Tokens, r.Seconds,
		r.TokensPerSecond, r.Errors)
	fmt.Fprintf(out, "CPU          %.3f ms a token in the service, %.3f in the generator (%.3f of a core)\n", 1e3*r.ServerCPU, 1e3*r.GeneratorCPU,
		r.GeneratorCores)
	for _, each := range []struct {
		name, what string
		times      percentiles
	}{
		{"first event", "at the client", r.First}, {"between", "at the client", r.Between},
		{"submit", "last byte read to the engine, at most", r.Submit}, {"write", "event to its write, at most", r.Write},
		{"first delay", "first token in the engine to its write, at most", r.FirstDelay},
	} {
		fmt.Fprintf(out, "%-12s %.3f ms p50, %.3f ms p99 (%s)\n", each.name, each.times.Median, each.times.Last, each.what)
	}
	fmt.Fprintf(out, "memory       %.1f MiB, %.1f MiB of it anonymous\n", float64(r.Resident)/(1<<20), float64(r.Anonymous)/(1<<20))
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
