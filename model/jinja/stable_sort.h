// A merge sort that is safe with any comparison: one that throws, or one that is no order at all
// (NaN), where std::sort may leave its range.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway::model::jinja {

// Sorts `order` stably; `before(a, b)` says whether a goes before b.
template <class T, class Before>
void stable_sort(std::vector<T>& order, const Before& before) {
  std::vector<T> from = order;
  for (size_t width = 1; width < order.size(); width *= 2) {
    from.swap(order);
    for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
      const size_t middle = begin + width < from.size() ? begin + width : from.size();
      const size_t end = middle + width < from.size() ? middle + width : from.size();
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && before(from[right], from[left]));
        order[out] = take_right ? from[right++] : from[left++];
      }
    }
  }
}

}  // namespace spillway::model::jinja
