package main

const help = `tessera-serve serves models of this machine to the clients that people already use: OpenAI's (chat completions,
completions, responses, embeddings), Anthropic's messages, and Ollama's. No request leaves this machine.

Usage: tessera serve [OPTIONS] MODEL...        (or tessera-serve)
  MODEL   a .gguf or .tsr file, a Hugging Face folder, or a folder of these. A model's name is that of its file without
          .gguf or .tsr; it is loaded with its first request.

Examples
  tessera serve model.gguf
  tessera serve models/ --devices cpu:4 --memory-limit 24GiB --idle 600
  tessera serve model.gguf --alias gpt-4o-mini=model --adapter model:mine=adapter/
  curl:         curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
                  -d '{"model": "model", "messages": [{"role": "user", "content": "Hello"}], "stream": true}'
  Codex:        tessera serve model.gguf --context 65536 --sequences 2, and in ~/.codex/config.toml:
                  model = "model"
                  model_provider = "tessera"
                  [model_providers.tessera]
                  name = "Tessera"
                  base_url = "http://127.0.0.1:8080/v1"
                  wire_api = "responses"
                and model_catalog_json = "/PATH/m.json", made by curl http://127.0.0.1:8080/v1/models > m.json
  Claude Code:  ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL=model claude
  Open WebUI:   OPENAI_API_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none open-webui serve --port 3000
Agents read long prompts: give them --context 65536 and few --sequences, as the cache has CONTEXT x SEQUENCES tokens.

Models
  --alias NAME=MODEL      an additional name for MODEL, given by its path or by its name on the command line
  --adapter BASE:NAME=PATH   a LoRA adapter, with a model name of its own; any number may be given, and one step can mix
                          requests for --adapters of them
  --preload NAME,NAME     load these at once
  --idle SECONDS          unload a model after so long without requests (default 0: never)
  --memory-limit SIZE     limit on the planned memory of all loaded models, e.g. 24GiB; idle models are unloaded to make room,
                          and a request that still does not fit gets 503 (default: the devices' own limits)
  --inference-share X     share of the cores' time that requests have while trainings run too, 0 to 1; a request waits for one
                          micro-batch of training at most, and idle time is the other side's. off: no turns (0.8)
Engine of each model; the defaults are the library's
  --devices TEXT          cpu:4, cuda, cuda:0,1          --parallel TEXT       as tp=2, dp=2
  --context TOKENS        of a sequence at most (default: the model's, at most 2048)
  --sequences N           computed at once (16)          --cache-tokens N      of all sequences
  --cache-type TYPE       f16, bf16, q8_0                --precision TYPE      f32, tf32, bf16
  --weights TYPE          as bf16, q8_0, q4_k            --threads N           of kernels
  --speculation KIND      off, ngram, draft, mtp         --draft-model PATH    --draft-tokens N
  --training-slots N      Tinker training runs over one base model whose adapters share a trainer, and its memory (8); 0: each
                          run has a trainer of its own, as those have whose adapters do not fit
  --training-rank N       their largest rank (32); the plan has the memory of all slots at this rank
  --training-rows N       rows computed at once, of one run or of several (1)
  --trainers N            trainers kept in memory, shared or not; further runs are swapped to disk (4)
  --train-context TOKENS  maximum sequence length in Tinker training (default: the model's, at most 2048); a pass is padded
                          to whole rows of this length, so a shorter one costs as much
  --adapters N            adapters mixed in a step (4)   --adapter-rank N      their largest rank (16)
  --adapter-on WEIGHTS    what they may change: blocks, and head, and tables, as blocks,head,tables (blocks). Samplers of Tinker
                          trainings whose adapters fit
                          are served by the base's engine, others by an engine of their own
Service
  --host ADDRESS          address to listen on (127.0.0.1); any other than a loopback address needs an API key or --insecure
  --port PORT             (8080)
  --host-name NAME        host name accepted in requests' Host header, besides IP addresses and localhost; may be repeated
  --state FOLDER          folder of persistent data: keys, files, jobs; one service uses it at a time (the environment's
                          TESSERA_STATE).
                          'tessera serve keys new --state FOLDER' makes a key with scopes and rates,
                          'tessera serve backup --state FOLDER NEW_FOLDER' a copy, while the service runs
  --api-key KEY           key required on every request but /health; may be repeated. Other users can see it in the process
                          list, so prefer --api-key-file
  --api-key-file FILE     a key a line, or the environment's TESSERA_API_KEY
  --tls-certificate FILE  --tls-key FILE
  --insecure              no key, though other machines reach the service
  --queue-tokens N        of a model's requests that wait; more are answered with 429 (1048576)
  --body-limit SIZE       of requests in JSON (8MiB)
  --drain SECONDS         that requests have after SIGTERM (30)
  --metrics-prefix WORD   prefix of metric names in /metrics (default vllm, so that vLLM's dashboards work)
  --log-level LEVEL       debug, info, warning, error    --log-text            words in place of JSON lines
  --version
Paths: / is a page for browsers; /openapi.json lists all paths; /health, /version, /metrics, /plan?model=NAME.
Exit status: 0 stopped by a signal, 1 failed, 2 invalid arguments.
`
