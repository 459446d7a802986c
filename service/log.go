package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"
)

// log writes a line of JSON, or of words, for each record.
type log struct {
	mutex sync.Mutex
	out   io.Writer
	least int
	words bool
}

var levels = map[string]int{"debug": 0, "info": 1, "warning": 2, "error": 3}

func newLog(out io.Writer, least string, words bool) *log {
	return &log{out: out, least: levels[least], words: words}
}

func (l *log) write(level, message string, fields map[string]any) {
	if levels[level] < l.least {
		return
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	line := ""
	if l.words {
		line = now + " " + level + " " + message
		for _, key := range sorted(fields) {
			line += fmt.Sprintf(" %s=%v", key, fields[key])
		}
		line = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, line)
	} else {
		record := map[string]any{"time": now, "level": level, "message": message}
		for key, value := range fields {
			record[key] = value
		}
		bytes, err := json.Marshal(record)
		if err != nil {
			bytes = []byte(fmt.Sprintf("%q", message))
		}
		line = string(bytes)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_, _ = io.WriteString(l.out, line+"\n")
}

func sorted(fields map[string]any) []string {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
