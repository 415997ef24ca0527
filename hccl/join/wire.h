// The control protocol between a rank and the coordinator: frames (32-bit length, then bytes) whose
// first byte is the kind. All frames are read with ByteReader. The limits of sizes are below.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl::join::wire {

inline constexpr std::uint32_t kVersion = 7;
inline constexpr std::size_t kHelloCap = 4096;      ///< a frame before admission
inline constexpr std::size_t kAgreementCap = 2048;  ///< Config::agreement() in a hello
inline constexpr std::size_t kTextCap = 4096;       ///< a failure's text
inline constexpr std::size_t kBlobCap = 64 << 10;   ///< one rank's part of an exchange
inline constexpr std::size_t kAwaitedCap = 64;      ///< peers that a stalled rank names
inline constexpr std::uint32_t kRanksCap = 32768;
inline constexpr std::size_t kScopesCap = 4096;  ///< gatherings or stalled communicators at a time
inline constexpr std::size_t kFrameCap = 256 << 10;               ///< a frame from an admitted rank
inline constexpr std::size_t kReplyCap = std::size_t{256} << 20;  ///< a frame from the coordinator

enum class Kind : std::uint8_t {
  kHello = 1,     ///< rank to coordinator: rank, process, host
  kTable = 2,     ///< coordinator to ranks: all ranks
  kRefused = 3,   ///< coordinator to rank: cannot join, and the reason
  kExchange = 4,  ///< rank to coordinator: one part; coordinator to ranks: all parts
  kFailure = 5,   ///< both ways: a communicator has failed
  kStall = 6,     ///< rank to coordinator: the call in which it waits, and the absent peers
  kLeave = 7,     ///< both ways: a rank has left in good order
  kBeat = 8,      ///< both ways: alive
  kSummons = 9,   ///< both ways: a rank asks all ranks of a communicator to open the mailbox
  kRefusal = 10,  ///< rank to coordinator: a call that the rank refused, and the reason; the scope
                  ///< is zero if the call makes a group
  kEnd = 11,      ///< rank to coordinator: its program ends; contains its last operation
  kAwaited = 12,  ///< coordinator to ranks, one a host if many are awaited: the ranks whose parts
                  ///< an exchange still waits for
};

/// The bytes of one frame. All receivers share them, because the table of N ranks goes to N ranks.
class Frame {
 public:
  Frame() = default;
  Frame(const std::string& bytes)
      : bytes_(std::make_shared<const std::string>(ByteWriter().put_text(bytes).take())) {}
  bool empty() const { return bytes_ == nullptr; }
  std::string_view bytes() const { return on_line().substr(empty() ? 0 : kLength); }
  operator std::string_view() const { return bytes(); }
  /// The bytes with their length in front.
  std::string_view on_line() const { return empty() ? std::string_view() : *bytes_; }

 private:
  static constexpr std::size_t kLength = sizeof(std::uint32_t);
  std::shared_ptr<const std::string> bytes_;
};

/// How often both sides send a beat.
inline std::chrono::nanoseconds beat_interval(std::chrono::nanoseconds peer_timeout) {
  return std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), peer_timeout / 4);
}

/// A set of ranks, one bit each.
inline std::string set_of(const std::vector<int>& ranks) {
  std::string bits;
  for (const int rank : ranks) {
    const auto at = static_cast<std::size_t>(rank) / 8;
    if (bits.size() <= at) bits.resize(at + 1);
    bits[at] = static_cast<char>(static_cast<unsigned char>(bits[at]) | 1U << rank % 8);
  }
  return bits;
}
inline bool is_in(std::string_view set, std::uint32_t rank) {
  return rank / 8 < set.size() && (static_cast<unsigned char>(set[rank / 8]) >> rank % 8 & 1U) != 0;
}
inline std::vector<std::uint32_t> ranks_in(std::string_view set) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < 8 * set.size(); ++rank) {
    if (is_in(set, rank)) ranks.push_back(rank);
  }
  return ranks;
}

inline constexpr std::size_t kCoresCap = 32768;  // bytes: 2^18 cores

/// The launcher's agent that has started a rank, and the number of the agent's attempt to run the
/// job. Each agent counts its own attempts.
struct Attempt {
  std::uint32_t agent = 0;  ///< 0: no agent
  std::uint32_t number = 0;
};

/// The data that a rank sends to the coordinator when it joins.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::string cores = {};     ///< cores it may run on: one bit each, as from core_mask()
  std::string host = {};      ///< host identity: ranks with the same one may share memory
  std::string address = {};   ///< local address for peers
  std::uint64_t started = 0;  ///< when its process started (Process::started); 0: not known
  Attempt attempt = {};
};

inline void put(ByteWriter& out, const Member& m) {
  out.put(m.rank).put(m.pid).put_text(m.cores).put_text(m.host).put_text(m.address);
  out.put(m.started).put(m.attempt.agent).put(m.attempt.number);
}
inline Member get_member(ByteReader& in) {
  Member m;
  m.rank = in.get<std::uint32_t>();
  m.pid = in.get<std::uint32_t>();
  m.cores = in.get_text(kCoresCap);
  m.host = in.get_text(256);
  m.address = in.get_text(64);
  m.started = in.get<std::uint64_t>();
  m.attempt.agent = in.get<std::uint32_t>();
  m.attempt.number = in.get<std::uint32_t>();
  return m;
}

inline void put(ByteWriter& out, const Status& s) {
  out.put(static_cast<std::int32_t>(s.code())).put(static_cast<std::int32_t>(s.culprit()));
  out.put_text(std::string_view(s.message()).substr(0, kTextCap));
}
inline Status get_status(ByteReader& in) {
  const auto code = in.get<std::int32_t>();
  const auto culprit = in.get<std::int32_t>();
  std::string text = in.get_text(kTextCap);
  const bool known = code > 0 && code <= static_cast<int>(Code::kOom);
  return Status(known ? static_cast<Code>(code) : Code::kInternal, std::move(text), culprit);
}

inline Frame failure_frame(const Uuid& scope, const Status& why) {
  ByteWriter out;
  out.put(Kind::kFailure).put(scope);
  put(out, why);
  return out.take();
}

}  // namespace hccl::join::wire
