// Which instruction sets this machine runs, and which level the kernels shall use.
//
// A level is a set of kernels that give the same bits on every machine that has it. kAvx2, kAvxVnni
// and kAvx512 agree with each other where a kernel's header says so; kBaseline has no fused
// multiply-add and rounds differently, so it has an arithmetic (and a fingerprint) of its own.
// Plain functions, any thread; nothing here changes state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace spillway::kernels {

// Ascending: a machine that has a level has those below it, but for kAvxVnni (the 256-bit byte dot
// product of desktop chips), which a machine with kAvx512 need not have. Kernels without a variant
// of their own for a level use the next one below it, kAvx2 for kAvxVnni.
enum class CpuLevel : uint8_t {
  kBaseline,  // x86-64-v2: SSE4.2
  kAvx2,      // AVX2, FMA, F16C
  kAvxVnni,   // kAvx2 and AVX-VNNI
  kAvx512,    // kAvx2 and AVX-512 F, BW, DQ, VL, VNNI
};

inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kBaseline, CpuLevel::kAvx2, CpuLevel::kAvxVnni,
                                          CpuLevel::kAvx512};

// What cpuid reports and the operating system saves (xgetbv).
struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C
  bool avx_vnni = false;
  bool avx512 = false;  // F, BW, DQ, VL and VNNI together
  bool avx512_bf16 = false;
  bool amx_int8 = false;  // the chip has it; a process must still ask the kernel for the tiles

  bool has(CpuLevel level) const;
};

const CpuFeatures& cpu_features();

// "baseline", "avx2", "avxvnni", "avx512": what SPILLWAY_CPU accepts and the banner prints.
std::string_view cpu_level_name(CpuLevel level);

// The levels that a machine with `features` has, ascending; never empty. Tests run every one.
std::vector<CpuLevel> available_cpu_levels(const CpuFeatures& features = cpu_features());

// The level to use: `forced` if it names one that `features` has, the best one if `forced` is null
// or empty, else an error that lists what this machine accepts.
Result<CpuLevel> choose_cpu_level(const CpuFeatures& features, const char* forced);

// choose_cpu_level() for this machine and the environment variable SPILLWAY_CPU.
Result<CpuLevel> cpu_level_from_environment();

}  // namespace spillway::kernels
