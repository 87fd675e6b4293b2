// What the engine counts itself, as Prometheus' metrics at the time of a scrape. Pure: any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "scheduler/engine.h"

namespace spillway::server {

// Each metric once, with all its labels' values, in the order that the text has them.
std::vector<prometheus::MetricFamily> engine_metrics(const scheduler::EngineStats& stats,
                                                     std::string_view model_name,
                                                     uint32_t page_tokens);

}  // namespace spillway::server
