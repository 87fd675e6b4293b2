// How many pages of a tier each tenant has, and who has more than a fair share (case I2): all that
// is stored, divided by the tenants that are active. A tenant with pages is active until the tier
// was filled `active_turnovers` times since it last stored one; then all its pages are over its
// share.
//
// So a tenant that floods the tier takes free room and what others leave of their shares, and then
// evicts its own pages. O(1) a call.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::cache {

class TenantShares {
 public:
  static constexpr uint64_t kActiveTurnovers = 16;

  explicit TenantShares(uint64_t active_turnovers = kActiveTurnovers)
      : active_turnovers_(active_turnovers) {}

  void charge(uint32_t tenant);     // it stored a page
  void discharge(uint32_t tenant);  // REQUIRES: charged

  bool is_over(uint32_t tenant) const;
  uint64_t pages() const { return pages_; }  // of all tenants
  uint64_t pages(uint32_t tenant) const {
    return tenant < tenants_.size() ? tenants_[tenant].pages : 0;
  }
  uint32_t active() const { return active_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Tenant {
    uint64_t pages = 0;
    uint64_t last_charge = 0;
    bool active = false;
    uint32_t before = kNone, after = kNone;  // in the list of the active ones
  };
  void unlink(uint32_t tenant);

  uint64_t active_turnovers_;
  std::vector<Tenant> tenants_;
  uint32_t first_ = kNone, last_ = kNone;  // active ones, by their last charge
  uint32_t active_ = 0;
  uint64_t pages_ = 0;
  uint64_t charges_ = 0;  // ever
};

}  // namespace spillway::cache
