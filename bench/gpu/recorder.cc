#include "bench/gpu/recorder.h"

#include <cstdio>

namespace spillway::bench {
namespace {

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void add_number(std::string& to, const char* key, double value) {
  if (value != 0) to += std::string(", \"") + key + "\": " + number(value);
}

std::string figure_json(const Figure& figure, const std::vector<double>& seconds) {
  std::string out =
      "{\"name\": " + in_quotes(figure.name) + ", \"case\": " + in_quotes(figure.what);
  add_number(out, "bytes", figure.bytes);
  add_number(out, "operations", figure.operations);
  add_number(out, "tokens", static_cast<double>(figure.tokens));
  add_number(out, "copy_seconds", figure.copy_seconds);
  add_number(out, "compute_seconds", figure.compute_seconds);
  if (!figure.arithmetic.empty()) out += ", \"arithmetic\": " + in_quotes(figure.arithmetic);
  if (figure.in_device) out += ", \"memory\": \"device\"";
  out += ", \"samples\": [";
  for (size_t i = 0; i < seconds.size(); ++i) out += (i == 0 ? "" : ", ") + number(seconds[i]);
  return out + "]}";
}

}  // namespace

std::string Recorder::json(const std::string& device) const {
  std::string out = "{\"device\": " + in_quotes(device) + ",\n \"figures\": [";
  for (size_t i = 0; i < figures_.size(); ++i) {
    out += (i == 0 ? "\n  " : ",\n  ") + figure_json(figures_[i].first, figures_[i].second);
  }
  out += "],\n \"skipped\": [";
  for (size_t i = 0; i < skipped_.size(); ++i) {
    out += std::string(i == 0 ? "" : ",") + "\n  {\"name\": " + in_quotes(skipped_[i].first) +
           ", \"why\": " + in_quotes(skipped_[i].second) + "}";
  }
  return out + "]}\n";
}

}  // namespace spillway::bench
