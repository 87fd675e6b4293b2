#include "kernels/cpu_level.h"

#include <cpuid.h>

#include <cstdlib>
#include <string>

namespace spillway::kernels {
namespace {

struct CpuidLeaf {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
};

CpuidLeaf cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf out;
  __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);  // zero if too high
  return out;
}

bool bit(uint32_t word, uint32_t index) { return (word >> index & 1) != 0; }

bool all_bits(uint32_t word, uint32_t mask) { return (word & mask) == mask; }

// The register state that the operating system saves on a context switch.
uint32_t saved_state() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

CpuFeatures detect() {
  constexpr uint32_t kYmmState = 0x6;               // SSE and AVX
  constexpr uint32_t kZmmState = kYmmState | 0xe0;  // and opmask, both parts of ZMM
  constexpr uint32_t kTileState = 0x60000;          // tile configuration and data
  const CpuidLeaf basic = cpuid(1, 0);
  const bool xgetbv_allowed = bit(basic.ecx, 27);
  if (!xgetbv_allowed) return {};
  const uint32_t saved = saved_state();
  const CpuidLeaf seven = cpuid(7, 0);
  const CpuidLeaf seven_one = seven.eax >= 1 ? cpuid(7, 1) : CpuidLeaf{};
  const bool fma = bit(basic.ecx, 12);
  const bool f16c = bit(basic.ecx, 29);
  CpuFeatures out;
  out.avx2 = all_bits(saved, kYmmState) && bit(basic.ecx, 28) && bit(seven.ebx, 5) && fma && f16c;
  out.avx_vnni = out.avx2 && bit(seven_one.eax, 4);
  const bool foundation_dq_bw_vl =
      bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 30) && bit(seven.ebx, 31);
  const bool vnni = bit(seven.ecx, 11);
  out.avx512 = out.avx2 && all_bits(saved, kZmmState) && foundation_dq_bw_vl && vnni;
  out.avx512_bf16 = out.avx512 && bit(seven_one.eax, 5);
  out.amx_int8 =
      out.avx512 && all_bits(saved, kTileState) && bit(seven.edx, 24) && bit(seven.edx, 25);
  return out;
}

std::string names_of(const std::vector<CpuLevel>& levels) {
  std::string out;
  for (const CpuLevel level : levels) {
    if (!out.empty()) out += ", ";
    out += cpu_level_name(level);
  }
  return out;
}

}  // namespace

bool CpuFeatures::has(CpuLevel level) const {
  switch (level) {
    case CpuLevel::kBaseline:
      return true;
    case CpuLevel::kAvx2:
      return avx2;
    case CpuLevel::kAvxVnni:
      return avx_vnni;
    case CpuLevel::kAvx512:
      return avx512;
  }
  return false;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kBaseline:
      return "baseline";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvxVnni:
      return "avxvnni";
    case CpuLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::vector<CpuLevel> available_cpu_levels(const CpuFeatures& features) {
  std::vector<CpuLevel> out;
  for (const CpuLevel level : kCpuLevels) {
    if (features.has(level)) out.push_back(level);
  }
  return out;
}

Result<CpuLevel> choose_cpu_level(const CpuFeatures& features, const char* forced) {
  const std::vector<CpuLevel> available = available_cpu_levels(features);
  if (forced == nullptr || *forced == '\0') return available.back();
  for (const CpuLevel level : kCpuLevels) {
    if (cpu_level_name(level) != forced) continue;
    if (features.has(level)) return level;
    return Error{ErrorCode::kUnsupported, "SPILLWAY_CPU=" + std::string(forced) +
                                              ": this machine lacks it; it has " +
                                              names_of(available)};
  }
  return invalid_argument("SPILLWAY_CPU=" + std::string(forced) +
                          ": no such level; this machine has " + names_of(available));
}

Result<CpuLevel> cpu_level_from_environment() {
  return choose_cpu_level(cpu_features(), std::getenv("SPILLWAY_CPU"));
}

}  // namespace spillway::kernels
