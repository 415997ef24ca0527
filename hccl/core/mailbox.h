// Messages between the ranks of a communicator, matched by tag. Any thread may send or receive at
// any time: messages are independent of the order of operations, and use a mesh of their own. The
// mesh is opened when any rank posts its first message. From then on, one thread on each rank moves
// messages.
//
//   eager        for short messages: the sender sends a header with the bytes in it or right after
//                it. The bytes may wait at the receiver, so the sender must have credit for them.
//   rendezvous   for other messages: the sender sends a header without the bytes. The receiver
//                answers when its program has posted the receive. Then the sender sends the bytes.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hccl/base/abort_flag.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/request.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"
#include "hccl/core/mailbox_sleeper.h"
#include "hccl/core/opener.h"
#include "transport/transport.h"

namespace hccl::core {

class Mailbox;

/// One send or receive with a tag.
class Message final : public Request {
 public:
  static constexpr int kAnyRank = -1;
  Status wait(Deadline deadline) override;
  const int* peer() const override { return &peer_; }

 private:
  friend class Mailbox;
  std::string to_string() const;
  std::shared_ptr<Mailbox> box_;
  bool sending_ = false;
  int peer_ = kAnyRank;
  std::int32_t tag_ = 0;
  std::byte* data_ = nullptr;  // a send only reads it
  std::uint64_t bytes_ = 0;
  std::size_t parts_ = 0;  // transfers under way
  std::list<std::shared_ptr<Message>>::iterator place_;
};
using MessagePtr = std::shared_ptr<Message>;

struct OpenedMesh {
  std::unique_ptr<transport::Mesh> mesh;
  std::map<int, Status> absent;  ///< the ranks that the mesh does not connect, and why
};

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  /// Opens the mesh, together with the other ranks. Returns early if the flag is raised.
  using Open = std::function<Result<OpenedMesh>(const AbortFlag&)>;
  /// The mailbox's thread calls this function if this rank lacks the memory to go on.
  using Broken = std::function<void(const Status&)>;
  /// Returns whether a rank of the communicator has left in good order. The mailbox calls this
  /// function with its mutex locked, until stop().
  using HasLeft = std::function<bool(int)>;
  /// `name` is the communicator's name, for texts. Callers wait with `policy`.
  Mailbox(int rank, int size, std::string name, Open open, WaitPolicy policy, Logger log,
          Broken broken = {}, HasLeft has_left = {});
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox();

  /// Any thread may call. Neither function blocks. The caller has checked the ranks; `source` may
  /// be kAnyRank. Memory belongs to the mailbox until the message is done; `done` then runs once,
  /// on a thread of the mailbox or of a caller, without a lock. If a function throws, there is no
  /// message, and `done` never runs.
  MessagePtr send(int dest, std::int32_t tag, const void* data, std::uint64_t bytes,
                  Message::Done done);
  MessagePtr recv(int source, std::int32_t tag, void* data, std::uint64_t bytes,
                  Message::Done done);

  /// At the first call, starts the mailbox's thread, which opens the mesh.
  void start();
  /// Fails all present and future messages. Any thread may call. Does not block.
  void end(const Status& why);
  /// As end(), but has no effect once the mesh is open. If the mesh is being opened, first waits up
  /// to `patience` for the result. Returns the state before: kClosed if start() was never called,
  /// kOpening if this rank was still opening the mesh.
  Opener::State end_opening(std::chrono::nanoseconds patience);
  /// After end(): ends the thread and the mesh.
  void stop() HCCL_UNCHECKED;  // a forked child takes no lock

 private:
  friend class Message;
  enum class HeaderKind : std::uint8_t { kEager = 1, kAsk, kReady, kRefuse, kCredit };
  static constexpr std::size_t kInline = 40;
  /// A message on the lane of headers.
  struct Header {
    HeaderKind kind = HeaderKind::kEager;
    std::int32_t tag = 0;
    std::uint64_t bytes = 0;  // size of the message; kRefuse: the receive's; kCredit: the credit
    std::uint64_t id = 0;     // number of the send that asks
    std::array<std::byte, kInline> data = {};
  };
  static_assert(sizeof(Header) == 64);
  /// A request that is under way on the mesh, and the function that runs when the request is done.
  struct Transfer {
    transport::Request request;
    Header header;
    std::function<void(Status)> then;
  };
  /// A message from a peer that has reached this rank.
  struct Arrival {
    int source = 0;
    std::int32_t tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;    // for rendezvous: number of the send
    MessagePtr sender = {};  // the send, for a message of this rank to itself
    bool eager = false;
    std::unique_ptr<std::byte[]> buffer = {};  // for eager messages
    bool here = false;      // the bytes are in the buffer, unless `why` is an error
    bool refused = false;   // the receive has another size
    MessagePtr taker = {};  // the receive that waits for the bytes
    Status why = {};        // why the bytes did not come
  };
  using ArrivalPtr = std::shared_ptr<Arrival>;
  struct PeerRecord {
    transport::Request incoming;
    Header header;
    std::uint64_t credit = 0;  // bytes that this rank may still send eagerly
    std::uint64_t owed = 0;    // eager bytes of the peer whose credit was not returned
    std::uint64_t freed = 0;   // bytes of `owed` whose credit can be returned
    std::size_t asks = 0;      // messages of the peer that wait for their receives
    std::size_t asking = 0;    // messages to the peer that wait for their receives
    bool gone = false;
    Status why;
    Deadline verdict = Deadline::never();  // until then, another rank may be the culprit
  };
  struct DelayedFailure {
    MessagePtr message;
    Status why;
    Deadline verdict;
  };

