// The coordinator's decisions as a state machine: which ranks belong to the world, and which frames
// they get. Frames, ended connections and the time go in; frames to ranks come out. It has no
// socket and no clock; connections are numbers. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/join/group_refusals.h"
#include "hccl/join/wire.h"

namespace hccl::join {

/// Other claims of the job's places.
struct Claimants {
  /// Finds live processes of the coordinator's host that will claim a rank, given the ranks that
  /// have come (claimants.h).
  std::function<std::vector<wire::Member>(const std::vector<wire::Member>&,
                                          const std::string& host)>
      find = {};
  /// Called before any rank learns that two claims have ended the world.
  std::function<void()> remember = {};
};

/// The error of two processes that claim one rank.
Status two_claims(const wire::Member& first, const wire::Member& second);
/// Whether one agent has started both processes, `one` in an earlier attempt than `than`.
bool is_earlier(const wire::Member& one, const wire::Member& than);
/// Whether a process started more than a second before another one of its host. A smaller
/// difference shows nothing: two jobs may have been started at once.
bool is_older(const wire::Member& one, const wire::Member& than);

class Membership {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  struct Out {
    int connection;
    wire::Frame frame;
    bool close = false;  ///< close the connection once the frame is sent
  };
  using Outs = std::vector<Out>;

  /// All ranks must arrive within `patience` of the first hello. `host` and `pid` are of the
  /// coordinator's process: the table names the rank that runs it. `started`: when that process
  /// started. With `claimants.find` that process is rank 0's.
  Membership(std::string host, std::uint32_t pid, std::chrono::nanoseconds patience,
             std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30),
             std::uint64_t started = 0, Claimants claimants = {})
      : host_(std::move(host)),
        pid_(pid),
        started_(started),
        claimants_(std::move(claimants)),
        patience_(patience),
        peer_timeout_(peer_timeout) {}

  /// One frame from a connection that has proved that it holds the secret. `now` never decreases.
  Outs frame(int connection, std::string_view bytes, Time now);
  /// The connection has ended. `cut`: the reason for which it was cut off, or empty.
  Outs closed(int connection, const std::string& cut = {});
  /// The coordinator cannot go on: tells all ranks the reason, and closes their connections.
  Outs fail(const Status& why);
  /// Does what is due: deadlines of joining and of exchanges, silent ranks, beats. Called more
  /// often than ranks beat, unless the caller did not run.
  Outs tick(Time now);

  bool complete() const { return complete_; }
  /// Whether the world was complete and all ranks have gone since. Or it cannot become complete,
  /// and all ranks have got the reason or the time to fetch it is over.
  bool finished() const;
  /// The largest frame that this connection may send.
  std::size_t cap(int connection) const {
    return connections_.count(connection) != 0 ? wire::kFrameCap : wire::kHelloCap;
  }

 private:
  /// The scope of a rank's death: all communicators that it is in.
  static constexpr Uuid kEverything{};
  struct Gathering {
    std::vector<std::optional<std::string>> parts;
    std::vector<int> connections;
    std::set<std::uint32_t> came;
    std::string members;       // a set of ranks; empty: not known
    bool makes_group = false;  // its ranks make a group; else they belong to one
    std::uint32_t arrived = 0;
    Time since{};
    Time deadline = Time::max();
    Time next_word{};  // when its ranks next get the list of awaited ranks
  };
  /// Calls that a rank has refused in the place of one operation.
  struct Refusal {
    std::uint64_t sequence = 0;
    std::uint32_t number = 0;
    std::string text;  // of the last one
    Time at{};
  };
  /// Closed connections that ranks of one communicator have seen.
  struct Broken {
    std::map<std::uint32_t, Status> reports;  // by rank
    std::uint32_t first = 0;                  // the rank whose report came first
    Time deadline{};                          // of the verdict
  };
  /// The wait of one rank, as it last reported it.
  struct Stall {
    std::vector<std::uint32_t> awaited;
    Time before{}, reported{};  // when the previous and the last report came
  };
  /// The ranks that wait in one operation. Their calls are equal: others end the communicator.
  struct Waiting {
    std::string call;
    std::map<std::uint32_t, Stall> reports;          // by rank
    std::map<std::uint32_t, std::uint32_t> awaited;  // by rank: how many reports name it
  };
  /// The waits in one communicator.
  struct Stalls {
    std::map<std::uint32_t, std::uint64_t> sequences;  // by rank: the operation in which it waits
    std::map<std::uint64_t, Waiting> operations;       // by sequence
    const Waiting& of(std::uint32_t rank) const { return operations.at(sequences.at(rank)); }
    void forget(std::uint32_t rank);
  };

