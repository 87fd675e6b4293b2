// A doubly linked list whose links lie in its elements: waiting costs no allocation, because what
// waits lives in the frame of the coroutine that waits. Not for threads.
#pragma once

#include "runtime/check.h"

namespace spillway {

template <class T>
class IntrusiveList;

// Base of an element of an IntrusiveList<T>. Must have been unlinked when it dies.
template <class T>
class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { CHECK(!linked()); }

  bool linked() const { return next_ != nullptr; }
  // REQUIRES: linked().
  void unlink() {
    CHECK(linked());
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  friend class IntrusiveList<T>;
  ListNode* prev_ = nullptr;
  ListNode* next_ = nullptr;
};

template <class T>
class IntrusiveList {
 public:
  IntrusiveList() { head_.prev_ = head_.next_ = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() {
    CHECK(empty());
    head_.prev_ = head_.next_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }
  // REQUIRES: !empty().
  T& front() {
    CHECK(!empty());
    return static_cast<T&>(*head_.next_);
  }
  // REQUIRES: `node` is in no list.
  void push_back(T& element) {
    ListNode<T>& node = element;
    CHECK(!node.linked());
    node.prev_ = head_.prev_;
    node.next_ = &head_;
    head_.prev_->next_ = &node;
    head_.prev_ = &node;
  }
  // REQUIRES: !empty().
  T& pop_front() {
    T& element = front();
    static_cast<ListNode<T>&>(element).unlink();
    return element;
  }

 private:
  ListNode<T> head_;
};

}  // namespace spillway
