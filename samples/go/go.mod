module samples

go 1.19

require tessera.dev/tessera v0.3.0

replace tessera.dev/tessera => ../../build/go/tessera
