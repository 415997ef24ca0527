#include "transport/shm/shm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/log.h"
#include "hccl/base/socket.h"
#include "hccl/memory/heap.h"
#include "transport/self_link.h"
#include "transport/shm/handover.h"
#include "transport/shm/link.h"
#include "transport/shm/segment.h"
#include "transport/shm/sleeper.h"

namespace hccl::transport {
namespace {

using shm::Link;
using shm::RankSleeper;
using shm::Segment;

/// The host's memory, and the objects that keep it mapped.
struct Reach {
  HostMemory memory;
  bool any_heap = false;                             // whether any rank has device memory
  std::shared_ptr<memory::Heap> heap;                // this process's device heap
  std::vector<std::shared_ptr<memory::View>> views;  // the heaps of the other processes
};

class ShmMesh final : public Mesh {
 public:
  ShmMesh(const OpenArgs& args, const std::vector<int>& members, std::shared_ptr<Segment> segment,
          std::unique_ptr<EpollSleeper> sleeper, Reach reach)
      : rank_(args.rank),
        reach_(std::move(reach)),
        segment_(std::move(segment)),
        epoll_(std::move(sleeper)),
        sleeper_(*epoll_, segment_ == nullptr ? nullptr : &segment_->state(place(members))),
        by_rank_(static_cast<std::size_t>(args.size), nullptr) {
    const int mine = place(members);
    links_.reserve(members.size());
    for (std::size_t p = 0; p < members.size(); ++p) {
      const int theirs = static_cast<int>(p);
      if (theirs == mine) continue;
      links_.emplace_back(
          rank_, members[p],
          shm::RingWriter(segment_->control(mine, theirs), segment_->ring(mine, theirs)),
          shm::RingReader(segment_->control(theirs, mine), segment_->ring(theirs, mine)),
          &segment_->state(theirs), segment_->wake_fds[p].get());
      by_rank_[static_cast<std::size_t>(members[p])] = &links_.back();
    }
  }

  ~ShmMesh() override {
    for (Link& link : links_) link.close();
  }

  std::string_view name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(by_rank_.size()); }
  Sleeper& sleeper() override { return sleeper_; }

  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    if (refuse(request, peer, lane)) return;
    if (peer == rank_) return self_.send(request, peer, lane, bytes);
    request.begin(peer, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
    by_rank_[static_cast<std::size_t>(peer)]->send(request);
  }

  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override {
    if (refuse(request, peer, lane)) return;
    if (peer == rank_) return self_.recv(request, peer, lane, bytes);
    request.begin(peer, lane, bytes.data(), bytes.size());
    by_rank_[static_cast<std::size_t>(peer)]->recv(request);
  }

  bool progress() override {
    if (abort_.raised()) return fail_all();
    bool moved = false;
    for (Link& link : links_) moved |= link.progress();
    return moved;
  }

  const HostMemory* host_memory() const override {
    return reach_.memory.area.empty() ? nullptr : &reach_.memory;
  }

  void abort(Status status) override {
    abort_.raise(std::move(status));
    epoll_->ring();
  }

 private:
  int place(const std::vector<int>& members) const {
    int place = 0;
    while (members[static_cast<std::size_t>(place)] != rank_) ++place;
    return place;
  }

  /// If this mesh cannot carry the request, fails the request and returns true.
  bool refuse(Request& request, int peer, std::uint32_t lane) {
    if (!abort_.raised() && static_cast<std::size_t>(peer) < by_rank_.size() && lane < kLanes &&
        (peer == rank_ || by_rank_[static_cast<std::size_t>(peer)] != nullptr)) {
      return false;
    }
    if (refused(request, size(), peer, lane, abort_)) return true;
    request.begin(peer, lane, nullptr, 0);
    request.finish(Status(Code::kNotSupport, "the shared memory of rank " + std::to_string(rank_) +
                                                 " does not reach rank " + std::to_string(peer)));
    return true;
  }

  bool fail_all() {
    if (failed_) return false;
    failed_ = true;
    const Status reason = abort_.reason();
    for (Link& link : links_) link.fail(reason);
    self_.fail(reason);
    return true;
  }

