// One tcp connection to a hostile peer: it sends valid frames, invalid frames, and bytes, between
// sends and receives of this end. Once the peer has gone, no request waits, and no byte was written
// outside of a receive.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/posted.h"
#include "transport/tcp/link.h"

namespace {

using namespace hccl;
using namespace hccl::transport;
using tcp::FrameHeader;
using tcp::FrameType;

class Harness {
 public:
  explicit Harness(fuzz::Input input) : input_(input) {
    int ends[2];
    PROMISE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peer_ = Fd(ends[1]);
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    share_ = std::make_unique<tcp::LinkShare>(2 + 31 * input_.below(16), epoll_.get());
    link_ = std::make_unique<tcp::Link>(0, 1, false, *share_);
    link_->connect(tcp::Connection(Fd(ends[0])));
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 400; ++steps) step();
    move();
    peer_.reset();
    for (int turns = 0; link_->alive(); ++turns) {
      PROMISE(turns < 100'000);
      link_->write();
      link_->read();
    }
    for (const auto& each : posted_) PROMISE(each->request.done());
  }

 private:
  void step() {
    const std::uint8_t what = input_.byte();
    switch (what % 8) {
      case 0:
      case 1: {
        auto& each = *posted_.emplace_back(std::make_unique<fuzz::Posted>(size_of(input_.byte())));
        if (what % 8 == 0) {
          link_->send(each.request, lane(), {each.bytes.get(), each.size});
        } else {
          link_->recv(each.request, lane(), {each.bytes.get(), each.size});
        }
        break;
      }
      case 2:
        put(input_.blob());
        break;
      case 3:
        move();
        break;
      default:
        put_frame(what);
    }
    if (what & 0x80) move();
  }

  void put_frame(std::uint8_t what) {
    FrameHeader header{static_cast<FrameType>(1 + (what >> 3) % 6),
                       static_cast<std::uint8_t>(lane()), 0, input_.byte(), size_of(input_.byte())};
    if (header.sequence >= 240) header.sequence = input_.get<std::uint32_t>();
    if (header.length == 77) header.length = input_.get<std::uint64_t>();
    put({reinterpret_cast<const char*>(&header), sizeof header});
    const bool carries = header.type == FrameType::kEager || header.type == FrameType::kData;
    if (carries && header.length <= 1 << 20) {
      put(std::string(static_cast<std::size_t>(header.length), 'x'));
    }
  }

  /// Sends all bytes; whenever the socket is full, the link reads.
  void put(std::string_view bytes) {
    while (!bytes.empty() && link_->alive()) {
      const ssize_t sent = ::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (!bytes.empty()) move();
    }
  }
  void move() {
    char drained[65536];
    for (bool moved = true; moved;) {
      moved = link_->write() | link_->read();
      while (::recv(peer_.get(), drained, sizeof drained, 0) > 0) {
      }
    }
  }

  std::uint32_t lane() { return input_.below(4) == 3 ? input_.byte() : 0; }
  static std::size_t size_of(std::uint8_t code) {
    constexpr std::size_t kSizes[] = {
        0, 1, 64, 77, 4096, tcp::kEagerLimit, tcp::kEagerLimit + 1, 300'000};
    return kSizes[code % 8];
  }

  fuzz::Input input_;
  Fd peer_, epoll_;
  std::vector<std::unique_ptr<fuzz::Posted>> posted_;
  std::unique_ptr<tcp::LinkShare> share_;
  std::unique_ptr<tcp::Link> link_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Harness(fuzz::Input(data, size)).run();
  return 0;
}
