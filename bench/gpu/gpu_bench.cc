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
                           {"matmul_cublaslt", measure_library_products},
                           {"serving", measure_serving}};

// What has been measured before something fails is of use.
Result<> measure_all(BenchRun& run, Recorder& recorder, const std::string& only) {
  for (const Case& one : kCases) {
    if (!only.empty() && only != one.name) continue;
    std::fprintf(stderr, "%s\n", one.name);
    const auto done = one.measure(run);
    if (done) continue;
    const Error error = run.device().failure() != nullptr ? *run.device().failure() : done.error();
    recorder.skip(one.name, error.message);
    if (error.code != ErrorCode::kResourceExhausted) return error;
  }
  return Result<>();
}

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
    } else if (arguments[i] == "--only" && i + 1 < arguments.size()) {
      options.only = arguments[++i];
    } else {
      return Error{
          ErrorCode::kInvalidArgument,
          "'" + arguments[i] +
              "' is not understood: gpu_bench --out FILE --folder FOLDER [--only CASE] [--tiny]"};
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
  const Result<> done = measure_all(run, recorder, options.only);
  std::ofstream file(options.out, std::ios::trunc);
  file << recorder.json((*device)->description());
  file.close();
  if (!file) return Error{ErrorCode::kIo, "cannot write " + options.out};
  return done;
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
