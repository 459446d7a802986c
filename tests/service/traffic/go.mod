module tessera.dev/traffic

go 1.19
