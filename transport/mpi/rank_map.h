// Gives the process of each rank and the tag of each message. Several ranks of a mesh may be
// threads of one process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "transport/transport.h"

namespace hccl::transport::mpi {

/// A rank's description of its process.
struct Seat {
  std::int32_t world_rank = 0;
  std::int32_t world_size = 0;
  std::uint64_t nonce = 0;
  std::int32_t largest_tag = 0;
};

class RankMap {
 public:
  /// Fails with kNotSupport if the ranks belong to several MPI jobs (the text names two of them) or
  /// if one process has too many ranks.
  static Result<RankMap> make(const std::vector<Seat>& seats) {
    RankMap rank_map;
    std::int64_t largest_tag = seats[0].largest_tag;
    for (std::size_t r = 0; r < seats.size(); ++r) {
      const Seat& seat = seats[r];
      std::size_t process = 0;
      while (process < rank_map.world_ranks_.size() &&
             rank_map.world_ranks_[process] != seat.world_rank) {
        ++process;
      }
      const bool first = process == rank_map.world_ranks_.size();
      if (first) {
        rank_map.world_ranks_.push_back(seat.world_rank);
        rank_map.leaders_.push_back(static_cast<int>(r));
        rank_map.ranks_in_.push_back(0);
      }
      const Seat& leader = seats[static_cast<std::size_t>(rank_map.leaders_[process])];
      if (seat.world_size != seats[0].world_size || seat.nonce != leader.nonce) {
        const std::size_t other =
            seat.nonce != leader.nonce ? static_cast<std::size_t>(rank_map.leaders_[process]) : 0;
        return Status(Code::kNotSupport,
                      "ranks " + std::to_string(other) + " and " + std::to_string(r) +
                          " are not processes of one MPI job; start all ranks with one mpirun, or "
                          "choose another transport",
                      static_cast<int>(r));
      }
      rank_map.process_of_.push_back(static_cast<int>(process));
      rank_map.thread_of_.push_back(rank_map.ranks_in_[process]++);
      rank_map.threads_ = std::max(rank_map.threads_, rank_map.ranks_in_[process]);
      largest_tag = std::min<std::int64_t>(largest_tag, seat.largest_tag);
    }
    const std::int64_t tags = std::int64_t{rank_map.threads_} * rank_map.threads_ * kTagsPerPair;
    if (tags - 1 > largest_tag) {
      return Status(Code::kNotSupport,
                    std::to_string(rank_map.threads_) +
                        " ranks in one process need more tags than this MPI has (" +
                        std::to_string(largest_tag) + ")");
    }
    return rank_map;
  }

  /// The processes' ranks in MPI_COMM_WORLD, without repetition, in the order of the mesh's group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int process_of(int rank) const { return process_of_[static_cast<std::size_t>(rank)]; }
  /// The lowest rank in the process of `rank`.
  int leader_of(int rank) const { return leaders_[static_cast<std::size_t>(process_of(rank))]; }
  int ranks_beside(int rank) const { return ranks_in_[static_cast<std::size_t>(process_of(rank))]; }
  /// The internal lane of the last message, which a rank sends when it closes its mesh.
  static constexpr std::uint32_t kGoodbye = Mesh::kLanes;
  /// Returns a tag that differs for each sending thread, receiving thread and lane.
  int tag(int from, int to, std::uint32_t lane) const {
    return kTagsPerPair * (thread_of_[static_cast<std::size_t>(from)] * threads_ +
                           thread_of_[static_cast<std::size_t>(to)]) +
           static_cast<int>(lane);
  }

 private:
  static constexpr int kTagsPerPair = static_cast<int>(Mesh::kLanes) + 1;
  int threads_ = 0;  ///< the largest number of ranks in one process
  std::vector<int> world_ranks_;
  std::vector<int> leaders_;
  std::vector<int> ranks_in_;
  std::vector<int> process_of_;
  std::vector<int> thread_of_;
};

}  // namespace hccl::transport::mpi
