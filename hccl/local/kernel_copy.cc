#include "hccl/local/kernel_copy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "hccl/base/process_memory.h"

namespace hccl::local {
namespace {

// Bytes copied between two checks for a failure of the operation.
constexpr std::size_t kPiece = std::size_t{1} << 20;
// Copies that are slow in the kernel (kernels::repeats_slowly) go through a buffer that fits into
// the caches.
constexpr std::size_t kBetween = std::size_t{128} << 10;
constexpr std::size_t kPage = 4096;
static_assert(kFreeOfCopies + kBetween + kPage <= Staging::kChunks);

// Returns the address of the buffer for slow copies. Its offset in the page makes copies from and
// to `address` fast.
std::byte* between(const Region& region, std::uint64_t address) {
  return region.staging().chunks(region.local_rank()) + Staging::kChunks - kBetween - kPage +
         (address + kPage / 2) % kPage / kCacheLine * kCacheLine;
}

// Exchanges a few bytes between all ranks. One rank may still wait in the barrier at which the
// ranks' engines open, while another waits here. So this function announces the same call as that
// barrier; otherwise the root of the control tree would report different calls.
template <class Give>
Status meet(Region& region, const Give& mine, std::vector<Give>& all) {
  static_assert(sizeof(Give) <= Slot::kPayload);
  const Envelope call = envelope(Call{}, 0, 0);
  region.begin(call, false);
  std::memcpy(region.payload(), &mine, sizeof mine);
  region.announce();
  HCCL_RETURN_IF_ERROR(region.await_announced());
  all.resize(static_cast<std::size_t>(region.size()));
  for (int peer = 0; peer < region.size(); ++peer) {
    std::memcpy(&all[static_cast<std::size_t>(peer)], region.payload(peer), sizeof mine);
  }
  return {};
}

Result<bool> all_agree(Region& region, bool yes) {
  std::vector<unsigned char> all;
  HCCL_RETURN_IF_ERROR(meet(region, static_cast<unsigned char>(yes), all));
  return std::find(all.begin(), all.end(), 0) == all.end();
}

// Returns the reason why a copy between this rank and `local_rank` failed.
Status not_copied(Region& region, const Operation& op, int local_rank, int error) {
  const auto never = [](int) { return false; };
  // The peer's process has ended: waits for the root's report, which has the reason.
  if (error == ESRCH) {
    return region.waits().until(local_rank, never, [&](int peer) { return peer == local_rank; });
  }
  // If the operation has failed, a peer that learned of the failure earlier may have freed its
  // buffers.
  if (Status why = region.waits().failure(); !why.ok()) return why;
  if (error != EFAULT) {
    // If the kernel refuses even a copy within this process, the kernel refuses all copies.
    const bool none = !accessible(&error, sizeof error, false);
    region.refuse({none ? region.local_rank() : local_rank, error});
    return Status(Code::kAgain, "the kernel refuses a copy");
  }
  const Descriptor& mine = op.peers[static_cast<std::size_t>(region.local_rank())].where;
  const Blocks& blocks = op.blocks;
  // NOLINTBEGIN(performance-no-int-to-ptr): addresses of this process
  const bool whole = (!blocks.gives(region.local_rank()) ||
                      accessible(reinterpret_cast<const void*>(mine.in), mine.in_bytes, false)) &&
                     (!blocks.takes(region.local_rank()) ||
                      accessible(reinterpret_cast<const void*>(mine.out), mine.out_bytes, true));
  // NOLINTEND(performance-no-int-to-ptr)
  const int rank = region.rank_of(whole ? local_rank : region.local_rank());
  return Status(Code::kPara,
                to_string(region.waits().call()) + ": a buffer of rank " + std::to_string(rank) +
                    " is outside the memory of its process, or in memory that the kernel cannot "
                    "copy (HCCL_CMA=off avoids such copies)",
                rank);
}

// copy(peer, at, length) returns 0 or an errno. Before each piece this rank checks whether the
// operation has failed: after a failure its peers soon reuse their buffers.
template <class Copy>
Status by_pieces(Region& region, const Operation& op, int local_rank, std::size_t bytes,
                 std::size_t piece, Copy&& copy) {
  const auto& peer = region.memory().peers[static_cast<std::size_t>(local_rank)];
  const AbortFlag* const abort = region.waits().abort();
  for (std::size_t at = 0; at < bytes; at += piece) {
    if (abort != nullptr && abort->raised()) return abort->reason();
    const int error = copy(peer, at, std::min(piece, bytes - at));
    if (error != 0) return not_copied(region, op, local_rank, error);
  }
  return {};
}

}  // namespace

// Tests copies between the processes. Each rank announces a number, the number's address, and the
// address of an array with an element for each rank. Each rank reads the number of the first rank
// of each other process, and writes its own number into that rank's array. If a number read from
// memory differs from the announced number, the copy went to the wrong process or was not allowed.
Result<bool> attach(Region& region) {
  const auto& peers = region.memory().peers;
  const auto other_process = [&](std::size_t local_rank) {
    return !peers[local_rank].same_process;
  };
  bool yes = false;
  for (std::size_t i = 0; i < peers.size(); ++i) yes = yes || other_process(i);
  if (!yes) return false;
  // The kernel's decision depends on the thread that copies and on the other process, but not on
  // the threads of the other process. So each rank tests its own copies, with only the first rank
  // of each other process.
  std::set<pid_t> processes;
  std::vector<bool> stands(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    stands[i] = peers[i].process == 0 || processes.insert(peers[i].process).second;
  }
  struct Shown {
    std::uint64_t number;
    std::uint64_t at;     // address of `number`
    std::uint64_t marks;  // address of an array with an element for each rank of the host
  };
  std::vector<std::uint64_t> marks(peers.size());
  Shown mine{};
  mine.at = reinterpret_cast<std::uintptr_t>(&mine.number);
  mine.marks = reinterpret_cast<std::uintptr_t>(marks.data());
  mine.number =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) *
          0x9E3779B97F4A7C15u +
      mine.at + static_cast<std::uint64_t>(region.local_rank());
  std::vector<Shown> shown;
  HCCL_RETURN_IF_ERROR(meet(region, mine, shown));
  for (std::size_t local_rank = 0; local_rank < shown.size(); ++local_rank) {
    if (!other_process(local_rank) || !stands[local_rank]) continue;
    const pid_t process = peers[local_rank].process;
    const std::uint64_t mark = shown[local_rank].marks +
                               static_cast<std::uint64_t>(region.local_rank()) * sizeof mine.number;
    std::uint64_t number = 0;
    // This rank writes only after the number has shown that this is the right process.
    if (process <= 0 ||
        copy_from_process(process, shown[local_rank].at, &number, sizeof number) != 0 ||
        number != shown[local_rank].number ||
        copy_to_process(process, mark, &mine.number, sizeof mine.number) != 0) {
      yes = false;
    }
  }
  HCCL_ASSIGN_OR_RETURN(yes, all_agree(region, yes));
  for (std::size_t local_rank = 0; local_rank < shown.size(); ++local_rank) {
    if (!stands[static_cast<std::size_t>(region.local_rank())]) break;
    if (other_process(local_rank) && marks[local_rank] != shown[local_rank].number) yes = false;
  }
  return all_agree(region, yes);
}