  MessagePtr make(bool sending, int peer, std::int32_t tag, void* data, std::uint64_t bytes,
                  Message::Done done);
  void begin(const MessagePtr& message);
  void give_up() noexcept;
  void run();
  void serve() HCCL_UNCHECKED;  // only this thread uses sleeper_
  Status open();

  void post(const MessagePtr& message) HCCL_REQUIRES(mutex_);
  void post_send(const MessagePtr& message) HCCL_REQUIRES(mutex_);
  void post_recv(const MessagePtr& message) HCCL_REQUIRES(mutex_);
  void send_to_self(const MessagePtr& message) HCCL_REQUIRES(mutex_);
  void expect(const Message& receive) HCCL_REQUIRES(mutex_);
  void listen(int peer) HCCL_REQUIRES(mutex_);
  void take(int peer) HCCL_REQUIRES(mutex_);
  void take_eager(int peer, const Header& header) HCCL_REQUIRES(mutex_);
  void take_payload(const ArrivalPtr& arrival, const MessagePtr& receive) HCCL_REQUIRES(mutex_);
  void take_ask(int peer, const Header& header) HCCL_REQUIRES(mutex_);
  void take_answer(int peer, const Header& header) HCCL_REQUIRES(mutex_);
  void match(const ArrivalPtr& arrival, const MessagePtr& receive) HCCL_REQUIRES(mutex_);
  MessagePtr find_receive(int source, std::int32_t tag) HCCL_REQUIRES(mutex_);
  void put(int peer, const Header& header, std::function<void(Status)> then = {})
      HCCL_REQUIRES(mutex_);
  void move_bytes(int peer, std::uint32_t lane, const MessagePtr& message) HCCL_REQUIRES(mutex_);
  void give_back(int peer, std::uint64_t bytes) HCCL_REQUIRES(mutex_);
  void part_ended(const MessagePtr& message, const Status& status) HCCL_REQUIRES(mutex_);
  void settle(const MessagePtr& message, Status status) noexcept HCCL_REQUIRES(mutex_);
  void fail_later(const MessagePtr& message, const Status& why, Deadline verdict)
      HCCL_REQUIRES(mutex_);
  void lost(int peer, const Status& why, Deadline verdict) HCCL_REQUIRES(mutex_);
  const PeerRecord* last_gone() const HCCL_REQUIRES(mutex_);
  void corrupt(int peer, const char* what) HCCL_REQUIRES(mutex_);
  void fail_expired() HCCL_REQUIRES(mutex_);
  void fail_all() HCCL_REQUIRES(mutex_);
  bool advance() HCCL_REQUIRES(mutex_);
  Status mismatch(int source, int dest, std::int32_t tag, std::uint64_t sent,
                  std::uint64_t expected) const;
  Status too_many(int dest) const;

  /// Moves messages, and runs the callbacks of messages that are done. Returns whether anything
  /// moved; then more may move. `awaited`: the caller calls poll() again until this message is
  /// done.
  bool poll(MutexLock& lock, const Message* awaited = nullptr) HCCL_REQUIRES(mutex_);
  bool move() noexcept HCCL_REQUIRES(mutex_);
  void run_callbacks(MutexLock& lock) HCCL_REQUIRES(mutex_) HCCL_UNCHECKED;

  const int rank_;
  const int size_;
  const std::string name_;
  const WaitPolicy policy_;
  const Logger log_;
  const pid_t process_;
  const std::uint64_t window_;  // the most eager bytes from one peer
  AbortFlag ended_;
  Doorbell bell_;  // rung when messages are done, and when the opening is over

  Open open_;
  const Broken broken_;
  HasLeft has_left_ HCCL_GUARDED_BY(mutex_);
  std::atomic<bool> given_up_{false};  // this rank lacked memory

  Mutex mutex_{LockLevel::kMailbox};
  std::unique_ptr<transport::Mesh> mesh_ HCCL_GUARDED_BY(mutex_);
  std::unique_ptr<MailboxSleeper> sleeper_ HCCL_GUARDED_BY(mutex_);
  bool started_ HCCL_GUARDED_BY(mutex_) = false;
  bool running_ HCCL_GUARDED_BY(mutex_) = false;  // the thread has not reached its end
  bool failed_ HCCL_GUARDED_BY(mutex_) = false;
  std::deque<MessagePtr> early_ HCCL_GUARDED_BY(mutex_);  // sends before the mesh is open
  std::vector<std::unique_ptr<PeerRecord>> peers_ HCCL_GUARDED_BY(mutex_);
  std::list<Transfer> active_ HCCL_GUARDED_BY(mutex_);
  std::unordered_map<std::int32_t, std::list<MessagePtr>> receives_
      HCCL_GUARDED_BY(mutex_);  // by tag, oldest first
  std::unordered_map<std::int32_t, std::list<ArrivalPtr>> arrivals_
      HCCL_GUARDED_BY(mutex_);                                          // by tag, oldest first
  std::map<std::uint64_t, MessagePtr> asking_ HCCL_GUARDED_BY(mutex_);  // sends, by id
  std::uint64_t asked_ HCCL_GUARDED_BY(mutex_) = 0;
  std::vector<DelayedFailure> delayed_failures_ HCCL_GUARDED_BY(mutex_);
  // A message moves from live_ to settled_ without an allocation. So a failure loses no message, no
  // matter which of the lists above contain the message.
  std::list<MessagePtr> live_ HCCL_GUARDED_BY(mutex_);     // all messages that are not done
  std::list<MessagePtr> settled_ HCCL_GUARDED_BY(mutex_);  // messages whose `done` must be called
  bool calling_back_ HCCL_GUARDED_BY(mutex_) = false;      // a thread calls callbacks
  Thread thread_;
};

}  // namespace hccl::core
