#include "server/cli/sizes.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace spillway::server {

Result<uint64_t> parse_bytes(std::string_view text) {
  const Error wrong = invalid_argument("'" + std::string(text) +
                                       "' is no size: write bytes, or a number with K, M, G or T "
                                       "(512M, 4G)");
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !std::isfinite(number) || number < 0) return wrong;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  int power = 0;
  if (!unit.empty() && unit != "B" && unit != "b") {
    const size_t at = std::string_view("KMGTkmgt").find(unit[0]);
    if (at == std::string_view::npos) return wrong;
    const std::string_view rest = unit.substr(1);
    if (!rest.empty() && rest != "B" && rest != "iB" && rest != "b" && rest != "ib") return wrong;
    power = static_cast<int>(at % 4) + 1;
  }
  const double bytes = std::ldexp(number, 10 * power);
  if (bytes >= 0x1p62) return wrong;
  return static_cast<uint64_t>(bytes);
}

Result<double> parse_share(std::string_view text) {
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, number);
  const bool percent = end != last && *end == '%';
  if (percent) number /= 100;
  if (ec != std::errc() || end + percent != last || !(number >= 0 && number <= 1)) {
    return invalid_argument("'" + std::string(text) +
                            "' is no share: write a percentage from 0% to 100%");
  }
  return number;
}

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

std::string grouped_digits(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace spillway::server