  void pass(Time now);
  Outs hello(int connection, ByteReader& in);
  Outs begin();
  Outs contest(int connection, const wire::Member& first, const wire::Member& second);
  wire::Member root() const;
  bool is_left_over(const wire::Member& claimant) const;
  Outs end_earlier_attempts(int connection, const wire::Member& newcomer);
  Outs send_away(std::uint32_t rank, const Status& why);
  Outs exchange(int connection, ByteReader& in);
  Outs failure(std::uint32_t rank, ByteReader& in);
  Outs broken(std::uint32_t rank, const Uuid& scope, const Status& why);
  Outs judge(const Uuid& scope);
  Outs judge_broken();
  Outs stall(std::uint32_t rank, ByteReader& in);
  Outs refusal(std::uint32_t rank, ByteReader& in);
  Outs summons(int connection, ByteReader& in);
  static std::string ended(const std::string& last);
  std::string how_it_left(std::uint32_t rank) const;
  std::optional<Status> gone_one(const Uuid& scope, std::uint32_t witness) const;
  std::optional<Status> refused_one(const Uuid& scope, std::uint32_t witness) const;
  Time after(std::chrono::nanoseconds wait) const {
    return wait > Time::max() - now_ ? Time::max() : now_ + wait;
  }
  Outs send_table();
  Status compare_with_first(std::uint32_t rank, std::uint32_t size,
                            const std::string& agreement) const;
  Outs end_joining();
  Outs end_gatherings();
  Outs end_vain();
  std::optional<Status> refused_one(const Gathering& gathering) const;
  std::optional<Status> gone_one(const Gathering& gathering) const;
  std::vector<int> speakers(const Gathering& gathering) const;
  Outs say_awaited();
  Outs beat();
  Outs expel_silent();
  Outs refuse(int connection, const Status& why) const;
  Outs refuse_all(const Status& why);
  Outs give_up(int connection, const Status& why);
  std::vector<std::uint32_t> missing(const Uuid& scope, std::uint32_t witness) const;
  std::string elsewhere(const Uuid& scope, std::uint32_t witness, std::uint32_t rank) const;
  Outs drop(int connection);
  std::vector<int> own_last(std::vector<int> connections) const;
  std::vector<int> here() const;
  /// One frame to every present rank, except one connection.
  [[nodiscard]] Outs to_members(const wire::Frame& frame, int except = -1) const {
    Outs outs;
    for (const int connection : here()) {
      if (connection != except) outs.push_back({connection, frame});
    }
    return outs;
  }
  Outs forget(int connection, std::uint32_t rank);
  Outs tell_all(const Uuid& scope, const Status& why, int except = -1);
  bool is_own(std::uint32_t rank) const {
    return members_[rank]->host == host_ && members_[rank]->pid == pid_;
  }
  std::string name_of(std::uint32_t rank) const;

  std::string host_;
  std::uint32_t pid_;
  std::uint64_t started_;
  Claimants claimants_;
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds peer_timeout_;
  Time now_{};  // the latest time given
  Time next_beat_ = Time::max();
  std::map<int, Time> silence_;   // when an admitted connection counts as dead
  std::optional<Time> deadline_;  // of joining
  std::string agreement_;         // of the first rank
  std::uint32_t agreement_rank_ = 0;
  std::uint32_t size_ = 0;  // 0 until the first hello
  std::vector<std::optional<wire::Member>> members_;
  std::vector<int> connection_of_;             // by rank
  std::map<int, std::uint32_t> connections_;   // connection to rank
  std::set<int> left_;                         // connections of ranks that have left
  std::map<std::uint32_t, Time> gone_;         // ranks that left or whose programs end: since when
  std::map<std::uint32_t, std::string> ends_;  // of ranks whose programs end: the last operation
  std::uint32_t present_ = 0;
  bool complete_ = false;
  bool gave_up_ = false;
  Status why_gave_up_;
  std::uint32_t told_ = 0;  // number of ranks that got the reason
  std::map<Uuid, Gathering> gatherings_;
  std::map<Uuid, Stalls> stalls_;
  std::map<Uuid, std::map<std::uint32_t, Refusal>> refusals_;
  std::map<Uuid, Broken> broken_;
  GroupRefusals group_refusals_;
  std::map<Uuid, Status> failed_;  // communicators whose failure was sent to all ranks
};

}  // namespace hccl::join
