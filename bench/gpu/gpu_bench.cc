#include "bench/gpu/gpu_bench.h"

#include <cstdio>
#include <fstream>

namespace spillway::bench {
namespace {

struct Case {
  const char* name;
  Result<> (*measure)(BenchRun& run);
};
constexpr Case kCases[] = {{"copies", measure_copies},
                           {"decode_attention", measure_decode_attention},
                           {"prefill_attention", measure_prefill_attention},
                           {"matmul", measure_products},
                           {"serving", measure_serving}};

}  // namespace

Result<GpuBenchOptions> parse_gpu_bench_options(const std::vector<std::string>& arguments) {
  GpuBenchOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--tiny") {
      options.tiny = true;
    } else if (arguments[i] == "--out" && i + 1 < arguments.size()) {
      options.out = arguments[++i];
    } else if (arguments[i] == "--folder" && i + 1 < arguments.size()) {
      options.folder = arguments[++i];
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   "'" + arguments[i] +
                       "' is not understood: gpu_bench --out FILE --folder FOLDER [--tiny]"};
    }
  }
  if (options.out.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--out FILE says where the figures go"};
  }
  if (options.folder.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--folder FOLDER says where files may lie"};
  }
  return options;
}

Result<> run_gpu_bench(const GpuBenchOptions& options) {
  auto device = kernels::make_cuda_device({});
  if (!device) return device.error();
  std::fprintf(stderr, "%s\n", (*device)->description().c_str());
  const BenchSizes sizes = options.tiny ? tiny_sizes() : BenchSizes{};
  Recorder recorder;
  BenchRun run(**device, sizes, recorder, options.folder);
  for (const Case& one : kCases) {
    std::fprintf(stderr, "%s\n", one.name);
    if (const auto done = one.measure(run); !done) {
      if ((*device)->failure() != nullptr) return *(*device)->failure();
      if (done.error().code != ErrorCode::kResourceExhausted) return done;
      recorder.skip(one.name, done.error().message);
    }
  }
  std::ofstream file(options.out, std::ios::trunc);
  file << recorder.json((*device)->description());
  file.close();
  if (!file) return Error{ErrorCode::kIo, "cannot write " + options.out};
  return Result<>();
}

int gpu_bench_main(int argc, char** argv) {
  constexpr int kFailed = 1, kWrongArguments = 2, kNoGpu = 77;
  const auto options = parse_gpu_bench_options({argv + 1, argv + argc});
  if (!options) {
    std::fprintf(stderr, "%s\n", options.error().message.c_str());
    return kWrongArguments;
  }
  const auto done = run_gpu_bench(*options);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.error().code == ErrorCode::kUnavailable ? kNoGpu : kFailed;
}

}  // namespace spillway::bench
