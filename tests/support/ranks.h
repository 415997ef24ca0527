// Ranks for tests: one function runs on N ranks, which are threads of the test program or processes
// under mpirun. Tests describe the work of a rank, and work with both.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "transport/transport.h"

namespace hccl::testing {

/// One rank of a run. Used by the thread of that rank.
class Rank {
 public:
  Rank(int rank, int size, transport::BootstrapExchange exchange);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// The arguments of open(): all ranks on one host, 127.0.0.1, a key that all ranks know. Valid
  /// while this object lives.
  transport::OpenArgs open_args(Deadline deadline) const;
  /// A mesh over the named transport; all ranks call it. Opening may take 30 s.
  Result<std::unique_ptr<transport::Mesh>> open(std::string_view transport,
                                                Wire wire = Wire::kAuto);
  /// Returns once every rank is here, or after 60 s.
  void barrier() const;
  const transport::BootstrapExchange& exchange() const { return exchange_; }

 private:
  int rank_;
  int size_;
  transport::BootstrapExchange exchange_;
  Config config_;
};

/// Runs `body` once per rank and returns when all have returned. If ranks are processes, `size` is
/// the number of processes, and `body` runs once in this process. Defined in thread_ranks.cc and in
/// mpi_ranks.cc.
void run_ranks(int size, const std::function<void(Rank&)>& body);
/// The sizes that run_ranks supports in this program.
std::vector<int> possible_sizes();
/// Returns whether all ranks are threads of this process.
bool ranks_are_threads();

/// Drives the mesh until all requests are done; returns their first failure, or kTimeout after
/// `at_most`.
Status wait_all(transport::Mesh& mesh, const std::vector<transport::Request*>& requests,
                std::chrono::milliseconds at_most = std::chrono::seconds(60));
/// Drives the mesh until the request is done; returns its status, or kTimeout after `at_most`.
Status wait_one(transport::Mesh& mesh, const transport::Request& request,
                std::chrono::milliseconds at_most = std::chrono::seconds(60));

/// Sends this many bytes between all pairs of ranks and checks them; all ranks call it.
void exchange_all(transport::Mesh& mesh, std::size_t bytes);
/// Waits without spinning: sleeps whenever nothing moves. Returns false after a sleep of 15 s,
/// which shows a lost wake-up.
bool sleep_until_done(transport::Mesh& mesh, const transport::Request& request);

/// Bytes that depend on the seed and on every position.
std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed);
/// Compares two vectors faster than ==, which compares byte by byte.
bool same(const std::vector<std::byte>& one, const std::vector<std::byte>& other);

}  // namespace hccl::testing
