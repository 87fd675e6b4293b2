#include "cache/tenant_shares.h"

#include "runtime/check.h"

namespace spillway::cache {

void TenantShares::unlink(uint32_t tenant) {
  Tenant& gone = tenants_[tenant];
  (gone.before == kNone ? first_ : tenants_[gone.before].after) = gone.after;
  (gone.after == kNone ? last_ : tenants_[gone.after].before) = gone.before;
  gone.active = false;
  --active_;
}

void TenantShares::charge(uint32_t tenant) {
  if (tenant >= tenants_.size()) tenants_.resize(tenant + 1);
  Tenant& charged = tenants_[tenant];
  ++charged.pages;
  ++pages_;
  charged.last_charge = ++charges_;
  if (charged.active) unlink(tenant);
  charged.active = true;
  charged.before = last_;
  charged.after = kNone;
  (last_ == kNone ? first_ : tenants_[last_].after) = tenant;
  last_ = tenant;
  ++active_;
  while (tenants_[first_].last_charge + active_turnovers_ * pages_ < charges_) unlink(first_);
}

void TenantShares::discharge(uint32_t tenant) {
  CHECK(tenant < tenants_.size());
  CHECK(tenants_[tenant].pages > 0);
  --tenants_[tenant].pages;
  --pages_;
  if (tenants_[tenant].pages == 0 && tenants_[tenant].active) unlink(tenant);
}

bool TenantShares::is_over(uint32_t tenant) const {
  if (tenant >= tenants_.size()) return false;
  const Tenant& asked = tenants_[tenant];
  return asked.active ? asked.pages * active_ > pages_ : asked.pages > 0;
}

}  // namespace spillway::cache
