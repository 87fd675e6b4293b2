#include "server/cli/doctor_report.h"

#include <algorithm>
#include <cstdio>

#include "scheduler/break_even.h"
#include "scheduler/memory_ledger.h"
#include "server/cli/options.h"
#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string rate_text(double bytes_per_s) {
  return bytes_per_s >= 1e9 ? fixed(bytes_per_s / 1e9, 2) + " GB/s"
                            : fixed(bytes_per_s / 1e6, 0) + " MB/s";
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fixed(seconds * 1e6, 0) + " us";
  if (seconds < 1) return fixed(seconds * 1e3, seconds < 0.1 ? 1 : 0) + " ms";
  return fixed(seconds, 1) + " s";
}

std::string row(const std::string& label, const std::string& value) {
  char text[48];
  std::snprintf(text, sizeof text, "  %-18s", label.c_str());
  return text + value + "\n";
}

std::string machine_text(const DoctorReport& report) {
  const MachineFacts& machine = report.machine;
  std::string text = "This machine\n";
  text += row("processor", std::string(kernels::cpu_level_name(machine.level)) + " kernels, " +
                               std::to_string(machine.threads) +
                               (machine.threads == 1 ? " thread" : " threads"));
  text += row("memory", bytes_text(machine.memory_free_bytes) + " free of " +
                            bytes_text(machine.memory_bytes));
  text += row("memory copies", rate_text(report.copies.bytes_per_s) + ", a page of " +
                                   bytes_text(report.copy_page_bytes) + " alone in " +
                                   time_text(report.copies.page_s));
  for (const std::string& line : machine.gpus) text += row("GPU", line);
  if (machine.gpu_usable) {
    text += row("",
                "serve takes it unless --device cpu says otherwise; what follows is measured "
                "on, and advised for, the processor");
  }
  return text;
}

std::string disk_text(const DiskMeasurement& disk) {
  std::string text = "\nDisk under " + disk.directory + " (" + bytes_text(disk.free_bytes) +
                     " free, " + (disk.direct ? "O_DIRECT" : "through the page cache") + ")\n";
  for (const DiskFigures& figures : disk.figures) {
    text += row(figures.io_uring ? "io_uring" : "threads",
                "pages of " + bytes_text(figures.page_bytes) + ": read " +
                    rate_text(figures.read_bytes_per_s) + ", write " +
                    rate_text(figures.write_bytes_per_s) + " (" + std::to_string(figures.depth) +
                    " at once); one alone in " + time_text(figures.page_s));
  }
  return text;
}

std::string compute_text(const ModelFigures& model) {
  std::string text = "\nCompute, " + model.name + "\n";
  for (const auto& prefill : model.compute.prefill) {
    text += row("prefill at " + grouped_digits(prefill.position),
                fixed(prefill.tokens_per_s, 0) + " tokens/s");
  }
  text += row("decode at " + grouped_digits(model.compute.decode_position),
              fixed(model.compute.decode_tokens_per_s, 1) + " tokens/s, one stream");
  return text;
}

// Of the ring that a server would take: the first one measured.
scheduler::LoadSpeed nvme_speed(const DiskMeasurement& disk, const ModelFigures& model) {
  scheduler::LoadSpeed speed;
  for (const kernels::KvGroupLayout& layout : model.groups) {
    for (const DiskFigures& figures : disk.figures) {
      if (figures.page_bytes != layout.page_bytes()) continue;
      speed.bytes_per_s.push_back(figures.read_bytes_per_s);
      const double moved_s = static_cast<double>(figures.page_bytes) / figures.read_bytes_per_s;
      speed.latency_s = std::max(speed.latency_s, figures.page_s - moved_s);
      break;
    }
  }
  return speed;
}

