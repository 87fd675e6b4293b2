// What a GPU makes of the operators and of the link to it, for tools/gpu-check:
//
//   gpu_bench --out FILE --folder FOLDER [--only CASE] [--tiny]
#include "bench/gpu/gpu_bench.h"

int main(int argc, char** argv) { return spillway::bench::gpu_bench_main(argc, argv); }
