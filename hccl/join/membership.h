// Who is there: the hub's decisions, apart from its sockets. Frames of ranks go in, frames to ranks
// come out; connections are numbers here. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/join/wire.h"

namespace hccl::join {

class Membership {
 public:
  struct Out {
    int connection;
    std::string frame;
    bool close = false;  ///< close the connection once the frame is sent
  };
  using Outs = std::vector<Out>;

  /// Ranks have `patience` from the first hello on to arrive. `host` and `pid` are the hub's own
  /// process, so that its ranks can be told that they carry the hub.
  Membership(std::string host, std::uint32_t pid, std::chrono::nanoseconds patience,
             std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30));

  /// One frame from a connection that has proved that it holds the secret.
  Outs frame(int connection, std::string_view bytes);
  /// The connection has ended.
  Outs closed(int connection);
  /// To be called now and then: deadlines of joining and of exchanges.
  Outs tick();

  bool complete() const { return complete_; }
  /// The world was complete and everybody has gone since; or it cannot become so, and all ranks
  /// have been told why, or had the time to come and hear it.
  bool finished() const;
  /// The largest frame that this connection may send.
  std::size_t cap(int connection) const;

 private:
  struct Gathering {
    std::vector<std::optional<std::string>> parts;
    std::vector<int> connections;
    std::uint32_t arrived = 0;
    Deadline deadline = Deadline::never();
  };
  struct Stall {
    std::uint64_t sequence = 0;
    std::string call;
    std::vector<std::uint32_t> awaited;
  };

  Outs hello(int connection, ByteReader& in);
  Outs exchange(int connection, ByteReader& in);
  Outs failure(std::uint32_t rank, ByteReader& in);
  Outs stall(std::uint32_t rank, ByteReader& in);
  Outs admit_all();
  Outs beat();
  Outs bury_silent();
  Outs refuse(int connection, const Status& why) const;
  Outs give_up(int connection, const Status& why);
  std::vector<std::uint32_t> missing(const Uuid& scope, std::uint32_t witness) const;
  Outs drop(int connection);
  Outs flood(const Uuid& scope, const Status& why, int except);
  std::string who(std::uint32_t rank) const;

  std::string host_;
  std::uint32_t pid_;
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds peer_timeout_;
  Deadline next_beat_ = Deadline::never();
  std::map<int, Deadline> silence_;  // when an admitted connection counts as dead
  std::optional<Deadline> deadline_;
  std::string agreement_;  // of the first rank
  std::uint32_t agreement_rank_ = 0;
  std::uint32_t size_ = 0;  // 0 until the first hello
  std::vector<std::optional<wire::Member>> members_;
  std::vector<int> connection_of_;            // by rank
  std::map<int, std::uint32_t> connections_;  // connection to rank
  std::set<int> left_;                        // connections of ranks that have left
  std::uint32_t present_ = 0;
  bool complete_ = false;
  bool gave_up_ = false;
  Status why_gave_up_;
  std::uint32_t told_ = 0;  // why, ranks or would-be ranks
  std::map<Uuid, Gathering> gatherings_;
  std::map<Uuid, std::map<std::uint32_t, Stall>> stalls_;
  std::map<Uuid, bool> failed_;
};

}  // namespace hccl::join
