// The door of a rank: one listener and one thread accept the connections of all meshes of the rank,
// even while no thread uses a mesh.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "hccl/base/abort_flag.h"
#include "hccl/base/deadline.h"
#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "transport/tcp/inbox.h"
#include "transport/tcp/pending_connection.h"

namespace hccl::transport::tcp {

/// A peer that connects names a mesh, proves that it holds the mesh's key, and sends its hello.
/// Then the door passes the connection to the mesh's inbox. A connection without a proof costs one
/// descriptor, for five seconds at most, and all of them together a quarter of the descriptors
/// that the process may have. If descriptors or room run out, silent and slow connections are
/// dropped first. Any thread may call.
class Door {
 public:
  /// Listens on a free port of the address.
  static Result<std::shared_ptr<Door>> open(const std::string& address);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  std::uint16_t port() const { return listener_.port; }
  /// Lets connections find this mesh. Peers may learn the port only after this call.
  void admit(std::shared_ptr<Inbox> inbox);
  /// Closes the inbox. Later connections to this mesh are refused.
  void dismiss(Inbox& inbox);

 private:
  struct Visitor {
    Visitor(Fd fd, PendingConnection::Find find, PendingConnection::Context context, Deadline until)
        : pending(std::move(fd), std::move(find), std::move(context)), deadline(until) {}
    PendingConnection pending;
    Deadline deadline;
  };
  using Entry = std::list<Visitor>::iterator;

  Door(Listener listener, std::unique_ptr<EpollSleeper> sleeper);
  void run();
  bool turn();
  void expire();
  void watch_listener(bool on);
  void watch(PendingConnection& pending);
  void accept_all();
  void rest();
  bool make_room();
  void drop(Entry entry);
  void step(Entry entry);
  void greet(Entry entry);
  std::shared_ptr<Inbox> find(const Uuid& id);
  Result<std::shared_ptr<const TlsContext>> context();

  const Listener listener_;
  const std::unique_ptr<EpollSleeper> sleeper_;
  AbortFlag over_;
  const Status closes_{Code::kUnavail, "the door closes"};  // made early, when there is memory
  Mutex mutex_;
  std::map<Uuid, std::shared_ptr<Inbox>> inboxes_ HCCL_GUARDED_BY(mutex_);

  // Used by the door's thread.
  std::list<Visitor> visitors_;  // the oldest first
  std::shared_ptr<const TlsContext> tls_;
  bool listening_ = false;
  Deadline listen_again_ = Deadline::never();
  std::optional<Deadline> lack_;  // when a lack of descriptors becomes a failure
  Thread thread_;
};

/// Admits a mesh to the door for as long as this object lives.
class Admission {
 public:
  Admission(std::shared_ptr<Door> door, std::shared_ptr<Inbox> inbox)
      : door_(std::move(door)), inbox_(std::move(inbox)) {
    door_->admit(inbox_);
  }
  ~Admission() {
    if (inbox_ != nullptr) door_->dismiss(*inbox_);
  }
  Admission(Admission&&) = default;
  Admission& operator=(Admission&&) = delete;

  const Door& door() const { return *door_; }
  const std::shared_ptr<Inbox>& inbox() const { return inbox_; }

 private:
  std::shared_ptr<Door> door_;
  std::shared_ptr<Inbox> inbox_;  // null: moved from
};

}  // namespace hccl::transport::tcp