Status finish_copies(Region& region, Status copied) {
  if (!copied.ok() && copied.code() != Code::kAgain) return copied;
  HCCL_RETURN_IF_ERROR(region.barrier());
  for (int local_rank = 0; local_rank < region.size(); ++local_rank) {
    const auto refusal = region.refusal_of(local_rank);
    if (!refusal) continue;
    const int rank = region.rank_of(refusal->local_rank);
    const std::string whose = refusal->local_rank == local_rank
                                  ? "any process"
                                  : "the process of rank " + std::to_string(rank);
    return Status(Code::kSyscall,
                  to_string(region.waits().call()) + ": the kernel no longer lets rank " +
                      std::to_string(region.rank_of(local_rank)) +
                      " copy from or to the memory of " + whose + " (" +
                      std::strerror(refusal->error) +
                      "): its permissions have changed since the communicator was made (prctl, "
                      "seccomp, a change of the user); HCCL_CMA=off does without such copies",
                  rank);
  }
  return {};
}

bool copies_refused(const Region& region, const Status& status) {
  if (status.code() != Code::kSyscall) return false;
  if (region.waits().abort() != nullptr && region.waits().abort()->raised()) return false;
  for (int local_rank = 0; local_rank < region.size(); ++local_rank) {
    if (region.refusal_of(local_rank)) return true;
  }
  return false;
}

Status fetch(Region& region, const Operation& op, int local_rank, std::uint64_t from, std::byte* to,
             std::size_t bytes) {
  const bool slow = kernels::repeats_slowly(from, reinterpret_cast<std::uintptr_t>(to));
  std::byte* const through = between(region, from);
  const auto copy = [&](const auto& peer, std::size_t at, std::size_t length) {
    if (peer.same_process) {
      // An address of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
      kernels::copy(reinterpret_cast<const std::byte*>(from + at), to + at, length,
                    kernels::Store::kCached);
      return 0;
    }
    if (!slow) return copy_from_process(peer.process, from + at, to + at, length);
    const int error = copy_from_process(peer.process, from + at, through, length);
    if (error == 0) kernels::copy(through, to + at, length, kernels::Store::kCached);
    return error;
  };
  return by_pieces(region, op, local_rank, bytes, slow ? kBetween : kPiece, copy);
}

Status store(Region& region, const Operation& op, int local_rank, std::uint64_t to,
             const std::byte* from, std::size_t bytes) {
  const bool slow = kernels::repeats_slowly(reinterpret_cast<std::uintptr_t>(from), to);
  std::byte* const through = between(region, to);
  const auto copy = [&](const auto& peer, std::size_t at, std::size_t length) {
    if (peer.same_process) {
      // An address of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
      kernels::copy(from + at, reinterpret_cast<std::byte*>(to + at), length,
                    kernels::Store::kCached);
      return 0;
    }
    if (!slow) return copy_to_process(peer.process, to + at, from + at, length);
    kernels::copy(from + at, through, length, kernels::Store::kCached);
    return copy_to_process(peer.process, to + at, through, length);
  };
  return by_pieces(region, op, local_rank, bytes, slow ? kBetween : kPiece, copy);
}

}  // namespace hccl::local