  const int rank_;
  Reach reach_;
  std::shared_ptr<Segment> segment_;  // null without peers
  std::unique_ptr<EpollSleeper> epoll_;
  RankSleeper sleeper_;
  AbortFlag abort_;
  bool failed_ = false;
  std::vector<Link> links_;
  std::vector<Link*> by_rank_;  // null for this rank and ranks that are not in members
  SelfLink self_;
};

std::vector<int> host_members(const OpenArgs& args) {
  std::vector<int> members;
  for (int rank = 0; rank < args.size; ++rank) {
    if (args.hosts.empty() || args.hosts[static_cast<std::size_t>(rank)] ==
                                  args.hosts[static_cast<std::size_t>(args.rank)]) {
      members.push_back(rank);
    }
  }
  return members;
}

// Checks only values that are the same on all ranks, so all ranks see the same failure.
Status check(const OpenArgs& args) {
  if (args.size < 1 || args.rank < 0 || args.rank >= args.size ||
      (!args.hosts.empty() && args.hosts.size() != static_cast<std::size_t>(args.size))) {
    return Status(Code::kPara, "shm: rank " + std::to_string(args.rank) + " of " +
                                   std::to_string(args.size) + " with " +
                                   std::to_string(args.hosts.size()) + " host numbers");
  }
  return {};
}

// Maps the device heaps of the host's other processes. Returns the reason if this process cannot,
// otherwise an empty text.
Result<std::string> find_reach(const OpenArgs& args, const std::vector<int>& members,
                               const Segment* segment, Reach& reach) {
  if (segment == nullptr || segment->area().empty()) return std::string();
  std::string apart;
  reach.heap = args.heap;
  reach.memory.ranks = members;
  reach.memory.area = segment->area();
  reach.memory.local_rank =
      static_cast<int>(std::find(members.begin(), members.end(), args.rank) - members.begin());
  const std::int32_t mine = segment->pids[static_cast<std::size_t>(reach.memory.local_rank)];
  for (std::size_t place = 0; place < members.size(); ++place) {
    HostMemory::PeerMemory peer;
    const Fd& fd = segment->heap_fds[place];
    reach.any_heap = reach.any_heap || fd.valid();
    peer.same_process = args.rank == members[place] || (mine != 0 && segment->pids[place] == mine);
    peer.process = segment->pids[place];
    if (args.heap == nullptr) {
      apart = "it has none";
    } else if (peer.same_process) {
      peer.heap = args.heap->base();
      peer.heap_bytes = args.heap->reserve();
    } else if (fd.valid() && apart.empty()) {
      auto view = args.heap->view_of(fd);
      if (view.status().code() == Code::kTcpConnect) return view.status();
      if (view.ok()) {
        peer.heap = (*view)->base();
        peer.heap_bytes = (*view)->size();
        reach.views.push_back(std::move(*view));
      } else {
        apart = view.status().message();
      }
    }
    reach.memory.peers.push_back(peer);
  }
  if (!apart.empty()) apart = "rank " + std::to_string(args.rank) + ": " + apart;
  return apart;
}

// If one rank cannot reach all device memory, no rank may use its peers' device memory: all ranks
// must choose the same algorithms.
void keep_apart(const OpenArgs& args, const std::string& why, Reach& reach) {
  reach.views.clear();
  for (HostMemory::PeerMemory& peer : reach.memory.peers) {
    peer.heap = nullptr;
    peer.heap_bytes = 0;
  }
  if (!reach.any_heap || reach.memory.local_rank != 0) return;
  make_logger(args.config != nullptr ? args.config->log_level : "warn",
              "rank " + std::to_string(args.rank))
      ->warn("the ranks of this host do not share device memory, and copy it, which is slower: {}",
             why);
}

}  // namespace

Result<std::unique_ptr<Mesh>> open_shm_on_host(const OpenArgs& args) {
  HCCL_RETURN_IF_ERROR(check(args));
  const std::vector<int> members = host_members(args);
  auto sleeper = EpollSleeper::create();
  const Result<int> wake =
      sleeper.ok() ? Result<int>((*sleeper)->wake_fd()) : Result<int>(sleeper.status());
  Reach reach;
  HCCL_ASSIGN_OR_RETURN(shm::HandedOver given,
                        shm::hand_over(args, members, wake, [&](const Segment* segment) {
                          return find_reach(args, members, segment, reach);
                        }));
  if (!given.apart.empty()) keep_apart(args, given.apart, reach);
  // All ranks have mapped the heaps now, also the other ranks of this process.
  if (given.segment != nullptr) given.segment->drop_heap_fds();
  return std::unique_ptr<Mesh>(std::make_unique<ShmMesh>(
      args, members, std::move(given.segment), std::move(sleeper).value(), std::move(reach)));
}

Result<std::unique_ptr<Mesh>> open_shm(const OpenArgs& args) {
  HCCL_RETURN_IF_ERROR(check(args));
  for (int rank = 0; rank < args.size && !args.hosts.empty(); ++rank) {
    if (!args.absent(rank) && args.hosts[static_cast<std::size_t>(rank)] !=
                                  args.hosts[static_cast<std::size_t>(args.rank)]) {
      return Status(Code::kNotSupport, "the shm transport needs all ranks on one host, but rank " +
                                           std::to_string(rank) + " is on another one than rank " +
                                           std::to_string(args.rank) + "; use auto or tcp");
    }
  }
  return open_shm_on_host(args);
}

}  // namespace hccl::transport
