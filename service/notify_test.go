package main

import (
	"net"
	"path/filepath"
	"testing"
)

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	notify("READY=1")
	came := make([]byte, 32)
	if count, err := listener.Read(came); err != nil || string(came[:count]) != "READY=1" {
		t.Errorf("found %q, %v", came[:count], err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	notify("READY=1") // nobody to tell
}
