package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
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
