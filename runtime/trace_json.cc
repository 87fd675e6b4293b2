#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/trace.h"

namespace spillway {
namespace {

struct LaneText {
  int process;
  const char* name;
};

// In the order of TraceLane. A process of the format is a group of rows here.
constexpr LaneText kLanes[] = {
    {1, "engine"},     {1, "steps"}, {1, "compute stream"}, {2, "copies in"},
    {2, "copies out"}, {3, "reads"}, {3, "writes"},         {4, "request"},
};
constexpr const char* kProcesses[] = {"", "engine and compute", "stream copies", "disk",
                                      "requests"};

constexpr bool overlaps(TraceLane lane) {
  return lane == TraceLane::kReads || lane == TraceLane::kWrites;
}

std::string micros(Clock::Duration time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text;
}

std::string seconds_text(Clock::Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", std::chrono::duration<double>(time).count());
  return text;
}

// Rows of the picture, each with a number of its own, named when they are first used.
class Rows {
 public:
  explicit Rows(std::string& out) : out_(out) {}

  // The row of this event, which begins no earlier than those before it did.
  uint64_t row_of(const TraceEvent& event, Clock::TimePoint begin) {
    uint64_t place = event.lane == TraceLane::kRequests ? event.id : 0;
    if (overlaps(event.lane)) {
      auto& ends = ends_[static_cast<size_t>(event.lane)];
      const auto free = std::find_if(ends.begin(), ends.end(),
                                     [&](Clock::TimePoint end) { return end <= begin; });
      place = static_cast<uint64_t>(free - ends.begin());
      if (free == ends.end()) {
        ends.push_back(event.end);
      } else {
        *free = event.end;
      }
    }
    const auto [found, added] = numbers_.try_emplace({event.lane, place}, numbers_.size() + 1);
    if (added) name(event.lane, place, found->second);
    return found->second;
  }

 private:
  void name(TraceLane lane, uint64_t place, uint64_t number) {
    const LaneText& text = kLanes[static_cast<size_t>(lane)];
    std::string name = text.name;
    if (lane == TraceLane::kRequests) name += " " + std::to_string(place);
    if (overlaps(lane)) name += " " + std::to_string(place + 1);
    const std::string at = ",\"pid\":" + std::to_string(text.process) +
                           ",\"tid\":" + std::to_string(number) + ",\"args\":{";
    out_ += "{\"ph\":\"M\",\"name\":\"process_name\"" + at + "\"name\":\"" +
            kProcesses[text.process] + "\"}},\n";
    out_ += "{\"ph\":\"M\",\"name\":\"thread_name\"" + at + "\"name\":\"" + name + "\"}},\n";
    out_ += "{\"ph\":\"M\",\"name\":\"thread_sort_index\"" + at +
            "\"sort_index\":" + std::to_string(static_cast<uint64_t>(lane) * 1'000'000 + place) +
            "}},\n";
  }

  std::string& out_;
  std::map<std::pair<TraceLane, uint64_t>, uint64_t> numbers_;
  std::map<size_t, std::vector<Clock::TimePoint>> ends_;  // [lane]: of the last span in each row
};

void write_arguments(std::string& out, const TraceEvent& event) {
  out += ",\"args\":{";
  bool first = true;
  const auto add = [&](const char* name, const std::string& value) {
    if (!std::exchange(first, false)) out += ',';
    out += std::string("\"") + name + "\":" + value;
  };
  for (const TraceEvent::Argument& argument : event.arguments) {
    if (argument.name != nullptr) add(argument.name, std::to_string(argument.value));
  }
  if (event.result != nullptr) add("result", std::string("\"") + event.result + "\"");
  out += "}";
}

}  // namespace

std::string trace_json(const TraceSnapshot& snapshot) {
  const auto begin_of = [&](const TraceEvent& event) {
    return std::max(event.moment ? event.end : event.begin, snapshot.begin);
  };
  std::vector<size_t> order(snapshot.events.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // A span comes before those inside it.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TraceEvent& one = snapshot.events[a];
    const TraceEvent& two = snapshot.events[b];
    if (begin_of(one) != begin_of(two)) return begin_of(one) < begin_of(two);
    if (one.end != two.end) return one.end > two.end;
    return a < b;
  });
  std::string names, events;
  events.reserve(order.size() * 160);
  Rows rows(names);
  for (const size_t index : order) {
    const TraceEvent& event = snapshot.events[index];
    const Clock::TimePoint begin = begin_of(event);
    const LaneText& lane = kLanes[static_cast<size_t>(event.lane)];
    const uint64_t row = rows.row_of(event, begin);
    events += std::string("{\"ph\":\"") + (event.moment ? "i\",\"s\":\"t" : "X") +
              "\",\"name\":\"" + event.name + "\",\"cat\":\"" + lane.name +
              "\",\"pid\":" + std::to_string(lane.process) + ",\"tid\":" + std::to_string(row) +
              ",\"ts\":" + micros(begin - snapshot.begin);
    if (!event.moment) events += ",\"dur\":" + micros(event.end - begin);
    write_arguments(events, event);
    events += "},\n";
  }
  // The last one needs no comma: what the whole is about.
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + names + events +
         "{\"ph\":\"M\",\"name\":\"trace\",\"pid\":1,\"tid\":0,\"args\":{\"seconds\":" +
         seconds_text(snapshot.end - snapshot.begin) +
         ",\"lost\":" + std::to_string(snapshot.lost) +
         ",\"others\":" + (snapshot.others_hidden ? "\"hidden\"" : "\"shown\"") + "}}\n]}\n";
}

}  // namespace spillway
