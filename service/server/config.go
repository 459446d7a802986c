// Package server is the service's HTTP: limits, keys, hosts, and the driver of dialects.
package server

import (
	"context"
	"encoding/json"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/inference"
	"tessera.dev/service/keys"
	"tessera.dev/service/metrics"
)

// Config is what a server serves, and its limits. Zero limits are the defaults.
type Config struct {
	Models   inference.Models
	Dialects []dialect.Dialect
	Keys     keys.Keys // nil: none
	Metrics  *metrics.Registry
	// Measure refreshes gauges before they are written; nil: none.
	Measure func(*metrics.Registry)
	// Plan is a model's serving plan, for /plan; nil: none.
	Plan func(ctx context.Context, model string) (json.RawMessage, error)
	// Trim gives free memory back to the system; it is called TrimTime after large bodies, by no request. nil: nothing does.
	Trim    func()
	Version map[string]string // of /version
	// Page is the document at "/", and PagePolicy its Content-Security-Policy; nil: none.
	Page       []byte
	PagePolicy string
	Log        func(level, message string, fields map[string]any)

	Hosts []string // names by which the service is called, besides addresses and localhost

	BodyBytes    int64         // of JSON; 8 MiB
	Depth        int           // of JSON; 64
	HeaderTime   time.Duration // 5 s
	IdleTime     time.Duration // 60 s
	WriteTime    time.Duration // for a piece; 30 s
	PingTime     time.Duration // 15 s
	TrimTime     time.Duration // from a large body to Trim, and between two of them; 10 s
	BytesASecond int64         // of bodies, at least; 1 KiB
	BufferBytes  int           // of a stream that is not written yet; 64 KiB
	Chunked      bool          // bodies with Transfer-Encoding are read
}

func (c *Config) fill() {
	defaults := func(value *time.Duration, otherwise time.Duration) {
		if *value == 0 {
			*value = otherwise
		}
	}
	defaults(&c.HeaderTime, 5*time.Second)
	defaults(&c.IdleTime, time.Minute)
	defaults(&c.WriteTime, 30*time.Second)
	defaults(&c.PingTime, 15*time.Second)
	defaults(&c.TrimTime, 10*time.Second)
	if c.BodyBytes == 0 {
		c.BodyBytes = 8 << 20
	}
	if c.Depth == 0 {
		c.Depth = 64
	}
	if c.BytesASecond == 0 {
		c.BytesASecond = 1 << 10
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = 64 << 10
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New("tessera")
	}
	if c.Keys == nil {
		c.Keys = &keys.Memory{}
	}
	if c.Log == nil {
		c.Log = func(string, string, map[string]any) {}
	}
}
