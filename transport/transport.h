// The interface of transports, which move bytes between ranks. Each backend (shm, tcp, ofi, mpi)
// has a folder. The same test suite (tests/transport/transport_contract_test.cc) checks all of
// them.
//
// Threads: one thread at a time uses a Mesh (the executor ensures this). Only abort() may be called
// from any thread at any time. Ranks may be threads of one process, each with a Mesh of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/config.h"
#include "hccl/base/deadline.h"
#include "hccl/base/host_memory.h"
#include "hccl/base/status.h"
#include "hccl/base/waiter.h"

namespace hccl::memory {
class Heap;
}

namespace hccl::transport {

class Doors;
class Siblings;

/// One posted send or receive. The caller owns it. The request and its bytes must stay alive and in
/// place until done(); then the request can be posted again. The fields below "for backends" belong
/// to the backend.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool done() const { return done_; }
  /// Success, or the reason why the bytes did not arrive; the culprit is the peer's rank. Valid
  /// once done().
  const Status& status() const { return status_; }

  // ---- for backends ----
  void begin(int peer, std::uint32_t lane, std::byte* data, std::size_t size) {
    peer_ = peer;
    lane_ = lane;
    data_ = data;
    size_ = size;
    moved_ = 0;
    next_ = nullptr;
    done_ = false;
    status_ = Status();
  }
  void finish(Status status = {}) {
    status_ = std::move(status);
    done_ = true;
  }
  int peer_ = -1;
  std::uint32_t lane_ = 0;
  std::byte* data_ = nullptr;  ///< a send never writes to it
  std::size_t size_ = 0;
  std::size_t moved_ = 0;    ///< bytes moved so far
  Request* next_ = nullptr;  ///< intrusive queue
  void* backend_ = nullptr;  ///< free for the backend, which also frees the object

 private:
  bool done_ = true;
  Status status_;
};

class Mesh {
 public:
  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  /// Closes the links. Before that, all requests must be done or abort() must have been called.
  virtual ~Mesh() = default;

  virtual std::string_view name() const = 0;  ///< "shm", "tcp", …
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Posts a message; never blocks. Messages match in the order of posting on each (peer, lane).
  /// Lanes are numbers below kLanes and need no set-up. A message may have 0 bytes. `peer` may be
  /// rank(). A send may complete before the peer has posted its receive (small or buffered) or
  /// after (rendezvous); callers must not depend on either. The received size must equal the sent
  /// size: otherwise the receive fails with kPara, which names both sizes. After abort(), or to a
  /// dead peer, the request fails at once.
  virtual void send(Request& request, int peer, std::uint32_t lane,
                    std::span<const std::byte> bytes) = 0;
  virtual void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) = 0;

  /// Optional: a hint that messages of this peer follow soon. A backend that opens links on demand
  /// opens this link now; then a peer that has ended is noticed. Never blocks.
  virtual void expect(int /*peer*/) {}

  /// Moves bytes and completes requests, without blocking. Returns whether bytes moved or a request
  /// completed.
  virtual bool progress() = 0;

  /// The sleeper to use while progress() has nothing to do. Arriving bytes, room to send, a peer's
  /// death and abort() wake the sleeper.
  virtual Sleeper& sleeper() = 0;

  /// Optional: memory that this rank shares with the other ranks of its host; null if there is
  /// none. Valid as long as the mesh.
  virtual const HostMemory* host_memory() const { return nullptr; }

  /// Fails every present and later request with this status, and wakes the sleeper. Any thread may
  /// call at any time, also while another thread is inside progress(): then the requests fail at
  /// the latest in the next progress(). The first status stays.
  virtual void abort(Status status) = 0;

  static constexpr std::uint32_t kLanes = 256;
};

/// The allgather that sets up a mesh. It returns one blob from each rank, in rank order, and blocks
/// until all ranks have called it or the deadline passes. A backend's open() makes the same number
/// of calls on every rank, even after a local failure (the blob then reports the failure). So no
/// rank waits for a rank that gave up.
using BootstrapExchange =
    std::function<Result<std::vector<std::string>>(std::string mine, Deadline)>;

struct OpenArgs {
  int rank = 0;
  int size = 1;
  /// hosts[r]: ranks with the same number share memory (same boot, same network namespace).
  /// kAbsent: rank r is not in the mesh, and its part of an exchange is empty.
  std::vector<int> hosts;
  static constexpr int kAbsent = -1;
  bool absent(int r) const {
    return !hosts.empty() && hosts[static_cast<std::size_t>(r)] == kAbsent;
  }
  BootstrapExchange exchange;
  Deadline deadline = Deadline::never();
  /// Raised when open() must give up, with the reason; may be null.
  const AbortFlag* abort = nullptr;
  /// Authenticates every data connection of this mesh; differs per communicator.
  Key key{};
  /// The only local address to which listeners bind and peers connect: "10.0.0.1" or "::1".
  std::string address;
  const Config* config = nullptr;
  /// Accepts the connections of all tcp meshes of this rank; null: the mesh has a door of its own.
  std::shared_ptr<Doors> doors;
  /// The table in which the ranks of this process find each other's mappings; shm needs the table.
  std::shared_ptr<Siblings> siblings;
  /// A backend may open a link when its first message is posted. Then this rank notices the end of
  /// a peer without a link only while it awaits a message from that peer: a receive that has waited
  /// for a second or two opens its link. False: only sends and expect() open links, for a mesh on
  /// which receives wait for all peers at all times.
  bool receives_connect = true;
  /// Whether shm touches the memory for messages now, so that the first messages cause no page
  /// faults; false for a mesh of which the ranks may use only a part.
  bool touch_rings = true;
  /// This process's device heap, which the host's other ranks will share; may be null.
  std::shared_ptr<memory::Heap> heap;
  /// Bytes of HostMemory::area for a host with this many ranks; the same function on all ranks.
  std::size_t (*area_bytes)(int ranks) = nullptr;
};

using OpenFunction = Result<std::unique_ptr<Mesh>> (*)(const OpenArgs&);

}  // namespace hccl::transport
