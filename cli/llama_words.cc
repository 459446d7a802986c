#include <string_view>

#include "foreign_words.h"

namespace cli {
namespace {

struct ForeignWord {
  std::string_view foreign, ours;
};

// Options of llama.cpp that have one dash and several letters, without the dash; option_for knows the others.
constexpr ForeignWord kLlamaOptions[] = {
    {"bs", "nothing: words are drawn one by one on the host"},
    {"bf", "--prompt - < FILE"},
    {"cb", "nothing: requests always join the batch that runs"},
    {"cmoe", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"cnv", "`tessera chat MODEL`"},
    {"co", "nothing: output has no colours"},
    {"cram", "--cache-tokens"},
    {"ctk", "--cache-type, of keys and values"},
    {"ctv", "--cache-type, of keys and values"},
    {"ctkd", "--cache-type, of keys and values"},
    {"ctvd", "--cache-type, of keys and values"},
    {"dev", "--devices"},
    {"devd", "--devices"},
    {"dio", "nothing: .tsr and GGUF files are mapped"},
    {"dt", "nothing: pages of the cache do not fragment"},
    {"fa", "nothing: attention never holds the matrix of scores"},
    {"fit", "nothing: the plan always fits --memory-limit"},
    {"fitc", "--context"},
    {"fitt", "--memory-limit"},
    {"hf", "nothing is downloaded: give the path of a file or folder"},
    {"hfd", "nothing is downloaded: give the path of a file or folder"},
    {"hff", "nothing is downloaded: give the path of a file or folder"},
    {"hfr", "nothing is downloaded: give the path of a file or folder"},
    {"hft", "nothing is downloaded: give the path of a file or folder"},
    {"hfv", "nothing is downloaded: give the path of a file or folder"},
    {"jf", "--json-schema FILE"},
    {"kvo", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"kvu", "nothing: sequences share one pool of pages"},
    {"lcd", "--speculation"},
    {"lcs", "--speculation"},
    {"lv", "--quiet, or --stats"},
    {"md", "--draft-model"},
    {"mg", "--devices"},
    {"mli", "`tessera chat MODEL` reads lines; --prompt - reads a text of several"},
    {"mm", "models of pictures and sound are not read"},
    {"mmu", "models of pictures and sound are not read"},
    {"mu", "nothing is downloaded: give the path of a file or folder"},
    {"ncmoe", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"ngld", "llama.cpp's -ngld: devices are given by --devices cuda, what fits is decided by the planner"},
    {"nkvo", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"nocb", "nothing: requests always join the batch that runs"},
    {"no-cnv", "`tessera generate MODEL --prompt TEXT`"},
    {"nopo", "nothing: ops are placed by the plan"},
    {"np", "--sequences"},
    {"nr", "nothing: weights are laid out as the kernels read them"},
    {"ns", "--sequences"},
    {"ot", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"otd", "nothing: what is offloaded is the plan's choice, so that --memory-limit holds"},
    {"ps", "nothing: speculation weighs its guesses itself"},
    {"ptc", "nothing: nothing is printed in between"},
    {"sm", "--parallel"},
    {"sp", "--special"},
    {"st", "`tessera chat MODEL --message TEXT`"},
    {"sys", "--system"},
    {"sysf", "--system \"$(cat FILE)\""},
    {"tb", "--threads"},
    {"tbd", "--threads"},
    {"td", "--threads"},
    {"to", "nothing: no command serves over a network"},
    {"ts", "--parallel"},
    {"ub", "nothing: how many tokens a step takes is the plan's choice"},
};

}  // namespace

std::string llama_option(const std::string& name) {
  for (const ForeignWord& each : kLlamaOptions)
    if (each.foreign == name) return std::string(each.ours);
  return {};
}

}  // namespace cli
