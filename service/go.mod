module tessera.dev/service

go 1.19

require (
	github.com/mattn/go-sqlite3 v1.14.16
	google.golang.org/protobuf v1.28.1
	tessera.dev/tessera v0.3.0
)

// Debian's packages golang-github-mattn-go-sqlite3-dev and golang-google-protobuf-dev; the module that bindings/go makes.
replace (
	github.com/mattn/go-sqlite3 => /usr/share/gocode/src/github.com/mattn/go-sqlite3
	google.golang.org/protobuf => /usr/share/gocode/src/google.golang.org/protobuf
	tessera.dev/tessera => ../build/go/tessera
)
