#include "tests/emulator/defects.h"

#include <cstring>

namespace spillway::emulator {

const char* defect_name(DefectKind kind) {
  switch (kind) {
    case DefectKind::kRace:
      return "race";
    case DefectKind::kUninitialised:
      return "uninitialised";
    case DefectKind::kOutOfBounds:
      return "out of bounds";
    case DefectKind::kMisaligned:
      return "misaligned";
    case DefectKind::kPendingCopy:
      return "pending copy";
    case DefectKind::kBarrier:
      return "barrier";
    case DefectKind::kWarp:
      return "warp";
    case DefectKind::kBadLaunch:
      return "bad launch";
  }
  return "?";
}

void Defects::add(DefectKind kind, std::string text) {
  ++count_;
  kinds_ |= 1u << static_cast<uint32_t>(kind);
  if (kept_.size() < kKept) kept_.push_back({kind, std::move(text)});
}

std::string Defects::text() const {
  std::string out;
  for (const Defect& defect : kept_) {
    out += std::string(defect_name(defect.kind)) + ": " + defect.text + "\n";
  }
  if (count_ > kept_.size()) out += "and " + std::to_string(count_ - kept_.size()) + " more\n";
  return out;
}

std::string site_text(const std::source_location& site) {
  const char* name = std::strrchr(site.file_name(), '/');
  return std::string(name == nullptr ? site.file_name() : name + 1) + ":" +
         std::to_string(site.line());
}

}  // namespace spillway::emulator
