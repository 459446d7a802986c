// The core of a chat server for many users, without sockets: a goroutine for each user; the twin of samples/c/chat_server.c.
//
//	chat_server [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]     e.g.  chat_server chat.gguf 200 cpu:4 0.7
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"tessera.dev/tessera"
)

type user struct {
	name     string
	lines    chan string // that wait until the answer before is complete
	messages []tessera.Message
	request  atomic.Pointer[tessera.Request] // the latest
}

var control = regexp.MustCompile("[\x00-\x1f]")

func (u *user) say(text string) { fmt.Printf("%s: %s\n", u.name, control.ReplaceAllString(text, " ")) }

// answer submits the conversation with one more line.
func (u *user) answer(engine *tessera.Engine, options tessera.Options, streams bool, line string) error {
	asked := append(u.messages, tessera.Message{Role: "user", Content: line})
	request, err := engine.SubmitMessages(asked, options)
	if err != nil {
		return err
	}
	u.request.Store(request)
	text := ""
	stream := request.Stream(context.Background())
	for stream.Next() {
		piece := stream.Event().Text
		text += piece
		if streams && piece != "" {
			u.say(piece)
		}
	}
	if stream.Err() != nil {
		return stream.Err()
	}
	u.messages = append(asked, tessera.Message{Role: "assistant", Content: text})
	if !streams {
		u.say(text)
	}
	return nil
}

// stop ends the answer in progress, and drops the lines that wait.
func (u *user) stop() {
	for dropped := true; dropped; {
		select {
		case <-u.lines:
		default:
			dropped = false
		}
	}
	u.request.Load().Cancel() // nothing happens where there is none
}

// serve ends when no more lines come and all are answered.
func serve(engine *tessera.Engine, options tessera.Options, streams bool) error {
	users := map[string]*user{}
	var talks sync.WaitGroup
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		name, line, _ := strings.Cut(strings.TrimSpace(input.Text()), " ")
		if name == "" {
			continue
		}
		u := users[name]
		if u == nil {
			u = &user{name: name, lines: make(chan string, 1000)}
			users[name] = u
			talks.Add(1)
			go func() {
				defer talks.Done()
				for line := range u.lines {
					var wrong *tessera.Error // with this user's line: no matter of others
					if err := u.answer(engine, options, streams, line); errors.As(err, &wrong) {
						u.say(wrong.Message)
					}
				}
			}()
		}
		if line == "/stop" {
			u.stop()
		} else {
			u.lines <- line
		}
	}
	for _, u := range users {
		close(u.lines)
	}
	talks.Wait()
	return input.Err()
}

func run(arguments []string, streams bool) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	model, err := tessera.LoadModel(arguments[0])
	if err != nil {
		return err
	}
	given := append(arguments, []string{"", "200", "cpu:1", "0", ""}[len(arguments):]...)
	tokens, _ := strconv.Atoi(given[1])
	temperature, _ := strconv.ParseFloat(given[3], 64)
	engine, err := tessera.NewEngine(runtime, model, tessera.Options{"max_tokens": tokens, "devices": given[2], "temperature": temperature})
	if err != nil {
		return err
	}
	defer engine.Close()
	options := tessera.Options{}
	if given[4] != "" {
		options["template"] = given[4]
	}
	return serve(engine, options, streams)
}

func main() {
	streams := flag.Bool("stream", false, "print pieces as they come")
	flag.Parse()
	arguments := flag.Args()
	if len(arguments) < 1 || len(arguments) > 5 {
		fmt.Fprintf(os.Stderr, "usage: %s [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]\n", os.Args[0])
		os.Exit(2)
	}
	if err := run(arguments, *streams); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
