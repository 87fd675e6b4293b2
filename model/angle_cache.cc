#include "model/angle_cache.h"

#include <utility>

namespace spillway::model {

AngleCache::AngleCache(kernels::RopeTable table, uint32_t positions)
    : table_(std::move(table)),
      count_(rope_angle_count(table_)),
      known_(positions),
      angles_(std::make_unique_for_overwrite<float[]>(positions * count_)),
      beyond_(count_) {}

std::span<const float> AngleCache::at(uint32_t position) {
  if (position >= known_.size()) {
    rope_angles(table_, position, beyond_.data());
    return beyond_;
  }
  float* angles = angles_.get() + position * count_;
  if (!known_[position]) rope_angles(table_, position, angles);
  known_[position] = true;
  return {angles, count_};
}

}  // namespace spillway::model
