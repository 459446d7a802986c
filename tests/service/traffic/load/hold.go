package main

import (
	"fmt"
	"io"
	"time"

	"tessera.dev/traffic/observe"
)

// streams is the memory of streams that are open at once.
type streams struct {
	Streams  int     `json:"streams"`
	Before   int64   `json:"anonymous_bytes_before"`
	Open     int64   `json:"anonymous_bytes_open"`
	After    int64   `json:"anonymous_bytes_after"` // a while after their end
	EachByte float64 `json:"bytes_per_stream"`
}

// settleTime is what Go's collector needs to give memory back.
const settleTime = 5 * time.Second

// measureStreams opens all streams, waits until the service has them, and closes them.
func (l *load) measureStreams() (printed, error) {
	warm := l.newClients(l.clients)
	if err := l.warmUp(warm, l.tokens); err != nil {
		return nil, err
	}
	for _, c := range warm {
		c.close()
	}
	time.Sleep(settleTime)
	before, err := l.process.Memory()
	if err != nil {
		return nil, err
	}
	clients := l.newClients(l.hold)
	for _, c := range clients {
		if err := c.send(l.tokens); err != nil {
			return nil, err
		}
	}
	if err := l.waitForRequests(func(count int) bool { return count >= l.hold }); err != nil {
		return nil, err
	}
	open, err := l.process.Memory()
	if err != nil {
		return nil, err
	}
	for _, c := range clients {
		c.close()
	}
	if err := l.waitForRequests(func(count int) bool { return count == 0 }); err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	after, err := l.process.Memory()
	if err != nil {
		return nil, err
	}
	return &streams{l.hold, before.Anonymous, open.Anonymous, after.Anonymous, float64(open.Anonymous-before.Anonymous) / float64(l.hold)}, nil
}

// waitForRequests waits for a number of requests in the engine, running and waiting.
func (l *load) waitForRequests(is func(count int) bool) error {
	count, most := 0, 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		metrics, err := observe.ReadMetrics(l.address, l.key)
		if err != nil {
			return err
		}
		if count = int(metrics["num_requests_running"] + metrics["num_requests_waiting"]); is(count) {
			return nil
		}
		if count > most {
			most = count
		}
	}
	return fmt.Errorf("found at most %d requests in the engine, and %d after a minute, wanted %d open and then 0: longer texts (--new) stay open",
		most, count, l.hold)
}

func (s *streams) print(out io.Writer) {
	const mebibyte = 1 << 20
	fmt.Fprintf(out, "%d streams   %.1f MiB anonymous before, %.1f open, %.1f after: %.1f KiB a stream\n", s.Streams, float64(s.Before)/mebibyte,
		float64(s.Open)/mebibyte, float64(s.After)/mebibyte, s.EachByte/(1<<10))
}
