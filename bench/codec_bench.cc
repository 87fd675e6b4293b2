// What a page codec makes of real KV: runs a text through a model, and encodes and decodes the
// pages that come out on one thread. Prints the share of the bytes that is left, as encoded and in
// slots on disk, and GB/s of pages in processor time, beside a copy of the same pages.
//
//   codec_bench MODEL.gguf TEXT [f16|bf16] [REPEATS] [DUMP]
//
// DUMP: a file that the pages are written to as well, for other tools.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "kernels/page_codec.h"
#include "model/tokenizer.h"
#include "model/transformer.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"

namespace spillway::model {
namespace {

constexpr uint32_t kTokensMax = 2048;
constexpr uint32_t kStepTokens = 512;
constexpr size_t kSectorBytes = 4096;

using kernels::PageCodec;

// The pages of a text's prefix, group by group.
class Capture {
 public:
  Capture(Transformer& runner, kernels::Device& device, std::vector<TokenId> tokens)
      : runner_(runner), device_(device), tokens_(std::move(tokens)) {
    std::vector<std::byte*> bases;
    for (const kernels::KvGroupLayout& group : runner.shape().groups) {
      const auto pages = static_cast<uint32_t>(tokens_.size() / group.page_tokens);
      memory_.push_back(device.allocate(group.page_bytes() * pages).value());
      bases.push_back(memory_.back().data);
      auto& table = tables_.emplace_back();
      for (uint32_t i = 0; i < pages; ++i) table.push_back(kernels::PageId{i});
    }
    runner.bind_pages(bases);
  }

  Task<> run() {
    const auto event = device_.make_event();
    const auto count = static_cast<uint32_t>(tokens_.size());
    for (uint32_t begin = 0; begin < count; begin += kStepTokens) {
      StepBatch batch;
      SequenceStep& sequence = batch.sequences.emplace_back();
      sequence.tokens = std::span(tokens_).subspan(begin, std::min(kStepTokens, count - begin));
      sequence.position = begin;
      for (const auto& table : tables_) sequence.tables.push_back(table);
      StepResult result;
      runner_.enqueue(batch, result);
      device_.compute().record(*event);
      co_await event->wait();
      runner_.collect(batch, result);
    }
  }

  std::vector<std::span<const std::byte>> pages(size_t group) const {
    std::vector<std::span<const std::byte>> pages;
    const size_t bytes = runner_.shape().groups[group].page_bytes();
    for (size_t i = 0; i < tables_[group].size(); ++i) {
      pages.emplace_back(memory_[group].data + i * bytes, bytes);
    }
    return pages;
  }

 private:
  Transformer& runner_;
  kernels::Device& device_;
  std::vector<TokenId> tokens_;
  std::vector<kernels::DeviceMemory> memory_;
  std::vector<std::vector<kernels::PageId>> tables_;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// GB/s of the quickest of some rounds over `bytes`.
double rate(int repeats, size_t bytes, const std::function<void()>& work) {
  double fastest = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double begun = processor_seconds();
    work();
    fastest = std::min(fastest, processor_seconds() - begun);
  }
  return static_cast<double>(bytes) / fastest / 1e9;
}

void measure(size_t group, const std::vector<std::span<const std::byte>>& pages, int repeats) {
  if (pages.empty()) return;
  const size_t page_bytes = pages.front().size(), total = page_bytes * pages.size();
  kernels::PageCoder coder;
  std::vector<std::vector<std::byte>> encoded(pages.size());
  std::vector<std::byte> room(page_bytes + page_bytes / 8), page(page_bytes);
  size_t bytes = 0, sectors = 0, least = page_bytes, most = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    const size_t size = coder.encode(PageCodec::kPlanes, pages[i], room);
    encoded[i].assign(room.begin(), room.begin() + static_cast<ptrdiff_t>(size));
    bytes += size;
    sectors += (size + kSectorBytes - 1) / kSectorBytes;
    least = std::min(least, size);
    most = std::max(most, size);
  }
  const double copied = rate(repeats, total, [&] {
    for (const auto& from : pages) std::memcpy(page.data(), from.data(), page_bytes);
  });
  const double in = rate(repeats, total, [&] {
    for (const auto& from : pages) coder.encode(PageCodec::kPlanes, from, room);
  });
  bool same = true;
  const double out = rate(repeats, total, [&] {
    for (const auto& from : encoded) same &= coder.decode(PageCodec::kPlanes, from, page);
  });
  for (size_t i = 0; i < pages.size(); ++i) {
    same = same && coder.decode(PageCodec::kPlanes, encoded[i], page) &&
           std::equal(page.begin(), page.end(), pages[i].begin());
  }
  const auto share = [&](size_t part) {
    return static_cast<double>(part) / static_cast<double>(total);
  };
  std::printf(
      "group %zu: %zu pages of %zu KiB; left %.3f (a page %.3f to %.3f), in sectors %.3f; encode "
      "%.2f GB/s, decode %.2f GB/s, copy %.1f GB/s%s\n",
      group, pages.size(), page_bytes >> 10, share(bytes), share(least * pages.size()),
      share(most * pages.size()), share(sectors * kSectorBytes), in, out, copied,
      same ? "" : "  NOT THE SAME BITS");
}

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: codec_bench MODEL.gguf TEXT [f16|bf16] [REPEATS] [DUMP]\n");
    return 2;
  }
  const auto file = GgufFile::open(argv[1]);
  if (!file) return fail(file.error());
  auto tokenizer = Tokenizer::create(*file);
  if (!tokenizer) return fail(tokenizer.error());
  std::ifstream in(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<TokenId> tokens = (*tokenizer)->encode(text, {});
  tokens.resize(std::min<size_t>(tokens.size(), kTokensMax) / 16 * 16);
  if (tokens.empty()) return fail(invalid_argument("the text has no page of tokens"));
  const auto level = kernels::cpu_level_from_environment();
  if (!level) return fail(level.error());
  const bool bf16 = argc > 3 && std::string(argv[3]) == "bf16";
  auto device =
      kernels::make_cpu_device({.threads = 2, .level = std::string(cpu_level_name(*level))});
  auto runner =
      Transformer::create(*file, *device,
                          {.level = *level,
                           .kv_type = bf16 ? kernels::KvType::kBf16 : kernels::KvType::kF16,
                           .threads = 2});
  if (!runner) return fail(runner.error());
  Capture capture(**runner, *device, std::move(tokens));
  RealClock clock;
  EventfdParker parker;
  {
    EngineLoop loop(clock, parker);
    loop.run(capture.run());
    device.reset();
  }
  std::printf("%s, %s KV\n", argv[1], bf16 ? "bf16" : "f16");
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 10;
  std::ofstream dump;
  if (argc > 5) dump.open(argv[5], std::ios::binary);
  for (size_t group = 0; group < (*runner)->shape().groups.size(); ++group) {
    const auto pages = capture.pages(group);
    measure(group, pages, repeats);
    for (const auto& page : pages) {
      dump.write(reinterpret_cast<const char*>(page.data()),
                 static_cast<std::streamsize>(page.size()));
    }
  }
  return 0;
}

}  // namespace
}  // namespace spillway::model

int main(int argc, char** argv) { return spillway::model::run(argc, argv); }
