#include <cmath>
#include <iostream>

#include "command.h"
#include "interruptible.h"
#include "progress.h"
#include "steps.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string output;
  double seconds = 60;
};

void calibrate(const Arguments& args) {
  check_output(args.output, Output::kFile);
  const Runtime runtime = open_runtime(args);
  const Options options = make<Options>(tsr_options_new);
  set(options, "devices", args.devices);
  set(options, "seconds", args.seconds);
  const Work work = make_interruptible<Work>(tsr_calibration_begin, runtime,
                                             static_cast<const tsr_options*>(options.get()));
  {
    Progress progress(args);
    for (int32_t done = 0; done == 0;) {
      const tsr_progress found = progress_of(work);
      progress.show(std::to_string(static_cast<int>(100 * found.fraction)) + " %  " + found.label);
      const Interruptible interruptible(runtime);
      interruptible.check(tsr_work_step(work.get(), &done));
    }
  }
  const Calibration calibration = make<Calibration>(tsr_calibration_finish, work.get());
  const auto* reading = static_cast<const tsr_calibration*>(calibration.get());
  const std::string path =
      args.output.empty() ? short_text(tsr_calibration_default_path, reading) : args.output;
  check(tsr_calibration_save(reading, path.empty() ? nullptr : path.c_str()));
  const Json profile = Json::parse(text(tsr_calibration_text, reading));
  const Json& content = profile["content"];
  const double others = content.value("others_share", 0.0);  // absent below 10 %
  if (args.json)
    return print_json({{"profile", path},
                       {"checksum", profile["checksum"]},
                       {"device", content["device"]},
                       {"cores", content["cores"]},
                       {"kernels", content["kernels"].size()},
                       {"collectives", content["collectives"].size()},
                       {"others_share", others}});
  double peak = 0;  // of f32 products: the largest of each table
  for (const Json& table : content["kernels"]) {
    // By name: a profile's tables have it alone; matmul is the op that every calibration measures.
    if (table["op"] != "matmul" || table["dtype"] != "f32" || table["form"] == "allow_tf32=1") continue;
    double flops = 2;
    for (const Json& marks : table["marks"]) flops *= marks.back().get<double>();
    peak = std::max(peak, flops / table["seconds"].back().get<double>());
  }
  std::cout << "device     " << content["device"].get<std::string>() << '\n'
            << "measured   " << content["kernels"].size() << " tables of kernels, "
            << content["collectives"].size() << " of collectives, " << content["copies"].size()
            << " of copies; f32 products reach " << static_cast<int64_t>(peak / 1e9) << " GFLOP/s\n"
            << (others > 0 ? "warning    other processes took " + std::to_string(std::lround(100 * others)) +
                                 " % of the cores meanwhile: prices are too high; measure again while "
                                 "nothing else runs\n"
                           : std::string())
            << "profile    " << path << " (checksum " << profile["checksum"].get<std::string>() << ")\n";
}

}  // namespace

void register_calibrate(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  args->devices = "cpu";
  CLI::App* command =
      app.add_subcommand("calibrate", "measure the devices of this machine, for better plans");
  command->footer(
      "Example:\n  tessera calibrate\n  tessera calibrate --out machine.json && tessera plan model.tsr "
      "--devices cpu:2 --profile machine.json\n"
      "Run it while nothing else runs. Without --out the profile goes to $XDG_CACHE_HOME/tessera (else "
      "~/.cache/tessera),\nwhere plan, train, eval, generate and bench find it.");
  command->add_option("--devices", args->devices, "cpu | cuda | cuda:0,1")->capture_default_str();
  command->add_option("--out", args->output, "file to write (default: where plans look for it)");
  command->add_option("--seconds", args->seconds, "approximate duration")->capture_default_str();
  command->add_option("--threads", args->threads, "threads for kernels; 0: all cores of this process")
      ->capture_default_str();
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] { calibrate(*args); });
}

}  // namespace cli
