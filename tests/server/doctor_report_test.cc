#include "server/cli/doctor_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

// 64 KiB a token; loaded at 1 GB/s in 66 us, computed in 1 ms.
DoctorReport good_machine() {
  DoctorReport report;
  report.machine = {.features = {.avx2 = true, .avx_vnni = true, .avx512 = true},
                    .level = kernels::CpuLevel::kAvx512,
                    .threads = 8,
                    .memory_bytes = 32 * kGiB,
                    .memory_free_bytes = 16 * kGiB,
                    .huge_pages = "madvise",
                    .huge_bytes = 64 * kMiB,
                    .huge_bytes_asked = 64 * kMiB};
  report.copy_page_bytes = kMiB;
  report.copies = {.bytes_per_s = 10e9, .page_s = 150e-6};
  report.disk.directory = "/mnt/kv";
  report.disk.free_bytes = 100 * kGiB;
  report.disk.direct = true;
  for (const bool io_uring : {true, false}) {
    report.disk.figures.push_back({.io_uring = io_uring,
                                   .page_bytes = kMiB,
                                   .depth = 8,
                                   .write_bytes_per_s = 5e8,
                                   .read_bytes_per_s = 1e9,
                                   .page_s = 0.1});
  }
  ModelFigures model;
  model.name = "m.gguf";
  model.groups = {{.layers = 32, .kv_heads = 8, .head_dim = 64}};
  model.weight_bytes = 4 * kGiB;
  model.context_tokens = 8192;
  model.compute.prefill = {{0, 1000}};
  model.compute.decode_tokens_per_s = 30;
  model.compute.rate.measured(0, 100, 0.1);
  report.model = model;
  return report;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool refuses(const DoctorReport& report, const std::string& what) {
  const auto all = refusals(report);
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& line) { return line.starts_with(what); });
}

TEST(DoctorReport, a_good_machine_is_refused_nothing) {
  EXPECT_TRUE(refusals(good_machine()).empty());
  EXPECT_TRUE(has(doctor_text(good_machine()), "Refused here\n  nothing"));
}

TEST(DoctorReport, says_from_which_length_on_each_tier_is_worth_its_latency) {
  const std::string text = doctor_text(good_machine());
  // 99 ms before the first byte, then 0.066 ms a token against 1 ms: 105.9 tokens pay it back.
  EXPECT_TRUE(has(text, "from NVMe         loading is quicker from 112 tokens on")) << text;
  EXPECT_TRUE(has(text, "from host memory  loading is quicker from 16 tokens on")) << text;
  EXPECT_TRUE(has(text, "2,048 tokens: 233 ms to load, 2.0 s to compute")) << text;
}

TEST(DoctorReport, recommends_sizes_and_no_host_tier) {
  const std::string text = doctor_text(good_machine());
  EXPECT_TRUE(has(text, "--kv-device-size  7680M (room for 15 whole contexts of 8,192 tokens)"))
      << text;
  EXPECT_TRUE(has(text, "--kv-host-size    0, the default")) << text;
  EXPECT_TRUE(has(text, "--kv-nvme-size    75G with --kv-nvme-dir /mnt/kv")) << text;
}

TEST(DoctorReport, a_disk_slower_than_the_processor_is_left_alone) {
  DoctorReport report = good_machine();
  report.disk.figures[0].read_bytes_per_s = 50e6;  // 1.3 ms a token
  const std::string text = doctor_text(report);
  EXPECT_TRUE(has(text, "from NVMe         computing is quicker at every length")) << text;
  EXPECT_TRUE(has(text, "--kv-nvme-size    none: on this disk loading is slower")) << text;
}

TEST(DoctorReport, a_model_as_large_as_the_memory_is_said_to_be) {
  DoctorReport report = good_machine();
  report.model->weight_bytes = 20 * kGiB;
  EXPECT_TRUE(has(doctor_text(report), "weights leave no room for KV"));
}

TEST(DoctorReport, without_a_model_it_says_what_it_cannot_tell) {
  DoctorReport report = good_machine();
  report.model.reset();
  const std::string text = doctor_text(report);
  EXPECT_TRUE(has(text, "No model was given"));
  EXPECT_FALSE(has(text, "--kv-device-size"));
  EXPECT_TRUE(has(text, "read 1.00 GB/s, write 500 MB/s (8 at once)")) << text;
}

// case S15
TEST(DoctorReport, says_why_io_uring_is_refused_and_what_stands_in) {
  DoctorReport report = good_machine();
  report.disk.why_not_io_uring = "io_uring_setup was refused: Operation not permitted";
  const auto all = refusals(report);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(has(all[0], "io_uring: io_uring_setup was refused: Operation not permitted"));
  EXPECT_TRUE(has(all[0], "pread and pwrite"));
}

TEST(DoctorReport, says_that_a_file_system_takes_no_direct_reads) {
  DoctorReport report = good_machine();
  report.disk.direct = false;
  EXPECT_TRUE(refuses(report, "O_DIRECT: the file system under /mnt/kv"));
  EXPECT_TRUE(has(doctor_text(report), "through the page cache"));
}

// case S16
TEST(DoctorReport, says_that_memory_may_not_be_locked) {
  DoctorReport report = good_machine();
  report.disk.why_not_registered = "only 8192 KiB of memory may be locked";
  EXPECT_TRUE(refuses(report, "registered memory: only 8192 KiB"));

  report = good_machine();
  report.machine.lockable_bytes = kGiB;  // less than the pool would be
  EXPECT_TRUE(refuses(report, "registered memory for the whole pool: only 1.0 GiB"));
  report.machine.privileged = true;
  EXPECT_TRUE(refusals(report).empty());
}

TEST(DoctorReport, says_what_is_wrong_with_huge_pages) {
  DoctorReport report = good_machine();
  report.machine.huge_pages = "never";
  report.machine.huge_bytes = 0;
  EXPECT_TRUE(refuses(report, "huge pages: switched off"));
  report.machine.huge_pages = "always";
  report.machine.huge_bytes = 10 * kMiB;
  EXPECT_TRUE(refuses(report, "huge pages: only 10.0 MiB of 64.0 MiB"));
}

TEST(DoctorReport, says_which_instructions_are_missing) {
  DoctorReport report = good_machine();
  report.machine.level = kernels::CpuLevel::kAvx2;
  EXPECT_TRUE(refuses(report, "faster kernels: SPILLWAY_CPU asks for avx2"));
  report.machine.features = {.avx2 = true};
  EXPECT_TRUE(refuses(report, "AVX-512: "));
  report.machine.features = {};
  report.machine.level = kernels::CpuLevel::kBaseline;
  EXPECT_TRUE(refuses(report, "AVX2: "));
}

TEST(DoctorReport, each_layer_group_loads_at_the_rate_of_its_own_pages) {
  DoctorReport report = good_machine();
  report.model->groups.push_back(
      {.layers = 16, .kv_heads = 8, .head_dim = 64, .window = 512});  // pages of 512 KiB
  report.disk.figures.insert(report.disk.figures.begin() + 1,
                             {.io_uring = true,
                              .page_bytes = 512 << 10,
                              .depth = 16,
                              .write_bytes_per_s = 5e8,
                              .read_bytes_per_s = 17301504,  // 33 pages of the window a second
                              .page_s = 0.01});
  EXPECT_TRUE(has(doctor_text(report), "2,048 tokens: 1.2 s to load")) << doctor_text(report);
}

}  // namespace
}  // namespace spillway::server
