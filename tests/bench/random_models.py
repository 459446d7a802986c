"""Random models of today's families, of the shapes of published ones, in GGUF files that `tessera new` and `tessera quantize` write."""
import os
import subprocess

GRANITE = "|".join("0" if layer in (10, 13, 17, 27) else "1" for layer in range(32))
LFM2 = "|".join("0" if layer in (2, 5, 8, 10, 12, 14) else "1" for layer in range(16))
GEMMA_LAYERS, GEMMA_SHARED = 10, 5  # of 35 and 20: the table of per-layer embeddings takes 256 numbers a token and layer


def by_gemma_layer(window, full):
    return "|".join(str(full if layer % 5 == 4 else window) for layer in range(GEMMA_LAYERS))


MODELS = {
    "qwen3.5-0.8B": "qwen3_5:L=24,C=1024,H=8,KV=2,D=256,R=64,F=3584,HS=16,VS=128,V=248320,T=262144,rope_theta=1e7,tied,rope_half",
    "qwen3.5-2B": "qwen3_5:L=24,C=2048,H=8,KV=2,D=256,R=64,F=6144,HS=16,VS=128,V=248320,T=262144,rope_theta=1e7,tied,rope_half",
    "lfm2-1.2B": f"lfm2:L=16,C=2048,H=32,KV=8,F=8192,V=65536,T=128000,rope_theta=1e6,tied,rope_half,recurrent={LFM2}",
    "granite-4-h-350m": "granitehybrid:L=32,C=768,H=12,KV=4,F=2048,HS=48,VS=32,GS=1,KS=128,V=100352,T=32768,conv_bias,tied,rope_half,"
                        f"recurrent={GRANITE}",
    "gemma-4-e2b": f"gemma4:L={GEMMA_LAYERS},C=1536,H=8,KV=1,D=256,F=6144,V=262144,T=131072,P=256,shared_kv={GEMMA_SHARED},logit_softcap=30,"
                   f"rope_theta=1e6,windows={by_gemma_layer(512, 0)},head_sizes={by_gemma_layer(256, 512)},tied,rope_half,rope_rows=1",
}


def command(build, *args):
    done = subprocess.run([os.path.join(build, "cli", "tessera"), *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"tessera {args[0]}: {done.stderr}")


def random_model(build, path, model):
    command(build, "new", MODELS[model], "--out", path)


def quantized(build, source, path, kind):
    command(build, "quantize", source, path, "--type", kind.lower())
