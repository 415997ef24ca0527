// How other libraries cut the same gradients. Each function returns each segment's last gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace split_bench {

/// PyTorch's DistributedDataParallel: a bucket is full when its size reaches the cap: `first_cap`
/// for the first bucket, `cap` for the others.
std::vector<std::uint32_t> ddp_buckets(std::span<const std::uint64_t> bytes,
                                       std::uint64_t first_cap, std::uint64_t cap);

/// Buckets, each with as many gradients as fit without exceeding `cap`.
std::vector<std::uint32_t> full_buckets(std::span<const std::uint64_t> bytes, std::uint64_t cap);

/// Horovod's loop: once in each cycle, except while an allreduce runs, all ready gradients are
/// reduced together, `cap` bytes at a time.
std::vector<std::uint32_t> horovod_cycles(std::span<const std::uint64_t> bytes,
                                          std::span<const double> ready,
                                          const std::function<double(std::uint64_t)>& cost,
                                          std::uint64_t cap, double cycle);

std::vector<std::uint32_t> one_each(std::size_t gradients);

}  // namespace split_bench
