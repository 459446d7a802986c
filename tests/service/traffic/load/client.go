package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client sends one request after the other over one connection, and reads the stream of each.
type client struct {
	load       *load
	random     *rand.Rand
	connection net.Conn
	reader     *bufio.Reader
	counts     counts
}

// counts are what a client found.
type counts struct {
	requests, tokens, failed int64
	first, between           []time.Duration // from a request to its first event, and from each event to the next
	failures                 []error         // the first few
}

const mostFailures = 5

func (c *counts) fail(err error) {
	c.failed++
	if len(c.failures) < mostFailures {
		c.failures = append(c.failures, err)
	}
}

func (c *counts) add(other counts) {
	c.requests += other.requests
	c.tokens += other.tokens
	c.failed += other.failed
	c.first = append(c.first, other.first...)
	c.between = append(c.between, other.between...)
	if room := mostFailures - len(c.failures); room < len(other.failures) {
		other.failures = other.failures[:room]
	}
	c.failures = append(c.failures, other.failures...)
}

// body is a request for a text of a given length after random tokens.
func (c *client) body(tokens int) []byte {
	text := []byte(fmt.Sprintf(`{"model":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},"prompt":[`,
		c.load.model, tokens))
	for i := 0; i < c.load.prompt; i++ {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, c.random.Int63n(c.load.vocabulary), 10)
	}
	return append(text, "]}"...)
}

// send writes a request, over a new connection where there is none.
func (c *client) send(tokens int) error {
	if c.connection == nil {
		connection, err := net.Dial("tcp", c.load.address)
		if err != nil {
			return err
		}
		c.connection, c.reader = connection, bufio.NewReaderSize(connection, 16<<10)
	}
	body := c.body(tokens)
	head := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	if c.load.key != "" {
		head += "Authorization: Bearer " + c.load.key + "\r\n"
	}
	_, err := c.connection.Write(append([]byte(head+"\r\n"), body...))
	return err
}

func (c *client) close() {
	if c.connection != nil {
		_ = c.connection.Close()
		c.connection = nil
	}
}

// exchange is one request and its whole reply.
func (c *client) exchange(tokens int) {
	begun := time.Now()
	if err := c.send(tokens); err != nil {
		c.counts.fail(err)
		c.close()
		return
	}
	c.counts.requests++
	found, err := c.receive(begun)
	if err == nil && found != int64(tokens) {
		err = fmt.Errorf("found %d tokens in a reply, wanted %d", found, tokens)
	}
	c.counts.tokens += found
	if err != nil {
		c.counts.fail(err)
		c.close()
	}
}

var (
	data  = []byte("data: ")
	done  = []byte("[DONE]")
	usage = []byte(`"completion_tokens":`)
)

// receive reads the events of a reply, and returns the tokens that its usage tells.
func (c *client) receive(begun time.Time) (tokens int64, err error) {
	reply, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 1<<10))
		return 0, fmt.Errorf("found the status %s: %s", reply.Status, text)
	}
	last, events, ended := begun, 0, false
	for lines := bufio.NewReaderSize(reply.Body, 4<<10); ; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && ended {
			return tokens, nil
		}
		if err != nil {
			return tokens, fmt.Errorf("after %d events: %w", events, err)
		}
		if !bytes.HasPrefix(line, data) {
			continue
		}
		line = bytes.TrimRight(line[len(data):], "\n")
		if ended = bytes.Equal(line, done); ended {
			continue
		}
		if at := bytes.LastIndex(line, usage); at >= 0 {
			digits := line[at+len(usage):]
			if end := bytes.IndexAny(digits, ",}"); end >= 0 {
				digits = digits[:end]
			}
			if tokens, err = strconv.ParseInt(string(digits), 10, 64); err != nil {
				return 0, fmt.Errorf("found the usage %s: %w", line, err)
			}
			continue
		}
		now := time.Now()
		if events++; events == 1 {
			c.counts.first = append(c.counts.first, now.Sub(last))
		} else {
			c.counts.between = append(c.counts.between, now.Sub(last))
		}
		last = now
	}
}
