// Descriptions of small models of today's families, which tests make files of and break.
#pragma once

namespace tessera::testing {

inline constexpr const char* kDelta =
    "qwen3_5:L=4,C=12,H=3,KV=1,D=8,R=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,tied,rope_half,MTP=1";
inline constexpr const char* kStates =
    "granitehybrid:L=3,C=12,H=3,KV=1,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,recurrent=1|0|1,rope_layers=0|0|0,"
    "conv_bias,rope_half";
inline constexpr const char* kHalves =
    "nemotron_h:L=3,C=12,H=3,KV=1,D=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=1|2|1,recurrent=1|0|0,conv_"
    "bias,rope_half";
inline constexpr const char* kConvolutions = "lfm2:L=3,C=12,H=3,KV=1,F=10,V=11,T=16,recurrent=1|0|1,tied,rope_half";
inline constexpr const char* kLayerSizes =
    "gemma4:L=4,C=12,H=6,KV=2,D=6,F=10,V=11,T=16,windows=5|0|5|0,head_sizes=6|8|6|8,ffn_widths=10|10|20|20,"
    "shared_kv=2,P=4,tied,"
    "rope_half,rope_rows=1";

}  // namespace tessera::testing
