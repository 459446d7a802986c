package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// mostStream is the memory of an open stream. The collector lets what is on the heap double, and the engine adds its own: 64 KiB in all.
const mostStream = 36 << 10

func TestMemoryOfStreams(t *testing.T) {
	const count = 400
	models := &fakeModels{words: 1 << 30, word: "x", pause: time.Hour}
	_, address := start(t, models, func(c *Config) { c.HeaderTime, c.PingTime = time.Minute, time.Hour })
	used := func() uint64 {
		var found runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&found)
		return found.HeapAlloc + found.StackInuse
	}
	before := used()
	for i := 0; i < count; i++ {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		_, _ = io.WriteString(connection, post("/texts", streamed))
	}
	eventually(t, fmt.Sprintf("%d of %d are open", models.opened.Load(), count), func() bool { return models.opened.Load() == count })
	time.Sleep(50 * time.Millisecond)
	if each := (used() - before) / count; each > mostStream {
		t.Errorf("found %d bytes a stream, wanted at most %d", each, mostStream)
	} else {
		t.Logf("%d bytes a stream", each)
	}
}

// Memory is given back once after large bodies, and not after small ones.
func TestTrim(t *testing.T) {
	const trimTime = time.Second
	var trims atomic.Int64
	_, address := start(t, &fakeModels{}, func(c *Config) {
		c.BodyBytes, c.TrimTime, c.Trim = 4<<20, trimTime, func() { trims.Add(1) }
	})
	talk(t, address, post("/texts", whole), 100*time.Millisecond)
	time.Sleep(trimTime + 200*time.Millisecond)
	if found := trims.Load(); found != 0 {
		t.Errorf("found %d trims after a small body, wanted none", found)
	}
	for i := 0; i < 3; i++ {
		talk(t, address, post("/texts", strings.Repeat(" ", largeBody)+whole), 100*time.Millisecond)
	}
	eventually(t, "not trimmed", func() bool { return trims.Load() > 0 })
	if found := trims.Load(); found != 1 {
		t.Errorf("found %d trims after three large bodies, wanted 1", found)
	}
}