scheduler::LoadSpeed host_speed(const DoctorReport& report) {
  const double moved_s = static_cast<double>(report.copy_page_bytes) / report.copies.bytes_per_s;
  return {
      .latency_s = std::max(0.0, report.copies.page_s - moved_s),
      .bytes_per_s = std::vector<double>(report.model->groups.size(), report.copies.bytes_per_s)};
}

uint32_t break_even(const scheduler::LoadSpeed& speed, const ModelFigures& model) {
  return scheduler::break_even_tokens(speed, model.groups, model.compute.rate,
                                      model.context_tokens);
}

std::string break_even_text(const scheduler::LoadSpeed& speed, const ModelFigures& model) {
  const uint32_t tokens = break_even(speed, model);
  const uint32_t example = std::min(2048u, model.context_tokens);
  const std::string times =
      grouped_digits(example) +
      " tokens: " + time_text(scheduler::load_seconds(speed, model.groups, example)) +
      " to load, " + time_text(scheduler::compute_seconds(model.compute.rate, example)) +
      " to compute";
  return (tokens == 0 ? "computing is quicker at every length"
                      : "loading is quicker from " + grouped_digits(tokens) + " tokens on") +
         (" (" + times + ")");
}

std::string size_flag(uint64_t bytes) {
  return bytes % (uint64_t{1} << 30) == 0 ? std::to_string(bytes >> 30) + "G"
                                          : std::to_string(bytes >> 20) + "M";
}

scheduler::TierSizes recommended(const DoctorReport& report) {
  scheduler::MachineSizes sizes{.memory_free_bytes = report.machine.memory_free_bytes,
                                .disk_free_bytes = report.disk.free_bytes};
  if (report.model) {
    sizes.weight_bytes = report.model->weight_bytes;
    sizes.nvme_wins = break_even(nvme_speed(report.disk, *report.model), *report.model) != 0;
  }
  return scheduler::recommend_sizes(sizes);
}

std::string nvme_flags(const DoctorReport& report, uint64_t bytes) {
  const bool wins = break_even(nvme_speed(report.disk, *report.model), *report.model) != 0;
  if (!wins) {
    return row("--kv-nvme-size", "none: on this disk loading is slower than computing");
  }
  if (bytes == 0) return row("--kv-nvme-size", "none: too little is free under the directory");
  return row("--kv-nvme-size", size_flag(bytes) + " with --kv-nvme-dir " + report.disk.directory +
                                   " (three quarters of what is free)");
}

std::string recommended_text(const DoctorReport& report) {
  const scheduler::TierSizes sizes = recommended(report);
  const ModelFigures& model = *report.model;
  std::string text = "\nRecommended for spillway serve\n";
  if (sizes.device_bytes == 0) {
    text += row("--kv-device-size", "the model's " + bytes_text(model.weight_bytes) +
                                        " of weights leave no room for KV in what is free");
  } else {
    scheduler::LedgerQuestion question{.groups = model.groups,
                                       .context_tokens = model.context_tokens,
                                       .users = 1,
                                       .device_bytes = sizes.device_bytes};
    question.policy.step_tokens_max = ModelOptions{}.step_tokens_max;
    const auto ledger = scheduler::make_ledger(question);
    const std::string users = ledger ? grouped_digits(ledger->device.users_max) : "no";
    text += row("--kv-device-size", size_flag(sizes.device_bytes) + " (room for " + users +
                                        " whole contexts of " +
                                        grouped_digits(model.context_tokens) + " tokens)");
  }
  text += row("--kv-host-size",
              "0, the default: the device here is the processor, so its pages lie in the "
              "machine's memory already and a host tier would only hold copies of them. With "
              "--kv-host-codec planes it holds more prefixes than the same bytes of device pool, "
              "about an eighth more in f16 and two fifths in bf16, each page decoded when it is "
              "wanted: worth it where prefixes do not fit, and there is no disk for them");
  return text + nvme_flags(report, sizes.nvme_bytes);
}

