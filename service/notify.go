package main

import (
	"net"
	"os"
)

// notify tells systemd what the service is at, where systemd began it: "READY=1", "STOPPING=1".
func notify(state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	connection, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer connection.Close()
	_, _ = connection.Write([]byte(state))
}
