// Command serve serves fake models with the dialects that need no folder, for tests with official clients:
//
//	go run ./dialect/fake/serve 127.0.0.1:8123
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/completions"
	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/dialect/listing"
	"tessera.dev/service/dialect/messages"
	"tessera.dev/service/dialect/ollama"
	"tessera.dev/service/dialect/responses"
	"tessera.dev/service/dialect/texts"
	"tessera.dev/service/inference"
)

// joined are the models of both kinds.
type joined []*fake.Models

func (j joined) List() (all []inference.Info) {
	for _, each := range j {
		all = append(all, each.List()...)
	}
	return all
}

func (j joined) Open(ctx context.Context, name string) (model inference.Model, err error) {
	for _, each := range j {
		if model, err = each.Open(ctx, name); err == nil {
			return model, nil
		}
	}
	return nil, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: serve ADDRESS:PORT")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("http://" + listener.Addr().String())
	dialects := []dialect.Dialect{chat.New(chat.Settings{}), completions.New(), responses.New(), messages.New(), ollama.New(), texts.New(), listing.New()}
	handler := &fake.Server{Models: joined{fake.Echo(), fake.Scripted()}, Dialects: dialects}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	fmt.Fprintln(os.Stderr, server.Serve(listener))
	os.Exit(1)
}
