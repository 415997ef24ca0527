// The mesh over TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/abort_flag.h"
#include "hccl/base/config.h"
#include "hccl/base/deadline.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "transport/self_link.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/door.h"
#include "transport/tcp/link.h"
#include "transport/tcp/path.h"
#include "transport/transport.h"

namespace hccl::transport::tcp {

/// A link gets its connection when one of its two ranks sends the first message or calls expect(),
/// or when a receive has waited for a while.
class TcpMesh final : public Mesh {
 public:
  /// `peers`: the address of each rank's door. `tls` is null if connections are not encrypted.
  TcpMesh(std::unique_ptr<EpollSleeper> sleeper, Admission admission, std::vector<Endpoint> peers,
          const std::shared_ptr<const TlsContext>& tls, const OpenArgs& args, const Config& config);
  ~TcpMesh() override;

  std::string_view name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(slots_.size()); }
  Sleeper& sleeper() override { return sleeper_; }
  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override;
  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override;
  void expect(int peer) override;
  bool progress() override;
  void abort(Status status) override;

 private:
  class LinkSleeper final : public PolledSleeper {
   public:
    explicit LinkSleeper(TcpMesh& mesh) : mesh_(mesh) {}
    int epoll() const override { return mesh_.epoll_->epoll(); }
    std::uint32_t prepare() override;
    void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override;
    void awake() override;

   private:
    TcpMesh& mesh_;
  };

  struct Slot {
    std::unique_ptr<Link> link;  ///< null until the link is used
    bool dirty = false;          ///< is in dirty_, because it has unwritten output
    bool blocked = false;        ///< the socket was full: epoll reports when it has room
    bool watches_write = false;
    bool awaited = false;      ///< look_at_links() last saw a receive without a connection
    std::optional<Path> path;  ///< only between hosts
  };

  Link& link_to(std::size_t peer);
  bool near(std::size_t peer) const;
  bool absent(std::size_t peer) const {
    return !hosts_.empty() && hosts_[peer] == OpenArgs::kAbsent;
  }
  void connect(std::size_t peer, Connection connection);
  bool take_connections();
  void fail_unconnected(const Status& lack);
  bool look_at_all();
  bool look_at_decrypted();
  void look_at_links();
  bool look_at_events();
  void posted(std::size_t peer);
  bool write_dirty();
  bool write(std::size_t peer);
  void watch_all(int operation);
  void watch(std::size_t peer, int operation);
  bool fail_all();
  void drain();
  bool drained();

  const int rank_;
  const std::vector<int> hosts_;
  const Wire wire_;
  const std::chrono::nanoseconds peer_timeout_;
  const bool receives_connect_;
  std::unique_ptr<EpollSleeper> epoll_;
  LinkSleeper sleeper_;
  Admission admission_;
  Inbox& inbox_;
  Dialer dialer_;
  AbortFlag abort_;
  bool failed_ = false;
  LinkShare share_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> connected_;  // peers whose link has, or had, a connection
  bool few_ = true;                     // at most kFewLinks are connected
  bool going_to_sleep_ = false;         // no progress() before the sleep: posts are written now
  unsigned looks_ = 0;
  std::chrono::nanoseconds look_interval_;
  Deadline next_look_ = Deadline::after(std::chrono::nanoseconds(0));
  std::vector<std::size_t> dirty_;
  SelfLink self_;
};

}  // namespace hccl::transport::tcp
