// What gpu_bench measured, as the JSON that tools/gpu_report.py reads. All sums are made there:
// here are samples, and what a sample moved or computed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spillway::bench {

// What one sample is. A zero or an empty text: it is none of that.
struct Figure {
  std::string name;          // "decode_attention"
  std::string what;          // the case: "8k"
  double bytes = 0;          // moved
  double operations = 0;     // computed: a product and a sum are two
  std::string arithmetic{};  // of them: "f32", "int8"
  uint64_t tokens = 0;       // made
  bool in_device = false;    // the bytes are those of device memory
  double copy_seconds = 0;   // what of it a copy alone takes, and what the computation
  double compute_seconds = 0;
};

class Recorder {
 public:
  void add(const Figure& figure, std::vector<double> seconds) {
    figures_.emplace_back(figure, std::move(seconds));
  }
  void skip(std::string name, std::string why) {
    skipped_.emplace_back(std::move(name), std::move(why));
  }
  std::string json(const std::string& device) const;

 private:
  std::vector<std::pair<Figure, std::vector<double>>> figures_;
  std::vector<std::pair<std::string, std::string>> skipped_;
};

}  // namespace spillway::bench
