// Finds the first of several byte strings in a stream of bytes: an Aho-Corasick automaton, so one
// step per byte whatever the strings, and it knows how much of the end may still become a match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::model {

// Immutable after construction; the state of a stream is the caller's.
class StopMatcher {
 public:
  using State = uint32_t;
  static constexpr State kStart = 0;

  // REQUIRES: no string is empty.
  explicit StopMatcher(const std::vector<std::string>& strings);

  State step(State state, char byte) const;

  // The string that ends at this state: the longest if several do, the first of equal ones.
  std::optional<size_t> match(State state) const {
    if (nodes_[state].match < 0) return std::nullopt;
    return static_cast<size_t>(nodes_[state].match);
  }

  // How many of the last bytes are the beginning of some string.
  size_t pending_bytes(State state) const { return nodes_[state].depth; }

 private:
  struct Node {
    char byte = 0;
    int32_t match = -1;
    uint32_t depth = 0;
    State fail = 0;
    State first_child = 0;  // 0: none, as the root is nobody's child
    State next_sibling = 0;
  };

  State child(State state, char byte) const;
  void link_failures();

  std::vector<Node> nodes_;
};

}  // namespace spillway::model
