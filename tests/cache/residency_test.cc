// What may happen to a page in each state, written down once more in other words.
#include "cache/residency.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::cache {
namespace {

constexpr Move kMoves[] = {Move::kDeviceToHost, Move::kDeviceToNvme, Move::kHostToNvme,
                           Move::kNvmeToDevice};

Residency in_tiers(bool host, bool nvme) {
  Residency page;
  if (nvme) page.found_on_nvme();
  if (host) {
    page.begin(Move::kDeviceToHost);
    page.end(true);
  }
  return page;
}

// The moves that may begin, by what the page is in: [host][nvme].
const std::set<Move> kMayBegin[2][2] = {
    {{Move::kDeviceToHost, Move::kDeviceToNvme}, {Move::kDeviceToHost, Move::kNvmeToDevice}},
    {{Move::kDeviceToNvme, Move::kHostToNvme}, {Move::kNvmeToDevice}},
};

TEST(Residency, a_move_begins_where_its_source_is_there_and_its_target_is_not) {
  for (const bool host : {false, true}) {
    for (const bool nvme : {false, true}) {
      for (const Move move : kMoves) {
        EXPECT_EQ(in_tiers(host, nvme).may_begin(move), kMayBegin[host][nvme].contains(move));
      }
      EXPECT_FALSE(in_tiers(host, nvme).may_begin(Move::kNone));
      EXPECT_EQ(in_tiers(host, nvme).nowhere(), !host && !nvme);
    }
  }
}

TEST(Residency, while_a_page_moves_no_other_move_begins_and_its_source_stays) {
  for (const bool host : {false, true}) {
    for (const bool nvme : {false, true}) {
      for (const Move move : kMayBegin[host][nvme]) {
        Residency page = in_tiers(host, nvme);
        page.begin(move);
        EXPECT_FALSE(page.nowhere());
        for (const Move other : kMoves) EXPECT_FALSE(page.may_begin(other));
        EXPECT_EQ(page.may_drop(Tier::kHost), host && move != Move::kHostToNvme);
        EXPECT_EQ(page.may_drop(Tier::kNvme), nvme && move != Move::kNvmeToDevice);
      }
    }
  }
}

TEST(Residency, a_page_is_where_it_was_and_where_it_arrived) {
  for (const bool arrived : {false, true}) {
    for (const bool host : {false, true}) {
      for (const bool nvme : {false, true}) {
        for (const Move move : kMayBegin[host][nvme]) {
          Residency page = in_tiers(host, nvme);
          page.begin(move);
          page.end(arrived);
          const bool to_host = arrived && move == Move::kDeviceToHost;
          const bool to_nvme =
              arrived && (move == Move::kDeviceToNvme || move == Move::kHostToNvme);
          EXPECT_EQ(page.in(Tier::kHost), host || to_host);
          EXPECT_EQ(page.in(Tier::kNvme), nvme || to_nvme);
          EXPECT_EQ(page.move(), Move::kNone);
          for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
            if (!page.in(tier)) continue;
            page.drop(tier);
            EXPECT_FALSE(page.in(tier));
          }
          EXPECT_TRUE(page.nowhere());
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::cache