void add_processor_refusal(const MachineFacts& machine, std::vector<std::string>& out) {
  using kernels::CpuLevel;
  const CpuLevel best = kernels::available_cpu_levels(machine.features).back();
  if (machine.level != best) {
    out.push_back("faster kernels: SPILLWAY_CPU asks for " +
                  std::string(kernels::cpu_level_name(machine.level)) +
                  " though this machine has " + std::string(kernels::cpu_level_name(best)) +
                  "; unset it");
  } else if (best == CpuLevel::kBaseline) {
    out.push_back(
        "AVX2: the processor, or the virtual machine around it, does not offer AVX2 with FMA and "
        "F16C; the kernels take SSE4.2 and are several times slower");
  } else if (best != CpuLevel::kAvx512) {
    out.push_back(
        "AVX-512: the processor, or the virtual machine around it, does not offer it with VNNI; "
        "the kernels take " +
        std::string(kernels::cpu_level_name(best)));
  }
}

void add_memory_refusals(const DoctorReport& report, std::vector<std::string>& out) {
  const MachineFacts& machine = report.machine;
  const uint64_t pool = recommended(report).device_bytes;
  if (!report.disk.why_not_registered.empty()) {
    out.push_back("registered memory: " + report.disk.why_not_registered +
                  "; reads work without, at more processor time each");
  } else if (report.disk.why_not_io_uring.empty() && !machine.privileged &&
             machine.lockable_bytes < pool) {
    out.push_back(
        "registered memory for the whole pool: only " + bytes_text(machine.lockable_bytes) +
        " may be locked (ulimit -l, or LimitMEMLOCK= of a service, raises it); reads work "
        "without, at more processor time each");
  }
  if (machine.huge_pages == "never") {
    out.push_back(
        "huge pages: switched off (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled "
        "allows them); attention over long contexts and disk reads take more processor time");
  } else if (machine.huge_bytes < machine.huge_bytes_asked / 2) {
    out.push_back("huge pages: only " + bytes_text(machine.huge_bytes) + " of " +
                  bytes_text(machine.huge_bytes_asked) +
                  " asked for came; memory is fragmented, or this container has none");
  }
}

}  // namespace

std::vector<std::string> refusals(const DoctorReport& report) {
  std::vector<std::string> out;
  if (!report.disk.why_not_io_uring.empty()) {
    out.push_back("io_uring: " + report.disk.why_not_io_uring +
                  "; a few threads with pread and pwrite stand in for it. Containers often refuse "
                  "it (seccomp=unconfined, or a profile with io_uring, allows it), and so does "
                  "sysctl kernel.io_uring_disabled");
  }
  if (!report.disk.direct) {
    out.push_back("O_DIRECT: the file system under " + report.disk.directory +
                  " does not take it (tmpfs, some network and overlay file systems); reads and "
                  "writes go through the page cache, and the figures above are the cache's. A "
                  "directory on ext4 or XFS takes it");
  }
  add_memory_refusals(report, out);
  add_processor_refusal(report.machine, out);
  return out;
}

std::string doctor_text(const DoctorReport& report) {
  std::string text = machine_text(report) + disk_text(report.disk);
  if (report.model) {
    const ModelFigures& model = *report.model;
    text += compute_text(model) + "\nLoading a prefix against computing it\n";
    text += row("from host memory", break_even_text(host_speed(report), model));
    text += row("from NVMe", break_even_text(nvme_speed(report.disk, model), model));
    text += recommended_text(report);
  } else {
    text +=
        "\nNo model was given, so there is nothing to weigh loading against: --model FILE measures "
        "one and recommends sizes\n";
  }
  text += "\nRefused here\n";
  const std::vector<std::string> refused = refusals(report);
  if (refused.empty()) text += "  nothing: io_uring, O_DIRECT, huge pages and AVX-512 all work\n";
  for (const std::string& sentence : refused) text += "  - " + sentence + "\n";
  return text;
}

}  // namespace spillway::server
