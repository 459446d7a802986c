package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tessera.dev/traffic/observe"
)

// others are the sound clients, which ask for one text after the other and count what comes.
type others struct {
	address, model string
	events         atomic.Int64
	failures       atomic.Int64
	stop           chan struct{}
	running        sync.WaitGroup
	mutex          sync.Mutex
	failure        error
}

func startOthers(address, model string, count int) *others {
	o := &others{address: address, model: model, stop: make(chan struct{})}
	for i := 0; i < count; i++ {
		o.running.Add(1)
		go func() {
			defer o.running.Done()
			for !o.stopped() {
				if err := o.connect(); err != nil && !o.stopped() {
					o.failures.Add(1)
					o.mutex.Lock()
					o.failure = err
					o.mutex.Unlock()
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
	}
	return o
}

func (o *others) stopped() bool {
	select {
	case <-o.stop:
		return true
	default:
		return false
	}
}

// connect asks over one connection until it is stopped or fails.
func (o *others) connect() error {
	connection, err := net.Dial("tcp", o.address)
	if err != nil {
		return err
	}
	defer connection.Close()
	body := fmt.Sprintf(`{"model":%q,"prompt":"Once upon a time","max_tokens":64,"logprobs":0,"ignore_eos":true,"stream":true}`, o.model)
	asked, reader := post("/v1/completions", "application/json", []byte(body)), bufio.NewReader(connection)
	for !o.stopped() {
		if _, err := connection.Write(asked); err != nil {
			return err
		}
		reply, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		if reply.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(reply.Body)
			return fmt.Errorf("found the status %s: %s", reply.Status, text)
		}
		lines, done := bufio.NewScanner(reply.Body), false
		for lines.Scan() {
			if bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
				o.events.Add(1)
				done = bytes.HasSuffix(lines.Bytes(), []byte("[DONE]"))
			}
		}
		if err := lines.Err(); err != nil || !done {
			return fmt.Errorf("a text of a sound client broke off: %v", err)
		}
	}
	return nil
}

// pace is events a second, and a CPU second of the service, which another load on the machine changes less.
type pace struct{ second, cpu float64 }

// pace counts from now on until something has ended.
func (o *others) pace(process observe.Process, until func()) (pace, error) {
	begun, before := time.Now(), o.events.Load()
	used, err := process.CPU()
	if err != nil {
		return pace{}, err
	}
	until()
	events, took := float64(o.events.Load()-before), time.Since(begun)
	now, err := process.CPU()
	return pace{events / took.Seconds(), events / (now - used).Seconds()}, err
}

func (o *others) end() {
	close(o.stop)
	o.running.Wait()
}
