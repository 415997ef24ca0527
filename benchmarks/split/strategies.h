// Cuts gradients as other libraries do. Each function returns the index of each segment's last
// gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace split_bench {

/// Makes the buckets of PyTorch's DistributedDataParallel: a bucket is full when its size reaches
/// the cap, which is `first_cap` for the first bucket and `cap` for all others.
std::vector<std::uint32_t> ddp_buckets(std::span<const std::uint64_t> bytes,
                                       std::uint64_t first_cap, std::uint64_t cap);

/// Makes buckets, each with as many gradients as fit without exceeding `cap`.
std::vector<std::uint32_t> full_buckets(std::span<const std::uint64_t> bytes, std::uint64_t cap);

/// Simulates Horovod's loop: in each cycle, except while an allreduce runs, all ready gradients are
/// reduced together, at most `cap` bytes at a time.
std::vector<std::uint32_t> horovod_cycles(std::span<const std::uint64_t> bytes,
                                          std::span<const double> ready,
                                          const std::function<double(std::uint64_t)>& cost,
                                          std::uint64_t cap, double cycle);

std::vector<std::uint32_t> one_each(std::size_t gradients);

}  // namespace split_bench
