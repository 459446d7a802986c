package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// Times that are waited: for the reply to a sound request; for one to what may be no whole request, before the client says that nothing more
// comes, and after that; for a reply that should not come.
const (
	soundTime   = 60 * time.Second
	unsureTime  = 300 * time.Millisecond
	endTime     = 10 * time.Second
	furtherTime = 20 * time.Millisecond
	mostReply   = 64 << 20
)

// send sends an attack over a connection of its own, and reads all replies. An error is one of the replies' form.
func send(address string, a *attack) (replies []reply, took time.Duration, err error) {
	begun := time.Now()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, 0, err
	}
	defer connection.Close()
	if a.vanishes {
		_, _ = connection.Write(a.bytes)
		time.Sleep(time.Duration(a.number%20) * time.Millisecond)
		_ = connection.(*net.TCPConn).SetLinger(0)
		return nil, 0, nil
	}
	written := make(chan struct{})
	go func() { // a service that refuses closes before it has read all
		_ = connection.SetWriteDeadline(time.Now().Add(soundTime))
		_, _ = connection.Write(a.bytes)
		close(written)
	}()
	replies, err = receive(connection, a)
	took = time.Since(begun)
	_ = connection.Close()
	<-written
	return replies, took, err
}

func receive(connection net.Conn, a *attack) (replies []reply, err error) {
	reader := bufio.NewReader(connection)
	patience := unsureTime
	if a.whole || a.marks != nil {
		patience = soundTime
	}
	for halved := false; ; {
		_ = connection.SetReadDeadline(time.Now().Add(patience))
		if _, err := reader.Peek(1); err != nil {
			timeout, isTimeout := err.(net.Error)
			isTimeout = isTimeout && timeout.Timeout()
			switch {
			case isTimeout && len(replies) == 0 && !halved && patience == unsureTime:
				_ = connection.(*net.TCPConn).CloseWrite()
				halved, patience = true, endTime
				continue
			case isTimeout && (a.whole || patience == endTime):
				return replies, fmt.Errorf("no end of the connection within %v", patience)
			}
			return replies, nil
		}
		_ = connection.SetReadDeadline(time.Now().Add(soundTime))
		one, err := readReply(reader, a.head)
		if err != nil {
			return replies, err
		}
		if one.status/100 != 1 {
			replies = append(replies, one)
			if patience = furtherTime; a.whole || len(replies) < len(a.marks) {
				patience = soundTime
			}
		}
	}
}

func readReply(reader *bufio.Reader, head bool) (made reply, err error) {
	request := &http.Request{Method: http.MethodGet}
	if head {
		request.Method = http.MethodHead
	}
	found, err := http.ReadResponse(reader, request)
	if err != nil {
		return made, fmt.Errorf("the reply is no HTTP: %w", err)
	}
	defer found.Body.Close()
	from := io.Reader(found.Body)
	if isEarly := found.Header.Get("X-Request-Id") == ""; head && isEarly { // of net/http, which has not understood the method
		from = reader
	}
	body, err := io.ReadAll(io.LimitReader(from, mostReply))
	if errors.Is(err, syscall.ECONNRESET) && found.ContentLength < 0 && len(found.TransferEncoding) == 0 {
		err = nil // its end is the connection's, which is cut where more was sent than is read
	}
	if err != nil {
		return made, fmt.Errorf("the reply's body breaks off after %d bytes: %w", len(body), err)
	}
	return reply{found.StatusCode, found.Header, body}, nil
}
