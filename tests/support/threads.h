// The ranks of a test as threads.
#pragma once

#include <thread>
#include <vector>

namespace hccl::testing {

/// Runs body(0) to body(size - 1) on a thread each, and returns when all have returned.
template <class Body>
void on_threads(int size, const Body& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back([&body, i] { body(i); });
}

}  // namespace hccl::testing
