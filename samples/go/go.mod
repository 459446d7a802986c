module samples

go 1.19

require tessera v0.0.0

replace tessera => ../../build/go/tessera
