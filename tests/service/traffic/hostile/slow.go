package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// headerTime is what the service gives a header, and a body before its least speed counts.
const headerTime = 5 * time.Second

// slowClient sends too slowly, in one of four ways, and returns what was wrong with the service's patience: it closes in time.
func slowClient(address string, number int) string {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	first, each := "", ""
	switch number % 4 {
	case 0: // nothing at all
	case 1:
		first, each = "GET /health HTTP/1.1\r\nX-", "y"
	case 2:
		first, each = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n", " "
	case 3:
		first, each = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 400000\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n", "yyyyyyyyyy"
	}
	_, _ = io.WriteString(connection, first)
	begun, ended := time.Now(), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, connection)
		close(ended)
	}()
	for limit := 3 * headerTime; time.Since(begun) < limit; {
		select {
		case <-ended:
			return ""
		case <-time.After(time.Second):
			_, _ = io.WriteString(connection, each)
		}
	}
	return fmt.Sprintf("a slow client of kind %d still had its connection after %v", number%4, 3*headerTime)
}

// unreadClient asks for much, and reads nothing until it is told to leave.
func unreadClient(address, model string, number int, leave <-chan struct{}) string {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(descriptor uintptr) {
			_ = syscall.SetsockoptInt(int(descriptor), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	connection, err := dialer.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	var asked []byte
	if number%4 == 0 {
		asked = post("/v1/completions", "application/json",
			[]byte(fmt.Sprintf(`{"model":%q,"prompt":"Once","max_tokens":480,"logprobs":5,"ignore_eos":true,"stream":true}`, model)))
	} else {
		for i := 0; i < 50; i++ {
			asked = append(asked, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
		}
	}
	_, _ = connection.Write(asked)
	<-leave
	return ""
}

// atOnce runs clients, a few milliseconds after one another, and collects their complaints.
func atOnce(count int, client func(number int) string) (complaints []string) {
	var running sync.WaitGroup
	var mutex sync.Mutex
	for i := 0; i < count; i++ {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			if said := client(i); said != "" {
				mutex.Lock()
				complaints = append(complaints, said)
				mutex.Unlock()
			}
		}(i)
		time.Sleep(time.Millisecond)
	}
	running.Wait()
	return complaints
}
