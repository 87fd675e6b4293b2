#include "runtime/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/prng.h"

namespace spillway {
namespace {

using std::chrono::microseconds;

Clock::TimePoint at(int64_t us) {
  return Clock::TimePoint{} + std::chrono::hours(1) + microseconds(us);
}

TraceEvent span(TraceLane lane, int64_t begin_us, int64_t end_us, uint64_t id = 0) {
  return {.name = "work", .lane = lane, .id = id, .begin = at(begin_us), .end = at(end_us)};
}

TEST(TraceTest, is_off_until_somebody_holds_it) {
  Trace trace;
  EXPECT_FALSE(trace.on());
  trace.hold();
  trace.hold();
  trace.release();
  EXPECT_TRUE(trace.on());
  trace.add(span(TraceLane::kSteps, 0, 1));
  EXPECT_EQ(trace.snapshot(at(0), at(9)).events.size(), 1u);
  trace.release();
  EXPECT_FALSE(trace.on());
  trace.hold();  // what was recorded before is gone
  EXPECT_TRUE(trace.snapshot(at(0), at(9)).events.empty());
  trace.release();
}

TEST(TraceTest, a_snapshot_has_what_ended_in_its_time) {
  Trace trace;
  trace.hold();
  for (int64_t us = 0; us < 100; us += 10) trace.add(span(TraceLane::kSteps, us, us + 10));
  const TraceSnapshot taken = trace.snapshot(at(35), at(70));
  ASSERT_EQ(taken.events.size(), 4u);
  EXPECT_EQ(taken.events.front().end, at(40));
  EXPECT_EQ(taken.events.back().end, at(70));
  EXPECT_EQ(taken.lost, 0u);
  trace.release();
}

TEST(TraceTest, the_ring_keeps_the_newest_and_counts_the_others) {
  Trace trace;
  trace.hold();
  constexpr int64_t kEvents = Trace::kEventsMax + 1000;
  for (int64_t us = 0; us < kEvents; ++us) trace.add(span(TraceLane::kSteps, us, us + 1));
  const TraceSnapshot all = trace.snapshot(at(0), at(kEvents));
  ASSERT_EQ(all.events.size(), Trace::kEventsMax);
  EXPECT_EQ(all.lost, 1000u);
  EXPECT_EQ(all.events.front().begin, at(1000));
  EXPECT_EQ(all.events.back().end, at(kEvents));
  EXPECT_TRUE(std::is_sorted(all.events.begin(), all.events.end(),
                             [](const auto& a, const auto& b) { return a.end < b.end; }));
  // Nothing of the last second was lost.
  EXPECT_EQ(trace.snapshot(at(kEvents - 500), at(kEvents)).lost, 0u);
  trace.release();
}

// The lines of one kind, in order.
std::vector<std::string> lines_of(const std::string& json, const std::string& kind) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < json.size();) {
    const size_t end = std::min(json.find('\n', at), json.size());
    const std::string line = json.substr(at, end - at);
    if (line.starts_with("{\"ph\":\"" + kind + "\"")) lines.push_back(line);
    at = end + 1;
  }
  return lines;
}

double number(const std::string& line, const std::string& field) {
  const size_t found = line.find("\"" + field + "\":");
  return found == line.npos ? -1 : std::stod(line.substr(found + field.size() + 3));
}

TEST(TraceJson, gives_each_span_its_times_and_arguments) {
  TraceSnapshot taken{.begin = at(100), .end = at(5'000'100), .events = {}, .lost = 3};
  taken.events.push_back({.name = "read",
                          .lane = TraceLane::kReads,
                          .begin = at(150),
                          .end = at(175),
                          .arguments = {{{"bytes", 4096}, {"offset", 8192}}},
                          .result = "ok"});
  taken.events.push_back({.name = "evicted",
                          .lane = TraceLane::kEngine,
                          .moment = true,
                          .end = at(180),
                          .arguments = {{{"pages", 2}}}});
  taken.events.push_back(span(TraceLane::kRequests, 20, 170, 7));  // began before the snapshot
  const std::string json = trace_json(taken);
  EXPECT_NE(json.find(R"({"ph":"X","name":"read","cat":"reads","pid":3,"tid":2,"ts":50.000,)"
                      R"("dur":25.000,"args":{"bytes":4096,"offset":8192,"result":"ok"}},)"),
            json.npos)
      << json;
  EXPECT_NE(json.find(R"({"ph":"i","s":"t","name":"evicted","cat":"engine","pid":1,"tid":3,)"
                      R"("ts":80.000,"args":{"pages":2}},)"),
            json.npos)
      << json;
  EXPECT_NE(json.find(R"("name":"work","cat":"request","pid":4,"tid":1,"ts":0.000,"dur":70.000)"),
            json.npos)
      << json;
  EXPECT_NE(json.find(R"("args":{"name":"request 7"})"), json.npos);
  EXPECT_NE(json.find(R"("args":{"seconds":5.000,"lost":3,"others":"shown"})"), json.npos);
}

TEST(TraceJson, an_empty_snapshot_is_whole) {
  const std::string json = trace_json({.begin = at(0), .end = at(0), .events = {}, .lost = 0});
  EXPECT_TRUE(json.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{"));
  EXPECT_TRUE(json.ends_with("}}\n]}\n"));
}

// Spans of one row are apart or one is inside the other, and times never go back.
TEST(TraceJson, rows_hold_spans_that_do_not_cross) {
  Prng rng(20261130);
  TraceSnapshot taken{.begin = at(0), .end = at(20000), .events = {}, .lost = 0};
  for (int i = 0; i < 500; ++i) {  // of the disk: any that overlap
    const auto begin = static_cast<int64_t>(rng.below(10000));
    const auto lane = rng.below(2) == 0 ? TraceLane::kReads : TraceLane::kWrites;
    taken.events.push_back(span(lane, begin, begin + static_cast<int64_t>(rng.below(300))));
  }
  for (int64_t us = 0; us < 10000; us += 100) {  // a request's, nested
    taken.events.push_back(span(TraceLane::kRequests, us + 10, us + 30, us % 300));
    taken.events.push_back(span(TraceLane::kRequests, us, us + 100, us % 300));
  }
  const std::string json = trace_json(taken);
  std::vector<std::string> spans = lines_of(json, "X");
  ASSERT_EQ(spans.size(), taken.events.size());
  double last = 0;
  std::map<double, std::vector<double>> open;  // [row]: ends of the spans around
  size_t most = 0;
  for (const std::string& line : spans) {
    const double begin = number(line, "ts"), end = begin + number(line, "dur");
    EXPECT_GE(begin, last);
    EXPECT_GE(end, begin);
    last = begin;
    std::vector<double>& around = open[number(line, "tid")];
    while (!around.empty() && around.back() <= begin) around.pop_back();
    if (!around.empty()) EXPECT_LE(end, around.back()) << line;
    const bool disk = line.find("\"cat\":\"re") != line.npos && line.find("request") == line.npos;
    if (disk) EXPECT_TRUE(around.empty()) << line;
    around.push_back(end);
    most = std::max(most, around.size());
  }
  EXPECT_EQ(most, 2u);
  EXPECT_GT(open.size(), 8u);
}

}  // namespace
}  // namespace spillway
