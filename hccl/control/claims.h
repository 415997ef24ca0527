// Compares the claims of processes to ranks. Two processes may claim the same rank of a job, or
// belong to two attempts of the same agent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/control/roster.h"

namespace hccl::control {

/// A process that has claimed, or will claim, this rank.
struct Claim {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::string machine = {};  ///< see Roster::Host
  std::string address = {};  ///< for people
  std::uint64_t started = 0;
  Attempt attempt = {};
};

/// The root's callbacks for claims of other processes.
struct Claimants {
  /// Finds live processes of the root's machine that will claim a rank. The first argument has the
  /// claims so far, by rank.
  std::function<std::vector<Claim>(const std::vector<Claim>&, const std::string& machine)> find =
      {};
  /// Called when two claims end the world, before any process gets the error.
  std::function<void()> remember = {};
};

/// The error for two processes that claim one rank.
Status two_claims(const Claim& first, const Claim& second);
/// Whether one agent of a launcher started both processes, and started `one` in an earlier attempt
/// than `than`.
bool is_earlier(const Claim& one, const Claim& than);
/// The error for the process of the earlier attempt.
Status earlier_attempt(const Claim& old, const Claim& young);
/// Whether `one` started more than a second before `than`, on the same machine. A smaller
/// difference shows nothing, because two jobs may have been started at once.
bool is_older(const Claim& one, const Claim& than);

}  // namespace hccl::control
