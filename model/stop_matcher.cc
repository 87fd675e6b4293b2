#include "model/stop_matcher.h"

#include "runtime/check.h"

namespace spillway::model {

StopMatcher::StopMatcher(const std::vector<std::string>& strings) : nodes_(1) {
  for (size_t index = 0; index < strings.size(); ++index) {
    CHECK(!strings[index].empty());
    State at = kStart;
    for (const char byte : strings[index]) {
      State next = child(at, byte);
      if (next == 0) {
        next = static_cast<State>(nodes_.size());
        Node node;
        node.byte = byte;
        node.depth = nodes_[at].depth + 1;
        node.next_sibling = nodes_[at].first_child;
        nodes_[at].first_child = next;
        nodes_.push_back(node);
      }
      at = next;
    }
    if (nodes_[at].match < 0) nodes_[at].match = static_cast<int32_t>(index);
  }
  link_failures();
}

StopMatcher::State StopMatcher::child(State state, char byte) const {
  State next = nodes_[state].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

// Breadth first: a node's failure state is shallower than it, so it is linked before.
void StopMatcher::link_failures() {
  std::vector<State> queue = {kStart};
  for (size_t head = 0; head < queue.size(); ++head) {
    const State parent = queue[head];
    for (State at = nodes_[parent].first_child; at != 0; at = nodes_[at].next_sibling) {
      Node& node = nodes_[at];
      node.fail = parent == kStart ? kStart : step(nodes_[parent].fail, node.byte);
      if (node.match < 0) node.match = nodes_[node.fail].match;
      queue.push_back(at);
    }
  }
}

StopMatcher::State StopMatcher::step(State state, char byte) const {
  for (;;) {
    const State next = child(state, byte);
    if (next != 0) return next;
    if (state == kStart) return kStart;
    state = nodes_[state].fail;
  }
}

}  // namespace spillway::model
